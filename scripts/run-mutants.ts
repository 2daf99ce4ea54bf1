/**
 * `npm run mutants -- src/core --count 50 --seed 7`: changes the sources in small ways and runs the
 * tests nearest to each change. Prints the changes that no test notices, and fails if there is one.
 * Those that `scripts/mutation/survivors.json` lists with a reason are not run.
 */

import { parseArgs } from 'node:util'
import { describeMutant, runMutants } from './mutation/mutation-run.ts'
import { mutatedFolders } from './mutation/survivors.ts'

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    count: { type: 'string', default: '20' },
    minutes: { type: 'string', default: '15' },
    seed: { type: 'string', default: String(Date.now() % 2 ** 31) },
  },
})
const print = (line: string): boolean => process.stdout.write(`${line}\n`)

const { killed, survived } = await runMutants({
  root: process.cwd(),
  within: positionals.length > 0 ? positionals : mutatedFolders,
  count: Number(values.count),
  minutes: Number(values.minutes),
  seed: Number(values.seed),
  print,
})
for (const mutant of survived) print(`not noticed by a test: ${describeMutant(mutant)}`)
print(`${killed.length} killed, ${survived.length} survived`)
process.exitCode = survived.length === 0 ? 0 : 1
