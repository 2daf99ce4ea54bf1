/**
 * Simulates the cluster: `npm run simulate -- --seed N [--seeds M]`, with `--trace`, `--shells` and
 * `--faults JSON`.
 * Prints each failing seed with the shortest list of its faults that still fails, unless
 * `--no-shrink` is given. `--first` ends at the first failing seed, and `--seed` may be repeated.
 */

import { parseArgs } from 'node:util'
import type { Fault } from '../test/simulation/faults.ts'

// The hooks come first, because they change how the sources are loaded.
await import('../test/simulation/hooks.ts')
const { simulate } = await import('../test/simulation/simulate.ts')
const { shrink } = await import('../test/simulation/shrink.ts')

// Nobody reads the stacks of simulated errors.
Error.stackTraceLimit = 0

const { values } = parseArgs({
  options: {
    seed: { type: 'string', multiple: true, default: ['1'] },
    seeds: { type: 'string', default: '1' },
    trace: { type: 'boolean', default: false },
    faults: { type: 'string' },
    first: { type: 'boolean', default: false },
    shrink: { type: 'boolean', default: true },
    shells: { type: 'boolean', default: false },
  },
  allowNegative: true,
})
const count = Number(values.seeds)
const starts = values.seed.map(Number)
if (![...starts, count].every(Number.isSafeInteger)) {
  throw new RangeError('--seed and --seeds must be whole numbers')
}
const seeds = starts.flatMap((start) => Array.from({ length: count }, (_, at) => start + at))
const faults = values.faults === undefined ? undefined : (JSON.parse(values.faults) as Fault[])
const hashes: string[] = []
let failed = 0
for (const seed of seeds) {
  const onTrace = values.trace ? (line: string) => console.log(line) : undefined
  const parts = values.shells ? ('processes' as const) : ('machines' as const)
  const given = {
    parts,
    ...(faults === undefined ? {} : { faults }),
    ...(onTrace === undefined ? {} : { onTrace }),
  }
  const result = await simulate({ seed, ...given })
  hashes.push(result.hash)
  if (result.violations.length === 0) continue
  failed++
  console.log(`seed ${seed} fails:`)
  for (const violation of result.violations) console.log(`  ${violation}`)
  if (values.shrink) {
    const shortest = JSON.stringify(await shrink(result, parts))
    console.log(`  npm run simulate -- --seed ${seed} --trace --faults '${shortest}'`)
  }
  if (values.first) break
}
const { createHash } = await import('node:crypto')
const digest = createHash('sha256').update(hashes.join(' ')).digest('hex')
console.log(`${hashes.length} simulations, ${failed} failed, trace ${digest}`)
process.exitCode = failed > 0 ? 1 : 0
