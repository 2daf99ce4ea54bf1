/** Throws on import if Node is too old. Entry points import this file first. */

import { nodeProblem } from './version.ts'

const problem = nodeProblem(process.versions.node)
if (problem !== null) throw new Error(problem)
