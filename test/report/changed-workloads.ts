/** The changed workload that a sentence of "What would shorten it" describes. */

import type { Workload } from './list-schedule.ts'

/** The change, as a sentence names it; `null` for a sentence about no change. */
export function changedBy(
  text: string,
  workload: Workload,
): { readonly kind: string; readonly workload: Workload } | null {
  const found = Object.entries(changes).find(([start]) => text.includes(start))
  return found === undefined ? null : { kind: found[0], workload: found[1](workload) }
}

/** How much earlier the run could end, in seconds. */
export function savedBy(text: string): number {
  const [, max = '', unit = ''] = /up to ([\d.]+) (m?s) earlier/.exec(text) ?? []
  return Number(max) / (unit === 'ms' ? 1000 : 1)
}

type Change = (workload: Workload) => Workload

const withNodes =
  (change: (node: Workload['nodes'][number]) => Partial<Workload['nodes'][number]>): Change =>
  (workload) => ({
    ...workload,
    nodes: workload.nodes.map((node) => ({ ...node, ...change(node) })),
  })

const twice = (size = 0): number => 2 * size

const changes: Readonly<Record<string, Change>> = {
  'With twice as many slots': withNodes(({ cores }) => ({ cores: twice(cores) })),
  'With twice as many gpus': withNodes(({ gpus }) => ({ gpus: twice(gpus) })),
  'With twice as much memory': withNodes(({ memoryMb }) => ({ memoryMb: twice(memoryMb) })),
  'With enough gpus': withNodes(() => ({ gpus: 1000 })),
  'With enough memory': withNodes(() => ({ memoryMb: 1_000_000 })),
  'If all nodes had the labels': withNodes(() => ({ labels: { disk: 'ssd' } })),
  'If the nodes were present all the time': withNodes(() => ({ from: 0 })),
  'With the work of about': (workload) => ({ ...workload, gap: 0 }),
  'If no ready task waited': (workload) => ({ ...workload, gap: 0 }),
  'If tasks were ready earlier': (workload) => ({
    ...workload,
    jobs: workload.jobs.map((job) => ({ ...job, created: 0 })),
  }),
}
