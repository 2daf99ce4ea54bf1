/**
 * The server's acknowledgements of messages that a stream has. One subscription serves all of them:
 * a request of the client makes several errors in advance, which costs more than the message.
 */

import type { Msg, NatsConnection } from '@nats-io/transport-node'
import { systemClock } from '../../foundation/clock.ts'
import { TimeoutError } from '../../foundation/errors.ts'

interface PendingAppend {
  readonly resolve: () => void
  readonly reject: (error: Error) => void
}

export class AppendAcks {
  readonly #connection: NatsConnection
  /** Acknowledgements are sent to this subject, followed by the number of the message. */
  readonly #prefix: string
  readonly #pending = new Map<string, PendingAppend>()
  #count = 0

  /** `inbox` is a subject of this client alone. */
  constructor(connection: NatsConnection, inbox: string) {
    this.#connection = connection
    this.#prefix = `${inbox}.`
    connection.subscribe(`${inbox}.*`, {
      callback: (error, message) => {
        if (error === null) this.#take(message)
      },
    })
    void connection.closed().then(() => this.#rejectAll(new Error('the connection is closed')))
  }

  append(subject: string, data: Uint8Array, timeoutMs: number): Promise<void> {
    const reply = `${this.#prefix}${++this.#count}`
    return new Promise((resolve, reject) => {
      const cancelTimer = systemClock.after(timeoutMs, () => {
        this.#pending.delete(reply)
        reject(new TimeoutError(`no stream has acknowledged a message to ${subject} in time`))
      })
      const settled = (): void => {
        cancelTimer()
        this.#pending.delete(reply)
      }
      this.#pending.set(reply, {
        resolve: () => {
          settled()
          resolve()
        },
        reject: (error) => {
          settled()
          reject(error)
        },
      })
      try {
        this.#connection.publish(subject, data, { reply })
      } catch (error) {
        settled()
        reject(error)
      }
    })
  }

  #take(message: Msg): void {
    const pending = this.#pending.get(message.subject)
    if (pending === undefined) return
    try {
      expectStored(message)
      pending.resolve()
    } catch (error) {
      pending.reject(error as Error)
    }
  }

  #rejectAll(error: Error): void {
    for (const { reject } of this.#pending.values()) reject(error)
  }
}

/** Throws with what the server said when no stream has the message. */
function expectStored(message: Msg): void {
  if (message.data.length === 0) throw new Error('no stream takes the message')
  const { stream, error } = message.json<{
    readonly stream?: string
    readonly error?: { readonly description?: string; readonly code?: number }
  }>()
  if (error !== undefined) throw new Error(error.description ?? `the server's error ${error.code}`)
  if (stream === undefined || stream === '') throw new Error('the answer names no stream')
}
