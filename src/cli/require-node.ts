/** Exits with an error if Node is too old, before a dependency fails. */

import { nodeProblem } from '../foundation/version.ts'
import { exitCodes } from './exit.ts'

const problem = nodeProblem(process.versions.node)
if (problem !== null) {
  const isJson = process.argv.includes('--json')
  const error = { code: 'NodeTooOld', message: problem }
  process.stderr.write(`${isJson ? JSON.stringify({ error }) : problem}\n`)
  process.exit(exitCodes.usage)
}
