/** The views of a record, or the list of the runs in a folder, from a thread that reads them. */

import type { Worker } from 'node:worker_threads'
import { type Clock, systemClock } from '../../foundation/clock.ts'
import { StateError } from '../../foundation/errors.ts'
import { once } from '../../foundation/service.ts'
import type { RecordWriterStates } from '../../record/record-views.ts'
import { startSiblingThread } from '../../runtime/supervised-child.ts'
import type { FoldThreadData, FoldRequest, FromFold, ToFold } from '../fold/fold-messages.ts'
import type { ViewQuery } from '../protocol.ts'
import { smallHeap } from '../queries/sentences/thread-limits.ts'
import type { ReadFacts } from './telemetry-facts.ts'
import type { ViewSource } from './view-source.ts'

interface Waiting {
  readonly resolve: (text: string | null) => void
  readonly reject: (error: Error) => void
}

interface RecordSourceOptions {
  readonly writers: RecordWriterStates
  readonly readFacts?: ReadFacts
  /** Whether the source has a report. Default `true`. */
  readonly hasReport?: boolean
  readonly clock?: Clock
}

export class RecordSource implements ViewSource {
  readonly hasReport: boolean
  readonly #path: string
  readonly #writers: RecordWriterStates
  readonly #readFacts: ReadFacts
  readonly #clock: Clock
  readonly #waiting = new Map<number, Waiting>()
  /** Started by the first request, and again after the thread has failed. */
  #thread: Worker | null = null
  #lastId = 0
  #isReportOpen = false
  #lastRequestMs: number

  constructor(path: string, options: RecordSourceOptions) {
    const { writers, readFacts = () => null, hasReport = true, clock = systemClock } = options
    this.#clock = clock
    this.#lastRequestMs = clock.monotonicMs()
    this.hasReport = hasReport
    this.#path = path
    this.#readFacts = readFacts
    this.#writers = writers
  }

  /** The time of the last request. A viewer that waits for changes sends several a second. */
  get lastUsedMs(): number {
    const isBusy = this.#isReportOpen || this.#waiting.size > 0
    return isBusy ? this.#clock.monotonicMs() : this.#lastRequestMs
  }

  async refresh(): Promise<string> {
    return (await this.#request({ kind: 'refresh' })) ?? ''
  }

  async answer(query: ViewQuery, signal: AbortSignal): Promise<string> {
    const telemetry = this.#readFacts(query.kind)
    return (await this.#request({ kind: 'answer', query, telemetry }, signal)) ?? 'null'
  }

  async *report(): AsyncGenerator<string, void> {
    if (this.#isReportOpen) throw new StateError('another viewer is saving the report; try again')
    this.#isReportOpen = true
    try {
      let piece = await this.#request({ kind: 'report', isFirst: true })
      while (piece !== null) {
        yield piece
        piece = await this.#request({ kind: 'report', isFirst: false })
      }
    } finally {
      this.#isReportOpen = false
    }
  }

  readonly close = once(async (): Promise<void> => {
    await this.#thread?.terminate()
  })

  #request(request: FoldRequest, signal?: AbortSignal): Promise<string | null> {
    if (this.close.isCalled) return Promise.reject(new StateError('the dashboard is closed'))
    const thread = (this.#thread ??= this.#startThread())
    this.#lastRequestMs = this.#clock.monotonicMs()
    const id = ++this.#lastId
    const { promise, resolve, reject } = Promise.withResolvers<string | null>()
    this.#waiting.set(id, { resolve, reject })
    thread.postMessage({ kind: 'request', id, request } satisfies ToFold)
    if (signal === undefined) return promise
    const cancel = (): void => thread.postMessage({ kind: 'cancel', id } satisfies ToFold)
    signal.addEventListener('abort', cancel, { once: true })
    return promise.finally(() => signal.removeEventListener('abort', cancel))
  }

  #startThread(): Worker {
    const workerData: FoldThreadData = { path: this.#path }
    const options = { name: 'tutti dashboard', workerData, ...smallHeap }
    const thread = startSiblingThread(import.meta.url, '../fold/fold-program', options)
    thread.on('message', (message: FromFold) => this.#receive(thread, message))
    // Comes after `on('message')`, because that call makes the thread keep the process alive.
    thread.unref()
    let reason = 'the thread that reads the record has ended'
    thread.on('error', (error) => (reason = `reading the record failed: ${error.message}`))
    thread.on('exit', () => {
      this.#thread = null
      for (const { reject } of this.#waiting.values()) reject(new StateError(reason))
      this.#waiting.clear()
    })
    return thread
  }

  #receive(thread: Worker, message: FromFold): void {
    if (message.kind === 'isWriting') {
      const { id, folder, sessionId } = message
      const reply = (isWriting: boolean): void =>
        thread.postMessage({ kind: 'writing', id, isWriting } satisfies ToFold)
      this.#writers.isWriting(folder, sessionId).then(reply, () => reply(true))
      return
    }
    const waiting = this.#waiting.get(message.id)
    this.#waiting.delete(message.id)
    if (message.kind === 'reply') waiting?.resolve(message.text)
    else waiting?.reject(new StateError(message.message))
  }
}
