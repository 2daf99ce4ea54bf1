/**
 * Decides which models of a server are loaded, and which requests may begin. Plain data: each
 * stimulus returns instructions, and the caller carries them out. No clock, no I/O.
 */

/** What the schedule knows about a model. */
export interface ScheduledModel {
  readonly name: string
  /** The memory that the loaded model needs. */
  readonly bytes: number
  /** How long the model stays loaded without a request; `Infinity` for ever. */
  readonly keepAliveMs: number
  /** Whether the model, once loaded, is never unloaded, even if another model needs its memory. */
  readonly isPinned: boolean
}

export type ScheduleInstruction =
  | { readonly kind: 'load' | 'unload'; readonly model: string }
  /** The model is loaded, and stays loaded until `release` is called for this request. */
  | { readonly kind: 'begin'; readonly request: string; readonly model: string }
  /** `reason` says why the model can never be loaded; `null` after `loadFailed`. */
  | {
      readonly kind: 'refuse'
      readonly request: string
      readonly model: string
      readonly reason: string | null
    }

interface ModelState {
  readonly model: ScheduledModel
  phase: 'unloaded' | 'loading' | 'loaded' | 'unloading'
  /** The number of requests that have begun and not ended. */
  active: number
  /** Whether the model must give way to an earlier request of another model. */
  isDraining: boolean
  /** When the model was loaded, or when its last request ended. */
  lastUsedMs: number
}

/**
 * Requests of models that do not fit into the memory together begin in the order of their arrival,
 * so that no request waits for a later request of another model. A request of a loaded model that
 * need not give way begins immediately.
 */
export class ModelSchedule {
  readonly #budgetBytes: number
  readonly #states: ReadonlyMap<string, ModelState>
  /** Requests that have not begun, in the order of their arrival, with their models. */
  readonly #waiting = new Map<string, ModelState>()
  /** The model that the draining models make room for. */
  #roomFor: ModelState | null = null

