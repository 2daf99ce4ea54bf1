/** The key under which a result is stored: a hash of the function and its arguments. */

import { contentText, digestOf, joinWords } from '../../tasks/content-text.ts'
import { ValueError } from '../../foundation/errors.ts'
import type { AnyFunction } from '../../tasks/compute-options.ts'
import { definitionOf } from '../../tasks/define-task.ts'
import { codeOfFunction, hashOfParts } from '../../tasks/definition-hash.ts'
import { EngineHandle } from '../handle.ts'
import type { Plan } from '../plan.ts'

/** Part of every key. Must change when the encoding changes. */
const version = 'tutti-memo-5'

/**
 * Equal for equal calls, even across processes. The key covers the function's source text, the
 * sampling options of a prompt, and `this` if the function uses it, but not the functions that it
 * calls. A key given by the caller replaces the arguments and `this`. Throws a `ValueError` for an
 * argument that cannot be compared.
 */
export function memoKey(plan: Plan, args: readonly unknown[], receiver?: unknown): string {
  const { cache, name, work } = plan.options
  const code = [definitionOf(plan.body)?.module ?? '', String(plan.body)]
  const words = [version, plan.kind, name, ...code, optionsText(work)]
  if (typeof cache === 'object') {
    const { key } = cache
    words.push('key', typeof key === 'string' ? key : keyOf(key, args))
  } else {
    words.push('content', contentText('args', args))
    if (usesReceiver(plan, receiver)) words.push('this', contentText('this', receiver))
  }
  return digestOf(joinWords(words))
}

/** Omits options about where, when and how long a task runs: they do not change its result. */
function optionsText(work: Plan['options']['work']): string {
  const { backend: _, timeoutSeconds: _limit, priority: _rank, resources: _share, ...rest } = work
  return contentText('options', rest)
}

function keyOf(key: (...args: never[]) => string, args: readonly unknown[]): string {
  const given: unknown = key(...(args as never[]))
  if (typeof given === 'string') return given
  throw new ValueError('`cache.key` returned no string', { field: 'cache.key', got: given })
}

/** A call, with handles among its arguments. */
export interface HashedCall {
  /** The value of `this` in the body. */
  readonly receiver: unknown
  readonly args: readonly unknown[]
  readonly dependencies: readonly EngineHandle[]
  /** Identifies the body in which the call was made; empty outside of bodies. */
  readonly place: string
  /** The scope of `codeOfFunction`, which distinguishes functions with equal source. */
  readonly owner: object
}

/**
 * Identifies a call before any value is known: handles among its arguments are represented by their
 * own hashes. `null` if the call cannot be compared: because of an argument, of a dependency that
 * cannot be compared, of `this`, or because a function without arguments uses captured variables.
 */
export function hashOfCall(plan: Plan, call: HashedCall): string | null {
  const { args, dependencies, place, owner } = call
  if (worksOnCaptured(plan, call)) return null
  try {
    // Called before any return, because it registers the function among those of equal source.
    const code = codeOfFunction(plan.body, plan.options.name, owner)
    if (usesReceiver(plan, call.receiver)) return null
    const hashes = dependencies.map((handle) => handle.definitionHash)
    const known = hashes.filter((one) => one !== null)
    if (known.length < hashes.length) return null
    const textOf = (part: object): string | undefined => {
      const at = part instanceof EngineHandle ? dependencies.indexOf(part) : -1
      return at === -1 ? undefined : joinWords(['handle', String(at)])
    }
    const input = contentText('args', args, { textOf, isOrdered: true })
    const around = place === '' ? [] : ['in', place]
    const kind = plan.isBlock ? 'block' : plan.kind
    const text = joinWords([kind, optionsText(plan.options.work), input, ...around])
    return hashOfParts(code, text, known)
  } catch {
    return null
  }
}

/** Whether a closure can only use captured variables, having neither arguments nor `this`. */
export const worksOnCaptured = (
  plan: Plan,
  { args, receiver }: Pick<HashedCall, 'args' | 'receiver'>,
): boolean =>
  args.length === 0 && definitionOf(plan.body) === undefined && !usesReceiver(plan, receiver)

/** Whether the result may depend on `this`, which functions that run on workers do not have. */
function usesReceiver({ body, expected }: Plan, receiver: unknown): boolean {
  if (receiver === undefined || receiver === null || expected.spec.kind === 'function') return false
  let isUsed = receiverUses.get(body)
  if (isUsed === undefined) receiverUses.set(body, (isUsed = thisWords.test(String(body))))
  return isUsed
}

const receiverUses = new WeakMap<AnyFunction, boolean>()

/** Source text without these words does not use `this`. Native functions may use it. */
const thisWords = /\b(?:this|super|eval)\b|\[native code\]/
