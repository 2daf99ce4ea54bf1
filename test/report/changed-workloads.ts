/** The changed workload that a sentence of "What would shorten it" describes. */

import type { ReportData } from '../../src/report/report-data.ts'
import type { Job, Workload } from './list-schedule.ts'

/** The change, as a sentence names it; `null` for a sentence about no change. */
export function changedBy(
  text: string,
  workload: Workload,
  report: ReportData,
): { readonly kind: string; readonly workload: Workload } | null {
  const found = Object.entries(changes).find(([start]) => text.includes(start))
  return found === undefined ? null : { kind: found[0], workload: found[1](workload, report, text) }
}

/** How much earlier the run could end, in seconds. */
export function savedBy(text: string): number {
  const [, max = '', unit = ''] = /up to ([\d.]+) (m?s) earlier/.exec(text) ?? []
  return Number(max) / (unit === 'ms' ? 1000 : 1)
}

type Change = (workload: Workload, report: ReportData, text: string) => Workload

const withNodes =
  (change: (node: Workload['nodes'][number]) => Partial<Workload['nodes'][number]>): Change =>
  (workload) => ({
    ...workload,
    nodes: workload.nodes.map((node) => ({ ...node, ...change(node) })),
  })

const withJobs =
  (change: (job: Job, report: ReportData, text: string) => Job): Change =>
  (workload, report, text) => ({
    ...workload,
    jobs: workload.jobs.map((job) => change(job, report, text)),
  })

const scaled = (job: Job, factor: number): Job => ({
  ...job,
  attempts: job.attempts.map(({ seconds, ...more }) => ({ seconds: seconds * factor, ...more })),
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
  'If tasks were ready earlier': withJobs((job) => ({ ...job, created: 0 })),
  'Without the delays': withJobs((job) => ({
    ...job,
    attempts: job.attempts.map(({ seconds }) => ({ seconds })),
  })),
  'on the critical path it could': withJobs((job, { bounds, uidOf }) => {
    const onPath = new Set(bounds.criticalPath.tasks.map(({ task }) => task))
    const late = bounds.stragglers.find(({ task }) => onPath.has(task) && uidOf(task) === job.uid)
    return late === undefined ? job : scaled(job, late.median / late.seconds)
  }),
  'took half as long': withJobs((job, _, text) =>
    text.startsWith(`If all ${job.name ?? 'simulate'} tasks `) ? scaled(job, 0.5) : job,
  ),
  'Attempts that failed': (workload) => ({
    ...workload,
    jobs: workload.jobs
      .filter(({ isFailed }) => isFailed !== true)
      .map((job) => ({ ...job, attempts: job.attempts.slice(-1) })),
  }),
}
