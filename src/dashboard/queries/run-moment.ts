/** A run at one moment, with what several queries compute from it. */

import type { RunPass } from '../../views/all-panels.ts'
import { measurePaces } from '../../views/moments/paces.ts'
import type { NamesState } from '../../views/panels/names.ts'
import type { PaceView } from '../../views/panels/pace.ts'
import type { RecordState } from '../../views/panels/run.ts'
import type { RunColumns } from '../../views/moments/run-columns.ts'
import type { QuerySource } from './query-source.ts'

/** Queries about the same moment share one instance, so that each value is computed once. */
export class RunMoment {
  readonly pass: RunPass
  readonly state: RecordState
  readonly now: number
  readonly columns: RunColumns
  #paces: readonly PaceView[] | null = null

  constructor(
    { pass, state, now }: Pick<QuerySource, 'pass' | 'state' | 'now'>,
    columns: RunColumns,
  ) {
    this.pass = pass
    this.state = state
    this.now = now
    this.columns = columns
  }

  get isRunning(): boolean {
    return this.state === 'running'
  }

  get names(): NamesState {
    return this.pass.states.names
  }

  /** Indexed by the number of the name. */
  get paces(): readonly PaceView[] {
    this.#paces ??= measurePaces(this.columns, this.names, this.now)
    return this.#paces
  }

  /** The beginning of the time axis. */
  get start(): number {
    return startOf(this.pass, this.now)
  }
}

export function startOf({ states }: RunPass, now: number): number {
  const { firstTime } = states.bounds
  const first = Number.isFinite(firstTime) ? firstTime : now
  return Math.min(states.run.startTime ?? first, first)
}
