/** The usage of whole processes, from start to exit: CPU seconds and peak memory. */

import { spawnSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { median } from './harness.ts'

export interface Usage {
  readonly cpu: number
  /** Peak memory in megabytes. */
  readonly rss: number
}

const hook = new URL('fixtures/exit-usage.mjs', import.meta.url).href
/** The path of the built command. */
export const command = fileURLToPath(new URL('../dist/cli/main.js', import.meta.url))

function run(args: readonly string[]): Usage {
  const { stderr, status } = spawnSync(process.execPath, ['--import', hook, ...args], {
    encoding: 'utf8',
    maxBuffer: 2 ** 28,
    stdio: ['ignore', 'ignore', 'pipe'],
  })
  if (status !== 0) throw new Error(`${args.join(' ')}: ${stderr}`)
  return JSON.parse(stderr.trim().split('\n').at(-1) ?? '') as Usage
}

/** Medians over Node processes with these arguments, run alternately. */
export function measureProcesses<Name extends string>(
  processes: Readonly<Record<Name, readonly string[]>>,
  runs: number,
): Readonly<Record<Name, Usage>> {
  const entries = Object.entries<readonly string[]>(processes)
  const found = new Map<string, Usage[]>(entries.map(([name]) => [name, []]))
  for (let round = 0; round < runs; round++) {
    for (const [name, args] of entries) found.get(name)?.push(run(args))
  }
  const medians = entries.map(([name]) => {
    const all = found.get(name) ?? []
    return [
      name,
      { cpu: median(all.map(({ cpu }) => cpu)), rss: median(all.map(({ rss }) => rss)) },
    ]
  })
  return Object.fromEntries(medians) as Record<Name, Usage>
}
