/** Throws when it is imported by a Node that is too old. Entry points import it first. */

import { nodeProblem } from './version.ts'

const problem = nodeProblem(process.versions.node)
if (problem !== null) throw new Error(problem)
