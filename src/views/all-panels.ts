/** Every panel of a run by its name; what a snapshot holds and readers of a record show. */

import { bounds } from './bounds/bounds.ts'
import { failures } from './panels/failures.ts'
import { graph } from './panels/graph.ts'
import { health } from './panels/health.ts'
import { inference } from './panels/inference.ts'
import { lanes } from './panels/lanes.ts'
import { names } from './panels/names.ts'
import { remarks } from './panels/remarks.ts'
import { resources } from './panels/resources.ts'
import { run } from './panels/run.ts'
import { Pass, type PassStates } from './pass.ts'

const panels = { run, names, failures, lanes, resources, inference, graph, bounds, health, remarks }

/** A pass that feeds all panels. */
export type RunPass = Pass<typeof panels>
/** Plain data, which can be cloned and written to a file. */
export type RunStates = PassStates<typeof panels>

/** Begins with the states of an earlier pass, if they are given, and takes them over. */
export const createRunPass = (states?: RunStates): RunPass => new Pass(panels, states)
