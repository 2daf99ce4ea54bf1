/** One pass over the events of a run, live or from the file, that feeds any number of panels. */

import { counts } from './panels/counts.ts'
import type { Panel, TaskStep, ViewEvent } from './panel.ts'

interface AnyPanel {
  create(): unknown
  take(state: never, event: ViewEvent, step: TaskStep): void
}

type StateOf<P> = P extends Panel<infer State, never, unknown> ? State : never

/**
 * The states of the given panels, by their names. `counts` is always among them: it finds the task
 * of each event and what the event changes for it, once for all panels.
 *
 * @example
 * const pass = new Pass({ names, failures })
 * for await (const line of readCheckpoint(path)) if (line.section === 'event') pass.take(line)
 * const slowest = names.show(pass.states.names, { durations: true })
 */
export class Pass<Panels extends Readonly<Record<string, AnyPanel>>> {
  readonly counts = counts.create()
  readonly states: { readonly [Name in keyof Panels]: StateOf<Panels[Name]> }
  readonly #runs: readonly { readonly panel: AnyPanel; readonly state: never }[]

  constructor(panels: Panels) {
    const entries = Object.entries<AnyPanel>(panels)
    const runs = entries.map(([name, panel]) => ({ name, panel, state: panel.create() as never }))
    this.#runs = runs
    this.states = Object.fromEntries(runs.map(({ name, state }) => [name, state])) as never
  }

  /** Events come in the order of the file, which is the order of their emission. */
  take(event: ViewEvent): void {
    const step = counts.take(this.counts, event)
    for (const { panel, state } of this.#runs) panel.take(state, event, step)
  }
}
