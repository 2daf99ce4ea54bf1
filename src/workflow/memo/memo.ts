/**
 * Memoization: equal calls share one run, whose result is stored in a file. The key of a result is
 * a hash of the function and its arguments.
 */

import { createHash } from 'node:crypto'
import { rename, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { serialize } from 'node:v8'
import { makeFolders } from '../../checkpoint/files.ts'
import { deserializeValue } from '../../checkpoint/kept-value.ts'
import { errnoOf, messageOf, StateError, ValueError } from '../../foundation/errors.ts'
import { newUuid } from '../../foundation/ids.ts'
import type { Log } from '../../foundation/log.ts'
import { openRegularFile } from '../../foundation/regular-file.ts'
import { Semaphore } from '../../runtime/fifo.ts'
import { contentText, digestOf, joinPrefixed } from '../../tasks/content-text.ts'
import { type AnyFunction, definitionOf } from '../../tasks/define-task.ts'
import { digestFunction, joinDigests } from '../../tasks/definition-hash.ts'
import type { Outcome } from '../../tasks/task-record.ts'
import { EngineHandle } from '../handle.ts'
import type { Plan } from '../plan.ts'

export interface MemoCallbacks<N> {
  isOpen(call: N): boolean
  run(call: N): void
  reuse(call: N, value: unknown, key: string, source: 'stored' | 'shared'): void
  /** Ends the call with the error of the equal call that it waited for. */
  fail(call: N, error: unknown): void
}

/** Equal calls that are open. The leader reads the store and runs; the followers wait for it. */
interface EqualCalls<N> {
  readonly key: string
  leader: N
  followers: N[]
  isReading: boolean
}

export class Memo<N> {
  readonly #callbacks: MemoCallbacks<N>
  readonly #log: Log
  readonly #byKey = new Map<string, EqualCalls<N>>()
  readonly #byLeader = new Map<N, EqualCalls<N>>()
  readonly #pending = new Map<string, StoredResult & { readonly written: Promise<void> }>()
  #store: MemoStore | null = null
  #hasWarnedAboutRead = false

  constructor(callbacks: MemoCallbacks<N>, log: Log) {
    this.#callbacks = callbacks
    this.#log = log
  }

  setFolder(folder: string): void {
    this.#store = new MemoStore(folder)
  }

  /**
   * Looks for a result of an equal call. Calls one method of `MemoCallbacks`, now or later. Throws
   * if there is no folder for results.
   */
  lookUp(call: N, key: string): void {
    const store = this.#store
    if (store === null) {
      throw new StateError('`cache` needs a folder for results', {
        hint: 'Give the engine `cacheDir`, or start telemetry with `checkpointPath` first.',
      })
    }
    const pending = this.#pending.get(key)
    if (pending !== undefined) return this.#callbacks.reuse(call, pending.value, key, 'shared')
    const known = this.#byKey.get(key)
    if (known !== undefined) {
      known.followers.push(call)
      return
    }
    const group: EqualCalls<N> = { key, leader: call, followers: [], isReading: true }
    this.#byKey.set(key, group)
    this.#byLeader.set(call, group)
    void store.read(key).then(
      (found) => this.#continue(group, found),
      (error: unknown) => {
        this.#warnAboutRead(error)
        this.#continue(group, null)
      },
    )
  }

  #warnAboutRead(error: unknown): void {
    if (this.#hasWarnedAboutRead) return
    this.#hasWarnedAboutRead = true
    const text = `a stored result cannot be read: ${messageOf(error)}; its task runs again`
    this.#log.warn('ResultNotRead', `${text}, and further such results are not reported`)
  }

  /** Continues the calls after the store was read. All of them may have ended in the meantime. */
  #continue(group: EqualCalls<N>, found: StoredResult | null): void {
    group.isReading = false
    if (this.#byKey.get(group.key) !== group) return
    if (found === null) return this.#callbacks.run(group.leader)
    this.#forget(group)
    for (const one of [group.leader, ...group.followers]) {
      if (this.#callbacks.isOpen(one)) this.#callbacks.reuse(one, found.value, group.key, 'stored')
    }
  }

  /** Must be called when a call has ended. Its followers then end as well, or one of them runs. */
  ended(call: N, outcome: Outcome): void {
    const group = this.#byLeader.get(call)
    if (group === undefined) return
    this.#byLeader.delete(call)
    if (outcome.state === 'CANCELED') return this.#promote(group)
    this.#forget(group)
    const followers = group.followers.filter((one) => this.#callbacks.isOpen(one))
    if ('error' in outcome) {
      // An error without a cause, such as that of a failed program, is itself the original error.
      const { cause = outcome.error } = outcome.error
      for (const one of followers) this.#callbacks.fail(one, cause)
      return
    }
    this.#save(group.key, outcome.value)
    for (const one of followers) this.#callbacks.reuse(one, outcome.value, group.key, 'shared')
  }

  /** Resolves when every result so far is in its file. */
  async flush(): Promise<void> {
    await Promise.all([...this.#pending.values()].map(({ written }) => written))
  }

  #promote(group: EqualCalls<N>): void {
    const [next, ...others] = group.followers.filter((one) => this.#callbacks.isOpen(one))
    if (next === undefined) return this.#forget(group)
    group.leader = next
    group.followers = others
    this.#byLeader.set(next, group)
    if (!group.isReading) this.#callbacks.run(next)
  }

  #forget(group: EqualCalls<N>): void {
    this.#byKey.delete(group.key)
    this.#byLeader.delete(group.leader)
  }

  #save(key: string, value: unknown): void {
    const written = this.#store?.write(key, value).then(
      () => void this.#pending.delete(key),
      (error: unknown) => {
        this.#pending.delete(key)
        this.#log.warn('ResultNotKept', `a result cannot be stored: ${messageOf(error)}`)
      },
    )
    if (written !== undefined) this.#pending.set(key, { value, written })
  }
}

const checksumBytes = 32
const maxOpenFiles = 32

/** A stored value. It is wrapped, because `undefined` is a valid result. */
interface StoredResult {
  readonly value: unknown
}

/** Stores each result in a file, which is replaced atomically and verified by a digest. */
export class MemoStore {
  readonly #folder: string
  readonly #files = new Semaphore(maxOpenFiles)

  constructor(folder: string) {
    this.#folder = folder
  }

  /**
   * Reads a result. Resolves with `null` if no result is stored or its file is damaged. Rejects if
   * the file cannot be read or is not a regular file.
   */
  async read(key: string): Promise<StoredResult | null> {
    const bytes = await this.#files.run(() => readIfExists(this.#pathOf(key)))
    if (bytes === null) return null
    try {
      const content = bytes.subarray(checksumBytes)
      if (!checksumOf(content).equals(bytes.subarray(0, checksumBytes))) return null
      const found = deserializeValue(content)?.value
      return typeof found === 'object' && found !== null && 'value' in found ? found : null
    } catch {
      return null
    }
  }

  /**
   * Stores a result and replaces an earlier one. Rejects if the value cannot be serialized or
   * written.
   */
  async write(key: string, value: unknown): Promise<void> {
    const content = serialize({ value })
    await this.#files.run(() => this.#replace(key, content))
  }

  async #replace(key: string, content: Buffer): Promise<void> {
    makeFolders(this.#folder)
    const draft = `${this.#pathOf(key)}.${newUuid()}.tmp`
    try {
      await writeFile(draft, Buffer.concat([checksumOf(content), content]))
      await rename(draft, this.#pathOf(key))
    } catch (error) {
      await rm(draft, { force: true })
      throw error
    }
  }

  #pathOf(key: string): string {
    return join(this.#folder, `${key}.result`)
  }
}

const checksumOf = (bytes: Buffer): Buffer => createHash('sha256').update(bytes).digest()

async function readIfExists(path: string): Promise<Buffer | null> {
  try {
    await using file = await openRegularFile(path)
    return await file.readFile()
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return null
    throw error
  }
}

/** Part of every key. Change it whenever the encoding changes. */
const keyVersion = 'tutti-memo-5'

/**
 * Returns the same key for equal calls, even across processes. The key covers the function's source
 * text, the sampling options of a prompt, and `this` if the function uses it, but not the functions
 * that it calls. A key from `cache.key` replaces the arguments and `this`. Throws a `ValueError`
 * for an argument that cannot be compared.
 */
export function memoKey(plan: Plan, args: readonly unknown[], receiver?: unknown): string {
  const { cache, name, work } = plan.options
  const code = [definitionOf(plan.body)?.module ?? '', String(plan.body)]
  const words = [keyVersion, plan.kind, name, ...code, optionsText(work)]
  if (typeof cache === 'object') {
    const { key } = cache
    words.push('key', typeof key === 'string' ? key : resolveKey(key, args))
  } else {
    words.push('content', contentText('args', args))
    if (usesReceiver(plan, receiver)) words.push('this', contentText('this', receiver))
  }
  return digestOf(joinPrefixed(words))
}

/** Omits options that do not change the result, such as the backend and the time limit. */
function optionsText(work: Plan['options']['work']): string {
  const { backend: _, timeoutSeconds: _limit, priority: _rank, resources: _share, ...rest } = work
  return contentText('options', rest)
}

function resolveKey(key: (...args: never[]) => string, args: readonly unknown[]): string {
  const given: unknown = key(...(args as never[]))
  if (typeof given === 'string') return given
  throw new ValueError('`cache.key` returned no string', { field: 'cache.key', got: given })
}

interface HashedCall {
  readonly receiver: unknown
  readonly args: readonly unknown[]
  readonly dependencies: readonly EngineHandle[]
  /** Identifies the body in which the call was made; empty outside of bodies. */
  readonly place: string
  /** The owner for `digestFunction`, which distinguishes functions with equal source text. */
  readonly owner: object
}

/**
 * Identifies a call before its values are known, by the hashes of its handles. Returns `null` for a
 * call that cannot be compared, because of an argument, a dependency or `this`, or because it has
 * no arguments and may use captured variables.
 */
export function hashCall(plan: Plan, call: HashedCall): string | null {
  const { args, dependencies, place, owner } = call
  if (usesOnlyCaptured(plan, call)) return null
  try {
    // Called before the returns below, because it also registers the function.
    const code = digestFunction(plan.body, plan.options.name, owner)
    if (usesReceiver(plan, call.receiver)) return null
    const hashes = dependencies.map((handle) => handle.definitionHash)
    const known = hashes.filter((one) => one !== null)
    if (known.length < hashes.length) return null
    const textOf = (part: object): string | undefined => {
      const at = part instanceof EngineHandle ? dependencies.indexOf(part) : -1
      return at === -1 ? undefined : joinPrefixed(['handle', String(at)])
    }
    const input = contentText('args', args, { textOf, isOrdered: true })
    const placeWords = place === '' ? [] : ['in', place]
    const kind = plan.isBlock ? 'block' : plan.kind
    const text = joinPrefixed([kind, optionsText(plan.options.work), input, ...placeWords])
    return joinDigests(code, text, known)
  } catch {
    return null
  }
}

/** Whether the body has no input except captured variables. */
export const usesOnlyCaptured = (
  plan: Plan,
  { args, receiver }: Pick<HashedCall, 'args' | 'receiver'>,
): boolean =>
  args.length === 0 && definitionOf(plan.body) === undefined && !usesReceiver(plan, receiver)

/** Whether the result may depend on `this`. Functions that run on workers have no `this`. */
function usesReceiver({ body, expected }: Plan, receiver: unknown): boolean {
  if (receiver === undefined || receiver === null || expected.spec.kind === 'function') return false
  let isUsed = receiverUsage.get(body)
  if (isUsed === undefined) receiverUsage.set(body, (isUsed = receiverPattern.test(String(body))))
  return isUsed
}

const receiverUsage = new WeakMap<AnyFunction, boolean>()

/** Matches source text that may use `this`. The source text of native functions is unknown. */
const receiverPattern = /\b(?:this|super|eval)\b|\[native code\]/
