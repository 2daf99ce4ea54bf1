/**
 * Data that is too large for a message, in the broker's store. Signed messages contain the object's
 * name, and the name contains a digest of the data. While the broker fails, all calls retry.
 */

import { createHash } from 'node:crypto'
import { type Clock, sleep } from '../../foundation/clock.ts'
import { randomFraction } from '../../foundation/ids.ts'
import { BackendError, messageOf } from '../../foundation/errors.ts'
import { unlessAborted } from '../../foundation/promises.ts'
import { backOffDelay } from '../../runtime/retry.ts'
import { type Broker, type StoredObject, StoreFullError } from './broker.ts'

export interface StoredObjectsOptions {
  /** The owner of the objects, for error messages: a backend or an agent, with its name. */
  readonly owner: string
  readonly broker: Broker
  readonly clock: Clock
  readonly stream: string
  readonly objects: string
  /** How long the broker may refuse an object before the object counts as larger than the store. */
  readonly refusalTimeoutMs: () => number
  readonly openStream: () => Promise<unknown>
  readonly makeRoom: () => unknown
  /** Called at most once per object, if the broker is reachable but does not store the object. */
  readonly onProblem: (error: Error) => void
}

export interface ObjectToStore {
  readonly prefix: string
  /** Describes the object in error messages, such as "the value of task t1". */
  readonly title: string
  readonly data: Uint8Array
}

interface PendingObject {
  readonly subject: string
  readonly data: Uint8Array
  readonly refusals: StoreRefusals
  putting: Promise<void>
}

const neverAborted = new AbortController().signal
const firstDelayMs = 100
const maxDelayMs = 2000

export const sha256 = (data: Uint8Array): string => createHash('sha256').update(data).digest('hex')

function createTooSmallError(text: string, cause: StoreFullError): BackendError {
  return new BackendError(text, {
    code: 'StoreTooSmallError',
    hint: 'Raise `max_file_store` of nats-server, or the limit of its account; or pass a file.',
    cause,
  })
}

export const isStoreTooSmall = (error: unknown): error is BackendError =>
  error instanceof BackendError && error.code === 'StoreTooSmallError'

export class StoredObjects {
  readonly #options: StoredObjectsOptions
  readonly #closed = new AbortController()
  #lastPut: Promise<void> = Promise.resolve()
  /** The subjects of incomplete objects. The store may have some of their chunks. */
  readonly #unfinished = new Set<string>()

  constructor(options: StoredObjectsOptions) {
    this.#options = options
  }

  /**
   * Stores an object, and resolves with its name when it is stored. Rejects if this store is closed
   * or the call is `canceled` first, and with `StoreTooSmallError` if the object seems too large
   * even for an otherwise empty store. Stores one object at a time, and removes the chunks of an
   * object that does not fit, because incomplete objects could fill the store.
   */
  async put(
    { prefix, title, data }: ObjectToStore,
    canceled: AbortSignal = neverAborted,
  ): Promise<string> {
    const { openStream, makeRoom, onProblem, owner, broker, clock, refusalTimeoutMs } =
      this.#options
    const what = `${title} (${data.length} bytes)`
    const name = `${prefix}/${sha256(data)}`
    const object: PendingObject = {
      subject: this.#toSubject(name),
      data,
      refusals: new StoreRefusals(clock, data.length, refusalTimeoutMs),
      putting: Promise.resolve(),
    }
    const putOnce = async (signal: AbortSignal): Promise<void> => {
      try {
        await this.#putExclusively(object, signal)
      } catch (error) {
        if (!(error instanceof StoreFullError)) {
          object.refusals.reset()
          throw error
        }
        makeRoom()
        const why = object.refusals.addRefusal(error)
        if (why === null) throw error
        const text = `${owner} cannot store ${what}: the store of the broker at ${broker.url}`
        throw createTooSmallError(`${text} ${why}`, error)
      }
    }
    const repair = async (): Promise<void> => {
      await openStream()
    }
    const report = (error: unknown): void => {
      const text = `${owner} cannot store ${what} at ${broker.url} now: ${messageOf(error)}`
      onProblem(new Error(text, { cause: error }))
    }
    try {
      await this.#retryUntilDone(putOnce, repair, report, canceled)
      return name
    } catch (error) {
      if (canceled.aborted && this.#unfinished.delete(object.subject)) {
        // Waits for the latest attempt, because its chunks may still be in transit.
        const removeAll = (): void => this.delete(name)
        object.putting.then(removeAll, removeAll)
      }
      throw error
    }
  }

