/** The keys of stored results: hashes of a function and its arguments. */

import { contentText, digestOf, joinPrefixed } from '../../tasks/content-text.ts'
import { ValueError } from '../../foundation/errors.ts'
import { type AnyFunction, definitionOf } from '../../tasks/define-task.ts'
import { digestFunction, joinDigests } from '../../tasks/definition-hash.ts'
import { EngineHandle } from '../handle.ts'
import type { Plan } from '../plan.ts'

/** Part of every key. Change it whenever the encoding changes. */
const version = 'tutti-memo-5'

/**
 * Returns the same key for equal calls, even across processes. The key covers the function's source
 * text, the sampling options of a prompt, and `this` if the function uses it, but not the functions
 * that it calls. A key from `cache.key` replaces the arguments and `this`. Throws a `ValueError`
 * for an argument that cannot be compared.
 */
export function memoKey(plan: Plan, args: readonly unknown[], receiver?: unknown): string {
  const { cache, name, work } = plan.options
  const code = [definitionOf(plan.body)?.module ?? '', String(plan.body)]
  const words = [version, plan.kind, name, ...code, optionsText(work)]
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

export interface HashedCall {
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
