/** Inference: the batches of each model server, and the requests to each model. */

import { addToBuckets, type LogBuckets, quantileOf } from '../stats.ts'
import { numberOf, type Panel, textOf, type ViewEvent, type ViewSpan } from '../panel.ts'
import { addToSeries, createSeries, type SeriesPoint, showSeries } from '../series.ts'

export interface EngineState {
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

/** The requests to a model that have ended. */
export interface ModelState {
  done: number
  failed: number
  promptTokens: number
  answerTokens: number
  /** The requests whose engine reported how many tokens of the prompt came from a cache. */
  readonly cache: { requests: number; hits: number; promptTokens: number; cachedTokens: number }
  /** From the arrival of the first request to the end of the last one. */
  startTime: number
  endTime: number
  readonly firstToken: LogBuckets
  readonly betweenTokens: LogBuckets
}

const createInference = () => ({
  models: new Map<string, ModelState>(),
  /** The number of ended requests of each route of a server, and of each named key. */
  routes: new Map<string, number>(),
  keys: new Map<string, number>(),
  engines: new Map<string, EngineState>(),
  /** The number of batches by size: 1, 2, 3 to 4, 5 to 8, and so on. */
  sizes: [] as number[],
  largestBatch: 0,
  /** The requests per batch, the wait of the oldest request, and the duration of batches. */
  series: createSeries(3),
})

export type InferenceState = ReturnType<typeof createInference>

interface Quantiles {
  readonly p50: number
  readonly p95: number
}

export interface ModelView {
  readonly model: string
  readonly done: number
  readonly failed: number
  /** Seconds until the first token; `null` if no request reported them. */
  readonly ttft: Quantiles | null
  readonly betweenTokens: Quantiles | null
  /** The means from the arrival of the first request to the end of the last one. */
  readonly promptTokensPerSecond: number | null
  readonly answerTokensPerSecond: number | null
  /** The part of the tokens of prompts that came from a cache, from 0 to 1. */
  readonly cacheUse: number | null
  /** The part of the requests that found a beginning of their prompt in a cache, from 0 to 1. */
  readonly prefixHits: number | null
}

export interface InferenceView {
  readonly models: readonly ModelView[]
  readonly routes: ReadonlyMap<string, number>
  readonly keys: ReadonlyMap<string, number>
  readonly engines: readonly Readonly<EngineState>[]
  readonly batches: number
  readonly requests: number
  /** The bars of a histogram. `upTo` is the maximum batch size of a bar. */
  readonly sizes: readonly { readonly upTo: number; readonly batches: number }[]
  readonly largestBatch: number
  readonly waitSeconds: number
  readonly computeSeconds: number
  readonly series: readonly SeriesPoint[]
}

const maxEngines = 1000
const maxModels = 200
const maxRoutes = 20
const maxKeys = 100

export const inference: Panel<InferenceState, void, InferenceView> = {
  create: createInference,

  take(state, event) {
    if (event.event_type === 'tutti.Batch') addBatch(state, event)
    if (event.event_type === 'tutti.EngineLost') {
      const engine = findOrAddEngine(state, event)
      if (engine !== null) engine.lost++
    }
  },

  takeSpan: addRequest,

  show(state) {
    const { sizes, largestBatch, series } = state
    const engines = [...state.engines.values()]
    const sum = (key: 'batches' | 'requests' | 'waitSeconds' | 'computeSeconds'): number =>
      engines.reduce((total, engine) => total + engine[key], 0)
    return {
      models: Array.from(state.models, ([model, one]) => showModel(model, one)),
      routes: new Map(state.routes),
      keys: new Map(state.keys),
      engines: engines.map((engine) => ({ ...engine })),
      batches: sum('batches'),
      requests: sum('requests'),
      sizes: sizes.map((batches, at) => ({ upTo: 2 ** at, batches })),
      largestBatch,
      waitSeconds: sum('waitSeconds'),
      computeSeconds: sum('computeSeconds'),
      series: showSeries(series),
    }
  },
}

function addBatch(state: InferenceState, event: ViewEvent): void {
  const size = Math.max(1, numberOf(event.size) ?? 1)
  const waitTime = Math.max(0, numberOf(event.wait_seconds) ?? 0)
  const computeTime = Math.max(0, numberOf(event.duration_seconds) ?? 0)
  const bar = Math.min(30, Math.ceil(Math.log2(size)))
  while (state.sizes.length <= bar) state.sizes.push(0)
  state.sizes[bar] = (state.sizes[bar] ?? 0) + 1
  state.largestBatch = Math.max(state.largestBatch, size)
  addToSeries(state.series, event.event_time, [size, waitTime, computeTime])
  const engine = findOrAddEngine(state, event)
  if (engine === null) return
  engine.batches++
  engine.requests += size
  engine.waitSeconds += waitTime
  engine.computeSeconds += computeTime
  engine.maxWait = Math.max(engine.maxWait, waitTime)
  if (textOf(event.error_message) !== '') engine.failed++
}

/** Returns `null` for a new engine if there are already too many engines. */
function findOrAddEngine(state: InferenceState, event: ViewEvent): EngineState | null {
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

function addRequest({ models, routes, keys }: InferenceState, span: ViewSpan): void {
  const { attributes, start_time: start, end_time: end, status_code: status } = span
  const model = textOf(attributes['gen_ai.request.model'])
  if (model === '' || (!models.has(model) && models.size >= maxModels)) return
  const state = models.get(model) ?? createModel()
  models.set(model, state)
  state.startTime = Math.min(state.startTime, start)
  state.endTime = Math.max(state.endTime, end)
  const answerTokens = numberOf(attributes['gen_ai.usage.output_tokens'])
  countText(routes, textOf(attributes['http.route']), maxRoutes)
  countText(keys, textOf(attributes['tutti.key']), maxKeys)
  if (status === 'ERROR') state.failed++
  if (answerTokens === null) return
  state.done++
  const promptTokens = numberOf(attributes['gen_ai.usage.input_tokens']) ?? 0
  state.promptTokens += promptTokens
  state.answerTokens += answerTokens
  const cached = numberOf(attributes['gen_ai.usage.cache_read.input_tokens'])
  if (cached !== null) addCached(state, promptTokens, cached)
  const first = numberOf(attributes['gen_ai.response.time_to_first_chunk'])
  if (first === null) return
  addToBuckets(state.firstToken, first)
  if (answerTokens < 2) return
  addToBuckets(state.betweenTokens, Math.max(0, end - start - first) / (answerTokens - 1))
}

/** Counts a text, if it is not empty and the map has room for it. */
function countText(counts: Map<string, number>, text: string, max: number): void {
  const known = counts.get(text) ?? 0
  if (text !== '' && (known > 0 || counts.size < max)) counts.set(text, known + 1)
}

function addCached({ cache }: ModelState, promptTokens: number, cachedTokens: number): void {
  cache.requests++
  if (cachedTokens > 0) cache.hits++
  cache.promptTokens += promptTokens
  cache.cachedTokens += cachedTokens
}

const createModel = (): ModelState => ({
  done: 0,
  failed: 0,
  promptTokens: 0,
  answerTokens: 0,
  cache: { requests: 0, hits: 0, promptTokens: 0, cachedTokens: 0 },
  startTime: Infinity,
  endTime: -Infinity,
  firstToken: [],
  betweenTokens: [],
})

function showModel(model: string, state: ModelState): ModelView {
  const { done, failed, cache, promptTokens, answerTokens } = state
  const seconds = state.endTime - state.startTime
  const part = (value: number, of: number): number | null => (of > 0 ? value / of : null)
  return {
    model,
    done,
    failed,
    ttft: showQuantiles(state.firstToken),
    betweenTokens: showQuantiles(state.betweenTokens),
    promptTokensPerSecond: done === 0 ? null : part(promptTokens, seconds),
    answerTokensPerSecond: done === 0 ? null : part(answerTokens, seconds),
    cacheUse: part(cache.cachedTokens, cache.promptTokens),
    prefixHits: part(cache.hits, cache.requests),
  }
}

function showQuantiles(buckets: LogBuckets): Quantiles | null {
  const [p50, p95] = [quantileOf(buckets, 0.5), quantileOf(buckets, 0.95)]
  return p50 === null || p95 === null ? null : { p50, p95 }
}
