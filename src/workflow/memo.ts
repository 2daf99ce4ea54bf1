/** Who runs, and who takes over a result: equal calls share one run, and its result is kept. */

import { messageOf, StateError } from '../foundation/errors.ts'
import type { Log } from '../foundation/log.ts'
import type { Outcome } from '../tasks/task-record.ts'
import { type Found, MemoStore } from './memo-store.ts'

/** How a call goes on. */
export interface MemoAnswer<N> {
  /** It has not ended. */
  isOpen(call: N): boolean
  /** It must run. */
  run(call: N): void
  /** It ends with this value, without having run. */
  reuse(call: N, value: unknown, key: string, source: 'stored' | 'shared'): void
  /** The equal call that it waited for failed. */
  fail(call: N, error: unknown): void
}

/** Calls with one key: the first looks and runs, the others wait for it. */
interface Shared<N> {
  readonly key: string
  leader: N
  followers: N[]
  /** The store was asked and has not answered. */
  isLooking: boolean
}

export class Memo<N> {
  readonly #answer: MemoAnswer<N>
  readonly #log: Log
  readonly #byKey = new Map<string, Shared<N>>()
  readonly #byLeader = new Map<N, Shared<N>>()
  /** Results on their way to the store, and when they are there. */
  readonly #fresh = new Map<string, Found & { readonly written: Promise<void> }>()
  #store: MemoStore | null = null

  constructor(answer: MemoAnswer<N>, log: Log) {
    this.#answer = answer
    this.#log = log
  }

  keepIn(folder: string): void {
    this.#store = new MemoStore(folder)
  }

  /** Answers the call now or later, once. Throws when there is no folder for results. */
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
    const shared: Shared<N> = { key, leader: call, followers: [], isLooking: true }
    this.#byKey.set(key, shared)
    this.#byLeader.set(call, shared)
    void store.read(key).then(
      (found) => this.#go(shared, found),
      (error: unknown) => {
        this.#log.warn('ResultNotRead', `a kept result cannot be read: ${messageOf(error)}`)
        this.#go(shared, null)
      },
    )
  }

  /** The store has answered; by then all who asked may be gone. */
  #go(shared: Shared<N>, found: Found | null): void {
    shared.isLooking = false
    if (this.#byKey.get(shared.key) !== shared) return
    if (found === null) return this.#answer.run(shared.leader)
    this.#forget(shared)
    for (const one of [shared.leader, ...shared.followers]) {
      if (this.#answer.isOpen(one)) this.#answer.reuse(one, found.value, shared.key, 'stored')
    }
  }

  /** A call has ended; those that wait for it hear how. */
  ended(call: N, outcome: Outcome): void {
    const shared = this.#byLeader.get(call)
    if (shared === undefined) return
    this.#byLeader.delete(call)
    if (outcome.state === 'CANCELED') return this.#passOn(shared)
    this.#forget(shared)
    const followers = shared.followers.filter((one) => this.#answer.isOpen(one))
    if ('error' in outcome) {
      // A program's failure is its own cause.
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

  /** Somebody's wish to cancel is not the others'. */
  #passOn(shared: Shared<N>): void {
    const [next, ...others] = shared.followers.filter((one) => this.#answer.isOpen(one))
    if (next === undefined) return this.#forget(shared)
    shared.leader = next
    shared.followers = others
    this.#byLeader.set(next, shared)
    if (!shared.isLooking) this.#answer.run(next)
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