  async #putExclusively(object: PendingObject, signal: AbortSignal): Promise<void> {
    const { subject, data, refusals } = object
    const { store } = this.#options.broker
    const { promise: done, resolve } = Promise.withResolvers<void>()
    const previousPut = this.#lastPut
    this.#lastPut = done
    try {
      await unlessAborted(signal, previousPut)
      if (this.#unfinished.has(subject)) {
        await unlessAborted(signal, store.deleteObject(this.#options.stream, subject))
        const usage = store.usage().then(({ heldBytes }) => heldBytes)
        // An unknown usage counts as infinite. A refusal then does not show that the object is too
        // large.
        refusals.setHeldBefore(
          await unlessAborted(
            signal,
            usage.catch(() => Infinity),
          ),
        )
      }
      this.#unfinished.add(subject)
      object.putting = store.putObject(subject, data, signal)
      await unlessAborted(signal, object.putting)
      this.#unfinished.delete(subject)
    } finally {
      previousPut.then(resolve, resolve)
    }
  }

  /** Resolves with `null` if the broker has no object of this name, or has other data under it. */
  async get(name: string): Promise<Uint8Array | null> {
    return (await this.#read(name))?.data ?? null
  }

  async readAndDelete(name: string): Promise<Uint8Array | null> {
    const found = await this.#read(name)
    if (found !== null) this.delete(name, found.chunks)
    return found?.data ?? null
  }

  /** Ignores failures, because all objects are removed with the session. */
  delete(name: string, chunks: readonly number[] = []): void {
    const { broker, stream } = this.#options
    const subject = this.#toSubject(name)
    this.#retryUntilDone(() => broker.store.deleteObject(stream, subject, chunks)).catch(() => {
      // Rejects only after `close`.
    })
  }

  async #read(name: string): Promise<StoredObject | null> {
    const { broker, stream } = this.#options
    const found = await this.#retryUntilDone(() =>
      broker.store.getObject(stream, this.#toSubject(name)),
    )
    return found !== null && name.endsWith(`/${sha256(found.data)}`) ? found : null
  }

  get closed(): AbortSignal {
    return this.#closed.signal
  }

  close(): void {
    this.#closed.abort(new Error('the session has ended'))
  }

  async #retryUntilDone<T>(
    request: (signal: AbortSignal) => Promise<T>,
    repair: () => Promise<void> = () => Promise.resolve(),
    onProblem: (error: unknown) => void = () => {},
    canceled = neverAborted,
  ): Promise<T> {
    const { clock, broker } = this.#options
    const signal = AbortSignal.any([this.#closed.signal, canceled])
    const limits = { first: firstDelayMs, max: maxDelayMs }
    let failures = 0
    let isReported = false
    for (;;) {
      signal.throwIfAborted()
      try {
        return await this.#abortOnReconnect(request, signal)
      } catch (error) {
        signal.throwIfAborted()
        if (isStoreTooSmall(error)) throw error
        // The first failure is not reported: the connection or the stream may just have been lost.
        if (broker.isConnected && failures > 0 && !isReported) {
          isReported = true
          onProblem(error)
        }
        // The delay is random, so that processes whose objects do not fit do not retry in lockstep.
        const delayMs = backOffDelay(++failures, limits) * (0.5 + randomFraction())
        const pause = (stop: AbortSignal): Promise<void> => sleep(clock, delayMs, { signal: stop })
        await this.#abortOnReconnect(pause, signal).catch(() => {})
        await this.#abortOnReconnect(repair, signal).catch(() => {})
      }
    }
  }

  /** Aborts `wait` after a reconnect: requests over the lost connection are never answered. */
  async #abortOnReconnect<T>(
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

  #toSubject(name: string): string {
    return `${this.#options.objects}.${sha256(Buffer.from(name)).slice(0, 32)}`
  }
}

/**
 * The number of refusals after which an object counts as too large. The usage by others fluctuates,
 * so one refusal proves nothing.
 */
const minRefusals = 5

/**
 * Decides whether an object is too large for the store: either it exceeds the account's limit, or
 * the store was repeatedly full for some time although it held fewer bytes than the object needs.
 */
class StoreRefusals {
  readonly #clock: Clock
  readonly #bytes: number
  readonly #timeoutMs: () => number
  #count = 0
  #fromMs = 0
  #heldBefore = 0

  constructor(clock: Clock, bytes: number, timeoutMs: () => number) {
    this.#clock = clock
    this.#bytes = bytes
    this.#timeoutMs = timeoutMs
  }

  setHeldBefore(heldBytes: number): void {
    this.#heldBefore = heldBytes
  }

  /**
   * Called after any failure other than a full store, because the server may have been replaced.
   */
  reset(): void {
    this.#count = 0
  }

  /** Returns the reason why the object will never fit, or `null` if it may fit. */
  addRefusal({ heldBytes, storedBytes, neededBytes, limitBytes }: StoreFullError): string | null {
    if (limitBytes !== null && this.#bytes > limitBytes) return `is limited to ${limitBytes} bytes`
    const nowMs = this.#clock.monotonicMs()
    const maxBytes = Math.max(heldBytes, this.#heldBefore + storedBytes)
    if (neededBytes <= maxBytes) this.#count = 0
    else if (this.#count++ === 0) this.#fromMs = nowMs
    const durationMs = nowMs - this.#fromMs
    if (this.#count < minRefusals || !(durationMs >= this.#timeoutMs())) return null
    const seconds = Math.floor(durationMs / 1000)
    return `has had room for at most ${maxBytes} bytes for the last ${seconds} s`
  }
}