  constructor(models: readonly ScheduledModel[], budgetBytes: number) {
    this.#budgetBytes = budgetBytes
    this.#states = new Map(
      models.map((model) => [
        model.name,
        { model, phase: 'unloaded', active: 0, isDraining: false, lastUsedMs: 0 },
      ]),
    )
  }

  get waitingCount(): number {
    return this.#waiting.size
  }

  isLoaded(model: string): boolean {
    return this.#find(model).phase === 'loaded'
  }

  /** When the model is unloaded if no further request arrives; `Infinity` if it stays. */
  expiresMs(model: string): number {
    const { phase, active, lastUsedMs, model: one } = this.#find(model)
    return phase === 'loaded' && active === 0 ? lastUsedMs + one.keepAliveMs : Infinity
  }

  /** The next time at which `advance` has something to do. */
  get nextDeadlineMs(): number {
    return Math.min(...Array.from(this.#states.keys(), (name) => this.expiresMs(name)))
  }

  request(request: string, model: string, nowMs: number): readonly ScheduleInstruction[] {
    const state = this.#find(model)
    const reason = state.phase === 'unloaded' ? this.#findObstacle(state.model) : null
    if (reason !== null) return [{ kind: 'refuse', request, model, reason }]
    this.#waiting.set(request, state)
    return this.advance(nowMs)
  }

  /** Forgets a request that has not begun. */
  cancel(request: string, nowMs: number): readonly ScheduleInstruction[] {
    return this.#waiting.delete(request) ? this.advance(nowMs) : []
  }

  /** Ends a request that has begun. */
  release(model: string, nowMs: number): readonly ScheduleInstruction[] {
    const state = this.#find(model)
    state.active--
    state.lastUsedMs = nowMs
    return this.advance(nowMs)
  }

  loaded(model: string, nowMs: number): readonly ScheduleInstruction[] {
    const state = this.#find(model)
    state.phase = 'loaded'
    state.lastUsedMs = nowMs
    return this.advance(nowMs)
  }

  /** The requests that waited for the model are refused. A later request tries again. */
  loadFailed(model: string, nowMs: number): readonly ScheduleInstruction[] {
    const state = this.#find(model)
    state.phase = 'unloaded'
    const refused: ScheduleInstruction[] = []
    for (const [request, waitsFor] of this.#waiting) {
      if (waitsFor !== state) continue
      this.#waiting.delete(request)
      refused.push({ kind: 'refuse', request, model, reason: null })
    }
    return [...refused, ...this.advance(nowMs)]
  }

  unloaded(model: string, nowMs: number): readonly ScheduleInstruction[] {
    this.#find(model).phase = 'unloaded'
    return this.advance(nowMs)
  }

  advance(nowMs: number): readonly ScheduleInstruction[] {
    const instructions: ScheduleInstruction[] = []
    let blocked: ModelState | null = null
    for (const [request, state] of this.#waiting) {
      const { name } = state.model
      // A draining model still serves the requests that came before the blocked one.
      if (state.phase === 'loaded' && (blocked === null || !state.isDraining)) {
        this.#waiting.delete(request)
        state.active++
        instructions.push({ kind: 'begin', request, model: name })
      } else if (state.phase === 'unloaded' && blocked === null) {
        if (this.#freeBytes >= state.model.bytes) {
          state.phase = 'loading'
          instructions.push({ kind: 'load', model: name })
        } else {
          blocked = state
          this.#makeRoom(state)
        }
      }
    }
    if (blocked === null) this.#stopDraining()
    for (const [name, state] of this.#states) {
      if (state.phase !== 'loaded' || state.active > 0) continue
      if (!state.isDraining && this.expiresMs(name) > nowMs) continue
      state.phase = 'unloading'
      state.isDraining = false
      instructions.push({ kind: 'unload', model: name })
    }
    return instructions
  }

  /** Models that are being unloaded still need their memory. */
  get #freeBytes(): number {
    let free = this.#budgetBytes
    for (const { phase, model } of this.#states.values())
      if (phase !== 'unloaded') free -= model.bytes
    return free
  }

  /** Returns why a model can never be loaded; `null` if it can. */
  #findObstacle({ name, bytes }: ScheduledModel): string | null {
    const kept = [...this.#states.values()]
      .filter(({ phase, model }) => model.isPinned && phase !== 'unloaded')
      .map(({ model }) => model)
    const keptBytes = kept.reduce((sum, model) => sum + model.bytes, 0)
    if (bytes + keptBytes <= this.#budgetBytes) return null
    const names = kept.map((model) => `"${model.name}" keeps ${toMegabytes(model.bytes)}`)
    const taken = kept.length === 0 ? '' : `, of which ${names.join(' and ')}`
    return (
      `the model "${name}" needs ${toMegabytes(bytes)} of memory, but all models together may ` +
      `have ${toMegabytes(this.#budgetBytes)} (hardware.model_memory_mb)${taken}`
    )
  }

  /** Chooses the models to unload: idle ones first, then those whose last use is longest ago. */
  #makeRoom(state: ModelState): void {
    if (this.#roomFor === state) return
    this.#stopDraining()
    this.#roomFor = state
    const others = [...this.#states.values()]
    const leaving = others.filter(({ phase }) => phase === 'unloading')
    let missing = state.model.bytes - this.#freeBytes
    for (const { model } of leaving) missing -= model.bytes
    const candidates = others
      .filter(({ phase, model }) => !model.isPinned && (phase === 'loaded' || phase === 'loading'))
      .toSorted(
        (one, other) =>
          Number(one.active > 0) - Number(other.active > 0) || one.lastUsedMs - other.lastUsedMs,
      )
    const chosen: ModelState[] = []
    for (const candidate of candidates) {
      if (missing <= 0) break
      chosen.push(candidate)
      missing -= candidate.model.bytes
    }
    for (const one of chosen) {
      // A model that was chosen early may be unnecessary after larger ones were chosen.
      if (missing + one.model.bytes <= 0) missing += one.model.bytes
      else one.isDraining = true
    }
  }

  #stopDraining(): void {
    this.#roomFor = null
    for (const state of this.#states.values()) state.isDraining = false
  }

  #find(model: string): ModelState {
    const state = this.#states.get(model)
    if (state === undefined) throw new RangeError(`no model "${model}"`)
    return state
  }
}

export const toMegabytes = (bytes: number): string => `${Math.ceil(bytes / 2 ** 20)} MB`
