/** The metrics that a server has for Prometheus, at `/metrics`. */

import {
  Distributions,
  type MetricValues,
  OriginLabels,
  type PlainMetric,
} from '../../events/measurement.ts'
import { toPrometheusText } from '../../telemetry/metrics/prometheus-text.ts'
import type { BatchReport } from '../generation/batch-run.ts'
import { readCachedTokens } from '../generation/gen-ai.ts'
import type { RequestReport } from '../generation/request-handler.ts'
import type { GeneratorStatus } from '../generation/text-generator.ts'
import type { ClientKey } from './keys/client-key.ts'

const batchSize = {
  name: 'tutti.batch.size',
  unit: '{request}',
  description: 'requests per batch',
  boundaries: [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024],
}
const batchWait = {
  name: 'tutti.batch.wait',
  unit: 's',
  description: 'queue time of the oldest request of a batch',
  boundaries: [0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 5, 30],
}
const noLabels = {}

type EndedRequest = Pick<RequestReport, 'code' | 'measurements' | 'usage'>

/** What `/metrics` shows of a model at present. */
export interface ModelState {
  readonly model: string
  readonly isLoaded: boolean
  readonly status: GeneratorStatus
  readonly slots: number
  readonly queueLimit: number
  /** How often engines have broken their contract. */
  readonly breaches: number
}

/** The current values that `/metrics` shows. */
interface ServerState {
  readonly models: readonly ModelState[]
  readonly keys: readonly ClientKey[]
  /** The metrics of the sessions that use the models. */
  readonly sessions: readonly MetricValues[]
}

/** What is counted of the requests of one model. */
class RequestTotals {
  /** The number of requests, by finish reason or error code. */
  readonly results = new Map<string, number>()
  /** `cached` tokens are those of `input` that an engine had evaluated before. */
  readonly tokens = { input: 0, output: 0, cached: 0 }
}

export class ServerMetrics {
  readonly #backend: string
  readonly #distributions = new Distributions()
  /** The latest session and its labels, cached because consecutive requests often share them. */
  #sessionLabels: { readonly sessionId: string; readonly labels: OriginLabels } | null = null
  readonly #totals = new Map<string, RequestTotals>()

  constructor(backend: string) {
    this.#backend = backend
  }

  requestEnded(
    model: string,
    { code, measurements, usage }: EndedRequest,
    sessionId: string,
  ): void {
    const { results, tokens } = this.#totalsOf(model)
    results.set(code, (results.get(code) ?? 0) + 1)
    if (usage !== null) {
      tokens.input += usage.promptTokens
      tokens.output += usage.completionTokens
      tokens.cached += readCachedTokens(usage) ?? 0
    }
    if (this.#sessionLabels?.sessionId !== sessionId) {
      this.#sessionLabels = { sessionId, labels: new OriginLabels(sessionId, this.#backend) }
    }
    for (const one of measurements)
      this.#distributions.record(this.#sessionLabels.labels.addOrigin(one))
  }

  batchEnded({ size, waitMs }: BatchReport): void {
    this.#distributions.record({ instrument: batchSize, value: size, labels: noLabels })
    this.#distributions.record({ instrument: batchWait, value: waitMs / 1000, labels: noLabels })
  }

  toText({ models, keys, sessions }: ServerState): string {
    const gauge = (
      name: string,
      description: string,
      toValue: (state: ModelState) => number,
    ): PlainMetric => ({
      name,
      kind: 'gauge',
      unit: '1',
      description,
      points: models.map((state) => ({ labels: { model: state.model }, value: toValue(state) })),
    })
    const counter = (
      name: string,
      description: string,
      label: string,
      toCounts: (totals: RequestTotals) => Iterable<readonly [string, number]>,
    ): PlainMetric => ({
      name,
      kind: 'counter',
      unit: '1',
      description,
      points: models.flatMap(({ model }) =>
        Array.from(toCounts(this.#totalsOf(model)), ([key, value]) => ({
          labels: { model, [label]: key },
          value,
        })),
      ),
    })
    const metrics = [
      counter(
        'tutti_requests',
        'requests that have ended, by finish reason or error code',
        'result',
        ({ results }) => results,
      ),
      counter(
        'tutti_tokens',
        'tokens of prompts (input), of these from a cache (cached), and of answers',
        'type',
        ({ tokens }) => Object.entries(tokens),
      ),
      gauge('tutti_requests_queued', 'requests in the queue', ({ status }) => status.queued),
      gauge('tutti_queue_limit', 'requests that may wait in the queue', (one) => one.queueLimit),
      gauge('tutti_requests_running', 'requests in an engine', ({ status }) => status.running),
      gauge('tutti_slots', 'requests that the engines handle at a time', ({ slots }) => slots),
      gauge('tutti_workers', 'engines that accept requests', ({ status }) => status.workers),
      gauge(
        'tutti_engine_breaches',
        'calls of engines that break their contract',
        ({ breaches }) => breaches,
      ),
      gauge('tutti_model_loaded', 'whether the model is loaded', (one) => Number(one.isLoaded)),
      ...toKeyMetrics(keys),
      ...mergePoints(sessions.flatMap((session) => session.metrics)),
    ]
    const others = sessions.flatMap((session) => session.distributions)
    return toPrometheusText({ metrics, distributions: [...this.#distributions.list(), ...others] })
  }

  #totalsOf(model: string): RequestTotals {
    let totals = this.#totals.get(model)
    if (totals === undefined) this.#totals.set(model, (totals = new RequestTotals()))
    return totals
  }
}

/** Joins metrics with the same name, because the text format has each name once. */
function mergePoints(metrics: readonly PlainMetric[]): readonly PlainMetric[] {
  const byName = new Map<string, PlainMetric>()
  for (const metric of metrics) {
    const points = [...(byName.get(metric.name)?.points ?? []), ...metric.points]
    byName.set(metric.name, { ...metric, points })
  }
  return [...byName.values()]
}

/** The label `key` is the name of a key, and empty for a key without a name. */
function toKeyMetrics(keys: readonly ClientKey[]): readonly PlainMetric[] {
  if (keys.length === 0) return []
  const metric = (
    name: string,
    kind: PlainMetric['kind'],
    description: string,
    toPoints: (key: ClientKey) => readonly (readonly [Record<string, string>, number])[],
  ): PlainMetric => ({
    name,
    kind,
    unit: '1',
    description,
    points: keys.flatMap((key) =>
      toPoints(key).map(([labels, value]) => ({
        labels: { key: key.name ?? '', ...labels },
        value,
      })),
    ),
  })
  return [
    metric('tutti_key_requests', 'counter', 'requests by key and status of the response', (key) =>
      [...key.responses].map(([status, count]) => [{ status: String(status) }, count]),
    ),
    metric('tutti_key_tokens', 'counter', 'tokens of prompts and answers by key', (key) => [
      [{ type: 'input' }, key.promptTokens],
      [{ type: 'output' }, key.completionTokens],
    ]),
    metric('tutti_key_limit', 'gauge', 'requests and tokens that a key may use a minute', (key) =>
      key.states().map(({ unit, limit }) => [{ unit }, limit]),
    ),
    metric('tutti_key_remaining', 'gauge', 'what is left of the limits of a key', (key) =>
      key.states().map(({ unit, remaining }) => [{ unit }, Math.max(0, remaining)]),
    ),
  ]
}
