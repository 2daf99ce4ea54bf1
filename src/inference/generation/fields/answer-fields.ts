/** Joins the fields of an answer that arrives in pieces, and adds up the details of token usage. */

import { isPlainObject } from '../../../foundation/json-value.ts'
import type { AnswerFields, WireToolCall, WireToolCallPiece, WireFields } from '../pass-through.ts'

/** Joins the texts and lists of a message. In the body, a later field replaces an earlier one. */
export const joinAnswerFields = (
  known: AnswerFields,
  { message, choice, body }: AnswerFields,
): AnswerFields => ({
  ...known,
  ...(message === undefined ? {} : { message: joinFields(known.message ?? {}, message) }),
  ...(choice === undefined ? {} : { choice: joinChoiceFields(known.choice ?? {}, choice) }),
  ...(body === undefined ? {} : { body: { ...known.body, ...body } }),
})

/** Lists such as log probabilities arrive in pieces and are joined. Texts arrive whole. */
function joinChoiceFields(known: WireFields, more: WireFields): WireFields {
  const texts = Object.entries(more).filter(([, value]) => typeof value === 'string')
  return { ...joinFields(known, more), ...Object.fromEntries(texts) }
}

function joinFields(known: WireFields, more: WireFields): WireFields {
  const joined: Record<string, unknown> = { ...known }
  for (const [name, value] of Object.entries(more)) {
    const old = joined[name]
    joined[name] = identityFields.has(name) || old === undefined ? value : joinValues(old, value)
  }
  return joined
}

/** Fields that every piece repeats. Their values must not be joined. */
const identityFields: ReadonlySet<string> = new Set(['id', 'index', 'type', 'role', 'format'])

function joinValues(old: unknown, value: unknown): unknown {
  if (value === null) return old
  if (typeof old === 'string' && typeof value === 'string') return old + value
  if (Array.isArray(old) && Array.isArray(value)) return joinLists(old, value)
  if (isPlainObject(old) && isPlainObject(value)) return joinFields(old, value)
  return value
}

/** An item with an `index` is joined to the known item of that index; other items are appended. */
function joinLists(old: readonly unknown[], more: readonly unknown[]): readonly unknown[] {
  const joinedItems = [...old]
  for (const item of more) {
    const index = isPlainObject(item) ? item['index'] : undefined
    const isSame = (one: unknown): boolean => isPlainObject(one) && one['index'] === index
    const at = typeof index === 'number' ? joinedItems.findIndex(isSame) : -1
    const known = joinedItems[at]
    if (isPlainObject(known) && isPlainObject(item)) joinedItems[at] = joinFields(known, item)
    else joinedItems.push(item)
  }
  return joinedItems
}

/** Sums the numbers of two objects with details of token usage, at any depth. */
export function sumUsageDetails(known: WireFields, more: WireFields): WireFields {
  const sum: Record<string, unknown> = { ...known }
  for (const [name, value] of Object.entries(more)) {
    const old = sum[name]
    if (typeof old === 'number' && typeof value === 'number') sum[name] = old + value
    else if (isPlainObject(old) && isPlainObject(value)) sum[name] = sumUsageDetails(old, value)
    else sum[name] ??= value
  }
  return sum
}

/** Assembles tool calls from their pieces, in the order of the first piece of each call. */
export class ToolCallAssembler {
  readonly #calls = new Map<number, WireToolCall>()

  add({ index, id, name = '', arguments: text, wire }: WireToolCallPiece): void {
    const known = this.#calls.get(index)
    const whole = known?.wire === undefined ? wire : joinFields(known.wire, wire ?? {})
    this.#calls.set(index, {
      id: known?.id ?? id ?? '',
      name: (known?.name ?? '') + name,
      arguments: (known?.arguments ?? '') + text,
      ...(whole === undefined ? {} : { wire: whole }),
    })
  }

  drain(): readonly WireToolCall[] {
    const calls = [...this.#calls.values()]
    this.#calls.clear()
    return calls
  }
}
