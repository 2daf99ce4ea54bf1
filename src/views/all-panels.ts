/** All panels of a run, by name. Snapshots store their states; readers of a record show them. */

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
import { scopes } from './panels/scopes.ts'
import { Pass, type PassStates } from './pass.ts'

const panels = {
  run,
  names,
  failures,
  lanes,
  resources,
  inference,
  graph,
  bounds,
  health,
  remarks,
  scopes,
}

export type RunPass = Pass<typeof panels>
/** The states of all panels: plain data, which can be cloned and written to a file. */
export type RunStates = PassStates<typeof panels>

/** Creates a pass. If `states` is given, continues an earlier pass and owns its states. */
export const createRunPass = (states?: RunStates): RunPass => new Pass(panels, states)
