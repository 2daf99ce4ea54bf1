/** Memoization: equal calls share one run, whose result is stored. */

import { messageOf, StateError } from '../../foundation/errors.ts'
import type { Log } from '../../foundation/log.ts'
import type { Outcome } from '../../tasks/task-record.ts'
import { type Found, MemoStore } from './memo-store.ts'

/** Callbacks that decide how a call continues. */
export interface MemoAnswer<N> {
  /** Whether the call has not ended. */
  isOpen(call: N): boolean
  /** No result is stored: the call runs. */
  run(call: N): void
  /** The call ends with this value and does not run. */
  reuse(call: N, value: unknown, key: string, source: 'stored' | 'shared'): void
  /** The call fails, because the equal call that it waited for has failed. */
  fail(call: N, error: unknown): void
}

/** Equal calls. The leader reads the store and runs; the followers wait for its result. */
interface Shared<N> {
  readonly key: string
  leader: N
  followers: N[]
  /** Whether the store has not answered yet. */
  isReading: boolean
}

export class Memo<N> {
  readonly #answer: MemoAnswer<N>
  readonly #log: Log
  readonly #byKey = new Map<string, Shared<N>>()
  readonly #byLeader = new Map<N, Shared<N>>()
  /** Results that are being written to the store. */
  readonly #fresh = new Map<string, Found & { readonly written: Promise<void> }>()
  #store: MemoStore | null = null
  #hasWarnedOfRead = false

  constructor(answer: MemoAnswer<N>, log: Log) {
    this.#answer = answer
    this.#log = log
  }

  keepIn(folder: string): void {
    this.#store = new MemoStore(folder)
  }

  /** Calls one method of `MemoAnswer`, now or later. Throws if there is no folder for results. */
  ask(call: N, key: string): void {
    const store = this.#store
    if (store === null) {
      throw new StateError('`cache` needs a folder for results', {
        hint: 'Give the engine `cacheDir`, or start telemetry with `checkpointPath` first.',
      })
    }
    const fresh = this.#fresh.get(key)
    if (fresh !== undefined) return this.#answer.reuse(call, fresh.value, key, 'shared')
    const known = this.#byKey.get(key)
    if (known !== undefined) {
      known.followers.push(call)
      return
    }
    const shared: Shared<N> = { key, leader: call, followers: [], isReading: true }
    this.#byKey.set(key, shared)
    this.#byLeader.set(call, shared)
    void store.read(key).then(
      (found) => this.#continue(shared, found),
      (error: unknown) => {
        this.#warnOfRead(error)
        this.#continue(shared, null)
      },
    )
  }

  /** Warns only about the first unreadable result. */
  #warnOfRead(error: unknown): void {
    if (this.#hasWarnedOfRead) return
    this.#hasWarnedOfRead = true
    const text = `a stored result cannot be read: ${messageOf(error)}`
    this.#log.warn(
      'ResultNotRead',
      `${text}; its task runs again, and further such results are not reported`,
    )
  }

  /** Called when the store has answered. All calls may have ended by then. */
  #continue(shared: Shared<N>, found: Found | null): void {
    shared.isReading = false
    if (this.#byKey.get(shared.key) !== shared) return
    if (found === null) return this.#answer.run(shared.leader)
    this.#forget(shared)
    for (const one of [shared.leader, ...shared.followers]) {
      if (this.#answer.isOpen(one)) this.#answer.reuse(one, found.value, shared.key, 'stored')
    }
  }

  /** Must be called when a call has ended. Its followers end too, or one of them runs. */
  ended(call: N, outcome: Outcome): void {
    const shared = this.#byLeader.get(call)
    if (shared === undefined) return
    this.#byLeader.delete(call)
    if (outcome.state === 'CANCELED') return this.#promote(shared)
    this.#forget(shared)
    const followers = shared.followers.filter((one) => this.#answer.isOpen(one))
    if ('error' in outcome) {
      // An error without a cause, as of a failed program, is itself the original error.
      const { cause = outcome.error } = outcome.error
      for (const one of followers) this.#answer.fail(one, cause)
      return
    }
    this.#keep(shared.key, outcome.value)
    for (const one of followers) this.#answer.reuse(one, outcome.value, shared.key, 'shared')
  }

  /** Resolves when every result so far is in its file. */
  async settle(): Promise<void> {
    await Promise.all([...this.#fresh.values()].map(({ written }) => written))
  }

  /** Called when the leader was canceled: the next open follower becomes the leader. */
  #promote(shared: Shared<N>): void {
    const [next, ...others] = shared.followers.filter((one) => this.#answer.isOpen(one))
    if (next === undefined) return this.#forget(shared)
    shared.leader = next
    shared.followers = others
    this.#byLeader.set(next, shared)
    if (!shared.isReading) this.#answer.run(next)
  }

  #forget(shared: Shared<N>): void {
    this.#byKey.delete(shared.key)
    this.#byLeader.delete(shared.leader)
  }

  #keep(key: string, value: unknown): void {
    const written = this.#store?.write(key, value).then(
      () => void this.#fresh.delete(key),
      (error: unknown) => {
        this.#fresh.delete(key)
        this.#log.warn('ResultNotKept', `a result cannot be stored: ${messageOf(error)}`)
      },
    )
    if (written !== undefined) this.#fresh.set(key, { value, written })
  }
}
