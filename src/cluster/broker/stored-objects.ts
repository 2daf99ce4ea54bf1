/**
 * Data of a session that is too large for a message and is kept by the broker meanwhile. The
 * message that names it is signed, and the name has the digest: what the broker returns is checked
 * by it. While the broker cannot be reached, or does not take anything, everything waits.
 */

import { createHash } from 'node:crypto'
import { type Clock, sleep } from '../../foundation/clock.ts'
import { randomFraction } from '../../foundation/ids.ts'
import { BackendError, messageOf } from '../../foundation/errors.ts'
import { unlessAborted } from '../../foundation/promises.ts'
import { BackOff } from '../../runtime/back-off.ts'
import { type Broker, StoreFullError, type StoredObject } from './broker.ts'
import { StoreRefusals } from './store-refusals.ts'

export interface StoredObjectsOptions {
  /** As errors name it: a backend or an agent, with its name. */
  readonly owner: string
  readonly broker: Broker
  readonly clock: Clock
  readonly stream: string
  /** What the subjects of the objects begin with. */
  readonly objects: string
  /** How long an object is refused before it counts as larger than the store. */
  readonly patienceMs: () => number
  /** Creates the stream again, if the server has lost it. */
  readonly openStream: () => Promise<unknown>
  /** Has something removed that the stream need not have, if there is such a thing. */
  readonly makeRoom: () => unknown
  /** The broker answers, but does not store an object. Called once for each. */
  readonly onProblem: (error: Error) => void
}

/** What is stored. */
export interface ObjectToStore {
  /** Of its name. */
  readonly prefix: string
  /** As errors name it, such as "the value of task t1". */
  readonly title: string
  readonly data: Uint8Array
}

/** An object while it is stored. */
interface PendingObject {
  readonly subject: string
  readonly data: Uint8Array
  readonly refusals: StoreRefusals
  /** The latest try. */
  putting: Promise<void>
}

const never = new AbortController().signal
const firstDelayMs = 100
const maxDelayMs = 2000

export const digestOf = (data: Uint8Array): string =>
  createHash('sha256').update(data).digest('hex')

function tooSmall(text: string, cause: StoreFullError): BackendError {
  return new BackendError(text, {
    code: 'StoreTooSmallError',
    hint: 'Raise `max_file_store` of nats-server, or the limit of its account; or pass a file.',
    cause,
  })
}

/** Whether an object was refused for good. */
export const isTooSmall = (error: unknown): error is BackendError =>
  error instanceof BackendError && error.code === 'StoreTooSmallError'

export class StoredObjects {
  readonly #options: StoredObjectsOptions
  readonly #closed = new AbortController()
  #lastPut: Promise<void> = Promise.resolve()
  /** Objects that are not stored, of which the store may have pieces. */
  readonly #unfinished = new Set<string>()

  constructor(options: StoredObjectsOptions) {
    this.#options = options
  }

  /**
   * Resolves with its name, once the broker has it. Rejects when this is closed or `canceled`
   * before, and with `StoreTooSmallError` when the store would not take it even if it had nothing
   * else, as far as that can be known. One at a time, and the pieces of one that does not fit are
   * given back: halves of several large objects could fill a store, and none of them would ever be
   * complete.
   */
  async put(
    { prefix, title, data }: ObjectToStore,
    canceled: AbortSignal = never,
  ): Promise<string> {
    const { openStream, makeRoom, onProblem, owner, broker, clock, patienceMs } = this.#options
    const what = `${title} (${data.length} bytes)`
    const name = `${prefix}/${digestOf(data)}`
    const object: PendingObject = {
      subject: this.#subjectOf(name),
      data,
      refusals: new StoreRefusals(clock, data.length, patienceMs),
      putting: Promise.resolve(),
    }
    const putOnce = async (signal: AbortSignal): Promise<void> => {
      try {
        await this.#putAlone(object, signal)
      } catch (error) {
        if (!(error instanceof StoreFullError)) {
          object.refusals.forget()
          throw error
        }
        void makeRoom()
        const why = object.refusals.refused(error)
        if (why === null) throw error
        const text = `${owner} cannot store ${what}: the store of the broker at ${broker.url}`
        throw tooSmall(`${text} ${why}`, error)
      }
    }
    const repair = async (): Promise<void> => void (await openStream())
    const tell = (error: unknown): void => {
      const text = `${owner} cannot store ${what} at ${broker.url} now: ${messageOf(error)}`
      onProblem(new Error(text, { cause: error }))
    }
    try {
      await this.#untilDone(putOnce, repair, tell, canceled)
      return name
    } catch (error) {
      if (canceled.aborted && this.#unfinished.delete(object.subject)) {
        // Not before it has ended: pieces may be on their way.
        void object.putting.catch(() => {}).then(() => this.delete(name))
      }
      throw error
    }
  }

