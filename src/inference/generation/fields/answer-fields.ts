/**
 * Joins additional fields of an answer that arrive in pieces, and adds up the details of usages.
 */

import {
  type AnswerFields,
  isFields,
  type PassedCall,
  type PassedCallPiece,
  type WireFields,
} from '../pass-through.ts'

/**
 * Collects the fields of a whole answer. Texts and lists of the message are joined; a later field
 * of the body replaces an earlier one.
 */
export class AnswerFieldsBuilder {
  #message: WireFields | undefined
  #choice: WireFields | undefined
  #body: WireFields | undefined

  add({ message, choice, body }: AnswerFields): void {
    if (message !== undefined) this.#message = joinFields(this.#message ?? {}, message)
    if (choice !== undefined) this.#choice = replaceTexts(this.#choice ?? {}, choice)
    if (body !== undefined) this.#body = { ...this.#body, ...body }
  }

  /** `undefined` if no fields were added. */
  get fields(): AnswerFields | undefined {
    const [message, choice, body] = [this.#message, this.#choice, this.#body]
    if (message === undefined && choice === undefined && body === undefined) return undefined
    return {
      ...(message === undefined ? {} : { message }),
      ...(choice === undefined ? {} : { choice }),
      ...(body === undefined ? {} : { body }),
    }
  }
}

/** Joins the lists of a choice, such as log probabilities; replaces texts, which arrive whole. */
function replaceTexts(known: WireFields, more: WireFields): WireFields {
  const texts = Object.entries(more).filter(([, value]) => typeof value === 'string')
  return { ...joinFields(known, more), ...Object.fromEntries(texts) }
}

function joinFields(known: WireFields, more: WireFields): WireFields {
  const joined: Record<string, unknown> = { ...known }
  for (const [name, value] of Object.entries(more)) {
    const old = joined[name]
    joined[name] = isIdentity(name) || old === undefined ? value : joinValues(old, value)
  }
  return joined
}

/** Fields that identify a value. They are not joined, because each piece repeats them. */
const identities: ReadonlySet<string> = new Set(['id', 'index', 'type', 'role', 'format'])
const isIdentity = (name: string): boolean => identities.has(name)

function joinValues(old: unknown, value: unknown): unknown {
  if (value === null) return old
  if (typeof old === 'string' && typeof value === 'string') return old + value
  if (Array.isArray(old) && Array.isArray(value)) return joinLists(old, value)
  if (isFields(old) && isFields(value)) return joinFields(old, value)
  return value
}

/** An item with an `index` is joined to the known item of that index; other items are appended. */
function joinLists(old: readonly unknown[], more: readonly unknown[]): readonly unknown[] {
  const joined = [...old]
  for (const item of more) {
    const at = joined.findIndex(
      (one) => isFields(one) && isFields(item) && isIndex(item) && one['index'] === item['index'],
    )
    const known = joined[at]
    if (isFields(known) && isFields(item)) joined[at] = joinFields(known, item)
    else joined.push(item)
  }
  return joined
}

const isIndex = (item: WireFields): boolean => typeof item['index'] === 'number'

/** Adds the numbers in the details of one usage to those of another. */
export function addDetails(known: WireFields, more: WireFields): WireFields {
  const sum: Record<string, unknown> = { ...known }
  for (const [name, value] of Object.entries(more)) {
    const old = sum[name]
    if (typeof old === 'number' && typeof value === 'number') sum[name] = old + value
    else if (isFields(old) && isFields(value)) sum[name] = addDetails(old, value)
    else sum[name] ??= value
  }
  return sum
}

/** Assembles tool calls from their pieces, in the order of the first piece of each call. */
export class ToolCallAssembler {
  readonly #calls = new Map<number, PassedCall>()

  add({ index, id, name = '', arguments: text, wire }: PassedCallPiece): void {
    const known = this.#calls.get(index)
    const whole = known?.wire === undefined ? wire : joinFields(known.wire, wire ?? {})
    this.#calls.set(index, {
      id: known?.id ?? id ?? '',
      name: (known?.name ?? '') + name,
      arguments: (known?.arguments ?? '') + text,
      ...(whole === undefined ? {} : { wire: whole }),
    })
  }

  /** Returns the calls so far and removes them from the assembler. */
  take(): readonly PassedCall[] {
    const calls = [...this.#calls.values()]
    this.#calls.clear()
    return calls
  }
}
