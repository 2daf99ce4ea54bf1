/** The key under which a result is stored: a hash of the function and its arguments. */

import { contentText, digestOf, joinWords } from '../tasks/content-text.ts'
import { ValueError } from '../foundation/errors.ts'
import { definitionOf } from '../tasks/define-task.ts'
import { codeOfFunction, hashOfParts } from '../tasks/definition-hash.ts'
import { EngineHandle } from './handle.ts'
import type { Plan } from './plan.ts'

/** Changed when the encoding changes. */
const version = 'tutti-memo-4'

/**
 * Equal for equal calls, also in another process. The function's source text and the sampling
 * options of a prompt count; what the function calls does not. A key of the caller's own replaces
 * the arguments. Throws a `ValueError` that names an argument that has no comparable content.
 */
export function memoKey(plan: Plan, args: readonly unknown[]): string {
  const { cache, name, work } = plan.options
  const code = [definitionOf(plan.body)?.module ?? '', String(plan.body)]
  const words = [version, plan.kind, name, ...code, optionsText(work)]
  if (typeof cache === 'object') {
    const { key } = cache
    words.push('key', typeof key === 'string' ? key : keyOf(key, args))
  } else words.push('content', contentText('args', args))
  return digestOf(joinWords(words))
}

/** Where, when and how long a task runs does not change its result. */
function optionsText(work: Plan['options']['work']): string {
  const { backend: _, timeoutSeconds: _limit, priority: _rank, resources: _share, ...rest } = work
  return contentText('options', rest)
}

function keyOf(key: (...args: never[]) => string, args: readonly unknown[]): string {
  const given: unknown = key(...(args as never[]))
  if (typeof given === 'string') return given
  throw new ValueError('`cache.key` gave no string', { field: 'cache.key', got: given })
}

/** Where a call was made. */
export interface CallPlace {
  readonly dependencies: readonly EngineHandle[]
  /** What its block is, and which of equal ones; empty outside of blocks. */
  readonly block: string
  /** Whose functions are told apart. */
  readonly owner: object
}

/**
 * What a call is before any value is known: handles among its arguments count by what they are.
 * `null` when an argument has no comparable content, or depends on one.
 */
export function hashOfCall(
  plan: Plan,
  args: readonly unknown[],
  { dependencies, block, owner }: CallPlace,
): string | null {
  const hashes = dependencies.map((handle) => handle.definitionHash)
  try {
    const input = contentText('args', args, (part) => {
      const at = part instanceof EngineHandle ? dependencies.indexOf(part) : -1
      return at === -1 ? undefined : joinWords(['handle', String(at)])
    })
    const place = block === '' ? [] : ['in', block]
    const text = joinWords([plan.kind, optionsText(plan.options.work), input, ...place])
    const known = hashes.filter((one) => one !== null)
    if (known.length < hashes.length) return null
    return hashOfParts(codeOfFunction(plan.body, plan.options.name, owner), text, known)
  } catch {
    return null
  }
}
