/** The metrics of an inference backend, for `/metrics`. */

import { Distributions, type Measurement } from '../../events/measurement.ts'
import type { PlainMetric } from '../../telemetry/otel/otel-prometheus.ts'
import type { BatchReport } from '../generation/batch-run.ts'
import type { Clock } from '../../foundation/clock.ts'
import type { GeneratorStatus } from '../generation/text-generator.ts'

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

export class ServerMetrics {
  readonly #clock: Clock
  readonly #model: string
  readonly #measured = new Distributions()
  /** Ended requests by finish reason or error code. */
  readonly #ended = new Map<string, number>()

  constructor(clock: Clock, model: string) {
    this.#clock = clock
    this.#model = model
  }

  requestEnded(code: string, measurements: readonly Measurement[]): void {
    this.#ended.set(code, (this.#ended.get(code) ?? 0) + 1)
    for (const one of measurements) this.#measured.record(one)
  }

  batchEnded({ size, waitMs }: BatchReport): void {
    this.#measured.record({ instrument: batchSize, value: size, labels: noLabels })
    this.#measured.record({ instrument: batchWait, value: waitMs / 1000, labels: noLabels })
  }

  /** Prometheus text. Loads OpenTelemetry with the first scrape. */
  async toText({ queued, running, workers }: GeneratorStatus, breaches: number): Promise<string> {
    const { toPrometheusText } = await import('../../telemetry/otel/otel-prometheus.ts')
    const labels = { model: this.#model }
    const gauge = (name: string, description: string, value: number): PlainMetric => ({
      name,
      kind: 'gauge',
      unit: '1',
      description,
      points: [{ labels, value }],
    })
    const requests: PlainMetric = {
      name: 'tutti_requests',
      kind: 'counter',
      unit: '1',
      description: 'requests that have ended, by finish reason or error code',
      points: [...this.#ended].map(([result, value]) => ({ labels: { ...labels, result }, value })),
    }
    const metrics = [
      requests,
      gauge('tutti_requests_queued', 'requests in the queue', queued),
      gauge('tutti_requests_running', 'requests in an engine', running),
      gauge('tutti_workers', 'engines that accept requests', workers),
      gauge('tutti_engine_breaches', 'calls of engines that break their contract', breaches),
    ]
    return toPrometheusText(metrics, this.#measured, this.#clock.now())
  }
}
