/**
 * Inference: batches of the engines by model server, and the prompts of tasks. Constant size. Times
 * to the first token are only metrics, not part of any event.
 */

import { hasEnded, hasStarted, stages } from '../lifecycle.ts'
import { numberOf, type Panel, resumption, textOf, type ViewEvent } from '../panel.ts'
import { addToSeries, createSeries, type Series, type SeriesPoint, showSeries } from '../series.ts'

interface EngineState {
  readonly backend: string
  readonly workerId: string
  batches: number
  requests: number
  failed: number
  waitSeconds: number
  computeSeconds: number
  maxWait: number
  lost: number
}

export interface InferenceState {
  readonly engines: Map<string, EngineState>
  /** The number of batches by size: 1, 2, 3 to 4, 5 to 8, and so on. */
  readonly sizes: number[]
  largestBatch: number
  /** Requests per batch, wait of the oldest request, and duration over time. */
  readonly series: Series
  /** Counts of tasks of type `ai`. */
  queued: number
  running: number
  completed: number
  failed: number
  canceled: number
}

export interface InferenceView {
  readonly engines: readonly Readonly<EngineState>[]
  readonly batches: number
  readonly requests: number
  /** The bars of a histogram; `upTo` is the maximum batch size of a bar. */
  readonly sizes: readonly { readonly upTo: number; readonly batches: number }[]
  readonly largestBatch: number
  readonly waitSeconds: number
  readonly computeSeconds: number
  /** Means per time interval: batch size, wait and duration. */
  readonly series: readonly SeriesPoint[]
  readonly tasks: Readonly<
    Record<'queued' | 'running' | 'completed' | 'failed' | 'canceled', number>
  >
}

const maxEngines = 1000

export const inference: Panel<InferenceState, void, InferenceView> = {
  create: () => ({
    engines: new Map(),
    sizes: [],
    largestBatch: 0,
    series: createSeries(3),
    queued: 0,
    running: 0,
    completed: 0,
    failed: 0,
    canceled: 0,
  }),

  take(state, event, step) {
    if (step === resumption) [state.queued, state.running] = [0, 0]
    if (event.event_type === 'tutti.Batch') addBatch(state, event)
    if (event.event_type === 'tutti.EngineLost') {
      const engine = engineOf(state, event)
      if (engine !== null) engine.lost++
    }
    const { stage, before, after, earlier } = step
    if (stage === 0 || after === before || event.attributes['task_type'] !== 'ai') return
    if ((earlier & stages.completed) !== 0) state.completed--
    if ((earlier & stages.failed) !== 0) state.failed--
    if ((earlier & stages.canceled) !== 0) state.canceled--
    countTask(state, stage, before, after)
  },

  show(state) {
    const { sizes, largestBatch, series, queued, running, completed, failed, canceled } = state
    const engines = [...state.engines.values()]
    const sum = (key: 'batches' | 'requests' | 'waitSeconds' | 'computeSeconds'): number =>
      engines.reduce((total, engine) => total + engine[key], 0)
    return {
      engines: engines.map((engine) => ({ ...engine })),
      batches: sum('batches'),
      requests: sum('requests'),
      sizes: sizes.map((batches, at) => ({ upTo: 2 ** at, batches })),
      largestBatch,
      waitSeconds: sum('waitSeconds'),
      computeSeconds: sum('computeSeconds'),
      series: showSeries(series),
      tasks: { queued, running, completed, failed, canceled },
    }
  },
}

function countTask(state: InferenceState, stage: number, before: number, after: number): void {
  const wasQueued = (before & stages.queued) !== 0 && !hasStarted(before)
  if (stage === stages.queued && !hasStarted(before)) state.queued++
  if ((stage === stages.started || hasEnded(after)) && wasQueued) state.queued--
  if (stage === stages.started) state.running++
  if (hasEnded(after) && hasStarted(before)) state.running--
  if (stage === stages.completed) state.completed++
  if (stage === stages.failed) state.failed++
  if (stage === stages.canceled) state.canceled++
}

function addBatch(state: InferenceState, event: ViewEvent): void {
  const size = Math.max(1, numberOf(event.size) ?? 1)
  const wait = Math.max(0, numberOf(event.wait_seconds) ?? 0)
  const compute = Math.max(0, numberOf(event.duration_seconds) ?? 0)
  const bar = Math.min(30, Math.ceil(Math.log2(size)))
  while (state.sizes.length <= bar) state.sizes.push(0)
  state.sizes[bar] = (state.sizes[bar] ?? 0) + 1
  state.largestBatch = Math.max(state.largestBatch, size)
  addToSeries(state.series, event.event_time, [size, wait, compute])
  const engine = engineOf(state, event)
  if (engine === null) return
  engine.batches++
  engine.requests += size
  engine.waitSeconds += wait
  engine.computeSeconds += compute
  engine.maxWait = Math.max(engine.maxWait, wait)
  if (textOf(event.error_message) !== '') engine.failed++
}

/** Returns `null` for a new engine if there are too many. */
function engineOf(state: InferenceState, event: ViewEvent): EngineState | null {
  const { backend } = event
  const workerId = textOf(event.worker_id)
  const key = JSON.stringify([backend, workerId])
  const known = state.engines.get(key)
  if (known !== undefined) return known
  if (state.engines.size >= maxEngines) return null
  const sums = { batches: 0, requests: 0, failed: 0, waitSeconds: 0, computeSeconds: 0 }
  const engine = { backend, workerId, ...sums, maxWait: 0, lost: 0 }
  state.engines.set(key, engine)
  return engine
}
