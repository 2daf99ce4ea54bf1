/** Fails at its import on a Node that is too old: entry points import it before everything else. */

import { nodeProblem } from './node-version.ts'

const problem = nodeProblem(process.versions.node)
if (problem !== null) throw new Error(problem)
