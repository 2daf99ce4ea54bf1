/** One pass over the events of a run, live or from the file, that feeds any number of panels. */

import { counts, type CountsState } from './panels/counts.ts'
import type { Panel, TaskStep, ViewEvent } from './panel.ts'

interface AnyPanel {
  create(): unknown
  take(state: never, event: ViewEvent, step: TaskStep): void
}

type StateOf<P> = P extends Panel<infer State, never, unknown> ? State : never

type AnyPanels = Readonly<Record<string, AnyPanel>>
type PanelStates<Panels> = { readonly [Name in keyof Panels]: StateOf<Panels[Name]> }

/** All that a pass knows, as plain data: enough to go on with it elsewhere. */
export interface PassStates<Panels> {
  readonly counts: CountsState
  readonly panels: PanelStates<Panels>
}

/**
 * The states of the given panels, by their names. `counts` is always among them: it finds the task
 * of each event and what the event changes for it, once for all panels.
 *
 * @example
 * const pass = new Pass({ names, failures })
 * for await (const line of readCheckpoint(path)) if (line.section === 'event') pass.take(line)
 * const slowest = names.show(pass.states.names, { durations: true })
 */
export class Pass<Panels extends AnyPanels> {
  readonly counts: CountsState
  readonly states: PanelStates<Panels>
  readonly #runs: readonly { readonly panel: AnyPanel; readonly state: never }[]

  /** With `states` it goes on where the pass was that they come from; they are updated in place. */
  constructor(panels: Panels, states?: PassStates<Panels>) {
    this.counts = states?.counts ?? counts.create()
    const entries = Object.entries<AnyPanel>(panels)
    const runs = entries.map(([name, panel]) => {
      const state = states === undefined ? panel.create() : states.panels[name]
      return { name, panel, state: state as never }
    })
    this.#runs = runs
    this.states = Object.fromEntries(runs.map(({ name, state }) => [name, state])) as never
  }

  /** Events come in the order of the file, which is the order of their emission. */
  take(event: ViewEvent): void {
    const step = counts.take(this.counts, event)
    for (const { panel, state } of this.#runs) panel.take(state, event, step)
  }
}
