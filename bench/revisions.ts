/**
 * Compares the CPU time of this checkout with that of another one. Runs the same work through the
 * public entry points of both builds, interleaved, each run in a separate process, and prints the
 * ratio of the medians.
 *
 *     node bench/revisions.ts ../other-checkout [WORKLOAD…]
 */

import { execFileSync } from 'node:child_process'
import { resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { median, table } from './harness.ts'
import { workloads } from './revision-workloads.ts'

const runs = Number(process.env['RUNS'] ?? 9)
const program = fileURLToPath(new URL('revision-workloads.ts', import.meta.url))
const [, , otherFolder, ...wanted] = process.argv
if (otherFolder === undefined)
  throw new Error('usage: bench/revisions.ts OTHER_CHECKOUT [WORKLOAD…]')
const checkouts = {
  other: resolve(otherFolder),
  this: fileURLToPath(new URL('..', import.meta.url)),
}

function measure(checkout: string, workload: string): number {
  const args = ['--expose-gc', program, workload]
  const env = { ...process.env, TUTTI_CHECKOUT: checkout }
  const output = execFileSync(process.execPath, args, { encoding: 'utf8', env })
  return (JSON.parse(output.trim().split('\n').at(-1) ?? '') as { cpuMicros: number }).cpuMicros
}

const rows = Object.keys(workloads)
  .filter((name) => wanted.length === 0 || wanted.includes(name))
  .map((name) => {
    const found: Record<keyof typeof checkouts, number[]> = { other: [], this: [] }
    for (let run = 0; run < runs; run++) {
      // Alternates which checkout runs first in a round.
      const order = run % 2 === 0 ? (['other', 'this'] as const) : (['this', 'other'] as const)
      for (const which of order) found[which].push(measure(checkouts[which], name))
    }
    const [before, after] = [median(found.other), median(found.this)]
    process.stderr.write(`${name}: ${(after / before).toFixed(3)}\n`)
    return [name, before.toFixed(1), after.toFixed(1), (after / before).toFixed(2)]
  })
table(['workload', 'other (µs CPU per item)', 'this', 'this / other'], rows)
