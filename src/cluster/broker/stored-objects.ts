/**
 * Data of a session that is too large for a message and is stored by the broker. Messages that
 * refer to an object are signed, and its name contains a digest, which verifies the stored data.
 * While the broker is unreachable or accepts nothing, all calls wait.
 */

import { createHash } from 'node:crypto'
import { type Clock, sleep } from '../../foundation/clock.ts'
import { randomFraction } from '../../foundation/ids.ts'
import { BackendError, messageOf } from '../../foundation/errors.ts'
import { unlessAborted } from '../../foundation/promises.ts'
import { backOffDelay } from '../../runtime/retry.ts'
import { type Broker, type StoredObject, StoreFullError } from './broker.ts'

export interface StoredObjectsOptions {
  /** The owner for error messages: a backend or an agent, with its name. */
  readonly owner: string
  readonly broker: Broker
  readonly clock: Clock
  readonly stream: string
  /** The prefix of the objects' subjects. */
  readonly objects: string
  /** How long an object may be refused before it counts as larger than the store. */
  readonly patienceMs: () => number
  /** Recreates the stream, if the server has lost it. */
  readonly openStream: () => Promise<unknown>
  /** Starts to remove data that the stream does not need, if there is any. */
  readonly makeRoom: () => unknown
  /** Called once per object if the broker responds, but does not store it. */
  readonly onProblem: (error: Error) => void
}

/** Data to be stored, with its names. */
export interface ObjectToStore {
  /** The prefix of the object's name. */
  readonly prefix: string
  /** Describes the object in error messages, such as "the value of task t1". */
  readonly title: string
  readonly data: Uint8Array
}

/** The state of an object while it is being stored. */
interface PendingObject {
  readonly subject: string
  readonly data: Uint8Array
  readonly refusals: StoreRefusals
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

/** Whether an object was refused permanently. */
export const isTooSmall = (error: unknown): error is BackendError =>
  error instanceof BackendError && error.code === 'StoreTooSmallError'

export class StoredObjects {
  readonly #options: StoredObjectsOptions
  readonly #closed = new AbortController()
  #lastPut: Promise<void> = Promise.resolve()
  /** Subjects of incomplete objects, of which the store may have pieces. */
  readonly #unfinished = new Set<string>()

  constructor(options: StoredObjectsOptions) {
    this.#options = options
  }

  /**
   * Resolves with the object's name once the broker has it. Rejects if this store is closed or the
   * call is `canceled` before, and with `StoreTooSmallError` if even an otherwise empty store would
   * not take the object, as far as known. Objects are stored one at a time, and the pieces of an
   * object that does not fit are removed, because parts of several large objects could fill the
   * store without any becoming complete.
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
        makeRoom()
        const why = object.refusals.refused(error)
        if (why === null) throw error
        const text = `${owner} cannot store ${what}: the store of the broker at ${broker.url}`
        throw tooSmall(`${text} ${why}`, error)
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
      await this.#untilDone(putOnce, repair, report, canceled)
      return name
    } catch (error) {
      if (canceled.aborted && this.#unfinished.delete(object.subject)) {
        // Waits for the latest attempt, because its pieces may still be in transit.
        const removeAll = (): void => this.delete(name)
        object.putting.then(removeAll, removeAll)
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
        // With `Infinity`, no refusal counts as proof that the object is too large.
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
      before.then(resolve, resolve)
    }
  }

  /**
   * `null` if the broker does not have the object, or has other data under its name. Rejects if
   * `close` is called meanwhile.
   */
  async get(name: string): Promise<Uint8Array | null> {
    return (await this.#read(name))?.data ?? null
  }

  /** Like `get`, but deletes the object after reading. */
  async take(name: string): Promise<Uint8Array | null> {
    const found = await this.#read(name)
    if (found !== null) this.delete(name, found.pieces)
    return found?.data ?? null
  }

  /** Ignores failures: remaining objects are removed with the session. */
  delete(name: string, pieces: readonly number[] = []): void {
    const { broker, stream } = this.#options
    const subject = this.#subjectOf(name)
    this.#untilDone(() => broker.store.deleteObject(stream, subject, pieces)).catch(() => {
      // Only `close` causes a rejection.
    })
  }

  async #read(name: string): Promise<StoredObject | null> {
    const { broker, stream } = this.#options
    const found = await this.#untilDone(() => broker.store.getObject(stream, this.#subjectOf(name)))
    return found !== null && name.endsWith(`/${digestOf(found.data)}`) ? found : null
  }

  /** The signal that `close` aborts. */
  get closed(): AbortSignal {
    return this.#closed.signal
  }

  /** Aborts all pending calls. */
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
    const limits = { first: firstDelayMs, max: maxDelayMs }
    let failures = 0
    let isReported = false
    for (;;) {
      signal.throwIfAborted()
      try {
        return await this.#untilReconnected(request, signal)
      } catch (error) {
        signal.throwIfAborted()
        if (isTooSmall(error)) throw error
        // The first failure may be due to a connection or a stream that was just lost.
        if (broker.isConnected && failures > 0 && !isReported) {
          isReported = true
          onProblem(error)
        }
        // A random delay, so that processes whose objects do not fit do not retry in lockstep.
        const delayMs = backOffDelay(++failures, limits) * (0.5 + randomFraction())
        const pause = (stop: AbortSignal): Promise<void> => sleep(clock, delayMs, { signal: stop })
        await this.#untilReconnected(pause, signal).catch(() => {})
        await this.#untilReconnected(repair, signal).catch(() => {})
      }
    }
  }

  /** Aborts `wait` at a reconnect: requests over the lost connection are never answered. */
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

/** The minimum number of consecutive refusals, because the usage by others fluctuates. */
const minRefusals = 5

/**
 * The attempts to store one object. A server does not report its own limit. A refusal only includes
 * how much the account stored, and even that may have changed by the time the answer arrives. An
 * object counts as too large if it exceeds the account's limit, or if every attempt over a period
 * of time needed more than the account stored in total, so that removing everything else would not
 * have been enough.
 */
class StoreRefusals {
  readonly #clock: Clock
  readonly #bytes: number
  readonly #patienceMs: () => number
  #count = 0
  #fromMs = 0
  #heldBefore = 0

  constructor(clock: Clock, bytes: number, patienceMs: () => number) {
    this.#clock = clock
    this.#bytes = bytes
    this.#patienceMs = patienceMs
  }

  /** Sets how much other data the account stores, before the next attempt. */
  before(heldBytes: number): void {
    this.#heldBefore = heldBytes
  }

  /** Resets the count after another kind of failure, because the server may have been replaced. */
  forget(): void {
    this.#count = 0
  }

  /** Counts a refusal. Returns why the object will not fit, or `null` while it may. */
  refused({ heldBytes, storedBytes, neededBytes, limitBytes }: StoreFullError): string | null {
    if (limitBytes !== null && this.#bytes > limitBytes) return `is limited to ${limitBytes} bytes`
    const nowMs = this.#clock.monotonicMs()
    const maxBytes = Math.max(heldBytes, this.#heldBefore + storedBytes)
    if (neededBytes <= maxBytes) this.#count = 0
    else if (this.#count++ === 0) this.#fromMs = nowMs
    const forMs = nowMs - this.#fromMs
    if (this.#count < minRefusals || !(forMs >= this.#patienceMs())) return null
    const seconds = Math.floor(forMs / 1000)
    return `has had room for at most ${maxBytes} bytes for the last ${seconds} s`
  }
}
