/**
 * `npm run mutants -- src/core --count 50 --seed 7`: changes the sources in small ways and runs the
 * tests nearest to each change. Prints the changes that no test notices, and fails if one of them
 * is not listed with its reason in `scripts/mutation/survivors.json`.
 */

import { parseArgs } from 'node:util'
import { describeMutant, runMutants } from './mutation/mutation-run.ts'
import { mutatedFolders, unlistedOf } from './mutation/survivors.ts'

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    count: { type: 'string', default: '20' },
    minutes: { type: 'string', default: '15' },
    seed: { type: 'string', default: String(Date.now() % 2 ** 31) },
  },
})
const print = (line: string): boolean => process.stdout.write(`${line}\n`)

print(`seed ${values.seed}`)
const { killed, survived } = await runMutants({
  root: process.cwd(),
  within: positionals.length > 0 ? positionals : mutatedFolders,
  count: Number(values.count),
  minutes: Number(values.minutes),
  seed: Number(values.seed),
  print,
})
const unlisted = unlistedOf(survived)
for (const mutant of unlisted) print(`not noticed by a test: ${describeMutant(mutant)}`)
print(`${killed.length} killed, ${survived.length} survived, ${unlisted.length} of them not listed`)
process.exitCode = unlisted.length === 0 ? 0 : 1