  async #putAlone(object: PendingObject, signal: AbortSignal): Promise<void> {
    const { subject, data, refusals } = object
    const { store } = this.#options.broker
    const { promise: done, resolve } = Promise.withResolvers<void>()
    const before = this.#lastPut
    this.#lastPut = done
    try {
      await unlessAborted(signal, before)
      if (this.#unfinished.has(subject)) {
        await unlessAborted(signal, store.deleteObject(this.#options.stream, subject))
        const held = store.usage().then(({ heldBytes }) => heldBytes)
        // Nothing is concluded from a refusal without it.
        refusals.before(
          await unlessAborted(
            signal,
            held.catch(() => Infinity),
          ),
        )
      }
      this.#unfinished.add(subject)
      object.putting = store.putObject(subject, data, signal)
      await unlessAborted(signal, object.putting)
      this.#unfinished.delete(subject)
    } finally {
      void before.then(resolve)
    }
  }

  /**
   * `null` when the broker does not have it, or has something else under its name. Rejects when
   * this is closed before.
   */
  async get(name: string): Promise<Uint8Array | null> {
    return (await this.#read(name))?.data ?? null
  }

  /** Like `get`; what was read is deleted. */
  async take(name: string): Promise<Uint8Array | null> {
    const found = await this.#read(name)
    if (found !== null) this.delete(name, found.pieces)
    return found?.data ?? null
  }

  /** Without an answer: what is left is removed with the session. */
  delete(name: string, pieces: readonly number[] = []): void {
    const { broker, stream } = this.#options
    const subject = this.#subjectOf(name)
    this.#untilDone(() => broker.store.deleteObject(stream, subject, pieces)).catch(() => {
      // Closed.
    })
  }

  async #read(name: string): Promise<StoredObject | null> {
    const { broker, stream } = this.#options
    const found = await this.#untilDone(() => broker.store.getObject(stream, this.#subjectOf(name)))
    return found !== null && name.endsWith(`/${digestOf(found.data)}`) ? found : null
  }

  get isClosed(): boolean {
    return this.#closed.signal.aborted
  }

  /** What is under way is given up. */
  close(): void {
    this.#closed.abort(new Error('the session has ended'))
  }

  async #untilDone<T>(
    request: (signal: AbortSignal) => Promise<T>,
    repair: () => Promise<void> = () => Promise.resolve(),
    onProblem: (error: unknown) => void = () => {},
    canceled = never,
  ): Promise<T> {
    const { clock, broker } = this.#options
    const signal = AbortSignal.any([this.#closed.signal, canceled])
    const backOff = new BackOff({ firstDelayMs, maxDelayMs })
    let isTold = false
    for (;;) {
      signal.throwIfAborted()
      try {
        return await this.#untilReconnected(request, signal)
      } catch (error) {
        signal.throwIfAborted()
        if (isTooSmall(error)) throw error
        // The first failure may be that of a connection which is just lost, or of a lost stream.
        if (broker.isConnected && backOff.failures > 0 && !isTold) {
          isTold = true
          onProblem(error)
        }
        // Those of several processes that do not fit together must not go on in step.
        const delayMs = backOff.fail(clock.monotonicMs(), error) * (0.5 + randomFraction())
        const pause = (stop: AbortSignal): Promise<void> => sleep(clock, delayMs, { signal: stop })
        await this.#untilReconnected(pause, signal).catch(() => {})
        await this.#untilReconnected(repair, signal).catch(() => {})
      }
    }
  }

  /** What was sent over a connection that was lost is not answered: it is not waited for. */
  async #untilReconnected<T>(
    wait: (signal: AbortSignal) => Promise<T>,
    ended: AbortSignal,
  ): Promise<T> {
    const reconnected = new AbortController()
    const signal = AbortSignal.any([ended, reconnected.signal])
    const stop = this.#options.broker.onConnection((isConnected) => {
      if (isConnected) reconnected.abort(new Error('the connection was lost'))
    })
    try {
      return await unlessAborted(signal, wait(signal))
    } finally {
      stop()
    }
  }

  #subjectOf(name: string): string {
    return `${this.#options.objects}.${digestOf(Buffer.from(name)).slice(0, 32)}`
  }
}
