/** One pass over the events of a run, live or from a file, for any number of panels. */

import { counts, type CountsState } from './panels/counts.ts'
import type { Panel, PassedStates, TaskStep, ViewEvent, ViewSpan } from './panel.ts'

interface AnyPanel {
  create(): unknown
  take(state: never, event: ViewEvent, step: TaskStep, passed: PassedStates): void
  takeSpan?(state: never, span: ViewSpan): void
}

type StateOf<P> = P extends Panel<infer State, never, unknown> ? State : never

type AnyPanels = Readonly<Record<string, AnyPanel>>
type PanelStates<Panels> = { readonly [Name in keyof Panels]: StateOf<Panels[Name]> }

/** The complete state of a pass as plain data. Another pass can continue from it. */
export interface PassStates<Panels> {
  readonly counts: CountsState
  readonly panels: PanelStates<Panels>
}

/**
 * The states of the given panels by name, and the panel `counts`. For each event, `counts` finds
 * the task and the change of its stages, so that the other panels need not.
 *
 * @example
 * const pass = new Pass({ names, failures })
 * for await (const line of readCheckpoint(path)) if (line.section === 'event') pass.take(line)
 * const slowest = names.show(pass.states.names, { durations: true })
 */
export class Pass<Panels extends AnyPanels> {
  readonly counts: CountsState
  readonly states: PanelStates<Panels>
  readonly #panels: readonly (readonly [name: string, panel: AnyPanel])[]
  /** Created on the first event, because the states of a snapshot are loaded lazily. */
  #runs: readonly { readonly panel: AnyPanel; readonly state: never }[] | null = null

  /** If `states` is given, continues the earlier pass and updates its states in place. */
  constructor(panels: Panels, states?: PassStates<Panels>) {
    this.counts = states?.counts ?? counts.create()
    this.#panels = Object.entries<AnyPanel>(panels)
    const created = (): unknown =>
      Object.fromEntries(this.#panels.map(([name, panel]) => [name, panel.create()]))
    this.states = states?.panels ?? (created() as PanelStates<Panels>)
  }

  /** Call this for events in the order of the file, which is the order of emission. */
  take(event: ViewEvent): void {
    const step = counts.take(this.counts, event)
    this.#runs ??= this.#panels.map(([name, panel]) => ({
      panel,
      state: this.states[name] as never,
    }))
    for (const { panel, state } of this.#runs) panel.take(state, event, step, this.states)
  }

  /** Call this for the spans of requests to models. Their order does not matter. */
  takeSpan(span: ViewSpan): void {
    for (const [name, panel] of this.#panels) panel.takeSpan?.(this.states[name] as never, span)
  }
}
