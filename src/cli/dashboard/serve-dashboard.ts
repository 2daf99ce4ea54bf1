/**
 * The option `--dashboard` of `tutti serve`: shows the requests of the server, which has no
 * session.
 */

import { openDashboard } from '../../dashboard/dashboard.ts'
import type { LiveFeed } from '../../dashboard/sources/live-source.ts'
import { makeEvent, type Notice, type TelemetryEvent } from '../../index.ts'
import type { InferenceBackend } from '../../inference/index.ts'
import type { ViewSpan } from '../../views/panel.ts'
import type { Output } from '../output.ts'

/** Opens a dashboard that counts requests from now on. Prints its link to stderr. */
export async function openServeDashboard(
  backend: InferenceBackend,
  output: Output,
): Promise<AsyncDisposable> {
  const dashboard = await openDashboard(new ServerFeed(backend), {})
  output.problem(`dashboard  ${dashboard.url}`)
  return dashboard
}

/**
 * A connection to the backend that submits nothing. Unlike the telemetry of a session, it keeps no
 * spans of requests, so that a server can run for months.
 */
class ServerFeed implements LiveFeed {
  readonly sessionId: string
  readonly checkpointFile = null
  readonly beginReason = null
  readonly #backend: InferenceBackend
  readonly #listeners = new Set<(event: TelemetryEvent) => unknown>()
  readonly #spanListeners = new Set<(span: ViewSpan) => void>()

  constructor(backend: InferenceBackend) {
    this.#backend = backend
    this.sessionId = backend.name
    backend.connect({ report() {}, notice: (notice) => this.#take(notice) })
  }

  subscribe(callback: (event: TelemetryEvent) => unknown): () => void {
    this.#listeners.add(callback)
    return () => void this.#listeners.delete(callback)
  }

  subscribeSpans(callback: (span: ViewSpan) => void): () => void {
    this.#spanListeners.add(callback)
    return () => void this.#spanListeners.delete(callback)
  }

  serving() {
    const { model, workers, load } = this.#backend
    return { model, workers, ...load }
  }

  #take(notice: Notice): void {
    if (notice.kind === 'span') {
      const { startTime: start_time, endTime: end_time, attributes, error } = notice.span
      const status_code = error === null ? 'OK' : 'ERROR'
      for (const call of this.#spanListeners)
        call({ start_time, end_time, attributes, status_code })
    }
    if (notice.kind !== 'event') return
    const { type, fields, attributes = {}, taskId: task_id, nodeId: node_id } = notice
    const { name: backend } = this.#backend
    const common = { session_id: this.sessionId, backend, task_id, node_id, attributes }
    const event = makeEvent(type, { ...fields, ...common })
    for (const call of this.#listeners) call(event as unknown as TelemetryEvent)
  }
}
