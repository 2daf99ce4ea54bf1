/**
 * Appends messages to streams. All acknowledgements share one subscription, because a request by
 * the NATS client costs more than the message itself.
 */

import type { Msg, NatsConnection } from '@nats-io/transport-node'
import { systemClock } from '../../foundation/clock.ts'
import { TimeoutError } from '../../foundation/errors.ts'
import { NoRoomError } from './broker.ts'

/** Server error codes which mean that the store of the account or of the server is full. */
export const fullStoreCodes: ReadonlySet<number> = new Set([10_002, 10_023])

interface PendingAppend {
  readonly subject: string
  readonly untilMs: number
  readonly resolve: () => void
  readonly reject: (error: Error) => void
}

export class AppendAcks {
  readonly #connection: NatsConnection
  readonly #prefix: string
  readonly #pending = new Map<string, PendingAppend>()
  #count = 0
  /**
   * When overdue messages are checked next. All messages share one timer, because one timer per
   * message would double the cost.
   */
  #checkAtMs = Infinity
  #cancelCheck: () => void = () => {}

  /** `inbox` must be a subject that only this client uses. */
  constructor(connection: NatsConnection, inbox: string) {
    this.#connection = connection
    this.#prefix = `${inbox}.`
    connection.subscribe(`${inbox}.*`, {
      callback: (error, message) => {
        if (error === null) this.#handleAck(message)
      },
    })
    const close = (): void => this.#close()
    connection.closed().then(close, close)
  }

  append(subject: string, data: Uint8Array, timeoutMs: number): Promise<void> {
    const reply = `${this.#prefix}${++this.#count}`
    return new Promise((resolve, reject) => {
      this.#connection.publish(subject, data, { reply })
      const untilMs = systemClock.monotonicMs() + timeoutMs
      this.#pending.set(reply, { subject, untilMs, resolve, reject })
      if (untilMs < this.#checkAtMs) this.#scheduleCheck(untilMs, timeoutMs)
    })
  }

  #scheduleCheck(atMs: number, afterMs: number): void {
    this.#cancelCheck()
    this.#checkAtMs = atMs
    // The timer need not keep the process alive: the connection does.
    this.#cancelCheck = systemClock.after(afterMs, () => this.#rejectLate(), { background: true })
  }

  #rejectLate(): void {
    const nowMs = systemClock.monotonicMs()
    let nextMs = Infinity
    for (const [reply, { subject, untilMs, reject }] of this.#pending) {
      if (untilMs > nowMs) nextMs = Math.min(nextMs, untilMs)
      else {
        this.#pending.delete(reply)
        reject(new TimeoutError(`no stream has acknowledged a message to ${subject} in time`))
      }
    }
    this.#checkAtMs = Infinity
    if (nextMs < Infinity) this.#scheduleCheck(nextMs, nextMs - nowMs)
  }

  #handleAck(message: Msg): void {
    const { subject } = message
    const pending = this.#pending.get(subject)
    if (pending === undefined) return
    this.#pending.delete(subject)
    try {
      expectStored(message)
    } catch (error) {
      return pending.reject(error as Error)
    }
    pending.resolve()
  }

  #close(): void {
    this.#cancelCheck()
    const error = new Error('the connection is closed')
    for (const { reject } of this.#pending.values()) reject(error)
    this.#pending.clear()
  }
}

function expectStored(message: Msg): void {
  if (message.data.length === 0) throw new Error('no stream takes the message')
  const { stream, error } = message.json<{
    readonly stream?: string
    readonly error?: {
      readonly description?: string
      readonly code?: number
      readonly err_code?: number
    }
  }>()
  if (error !== undefined) {
    const text = error.description ?? `the server's error ${error.code}`
    throw fullStoreCodes.has(error.err_code ?? 0) ? new NoRoomError(text) : new Error(text)
  }
  if (stream === undefined || stream === '') throw new Error('the answer names no stream')
}
