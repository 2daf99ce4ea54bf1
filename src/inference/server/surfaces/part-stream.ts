/** Streams of APIs whose answers are a list of parts: reasoning, text and tool calls. */

import type { HttpError } from '../../../runtime/http/http-error.ts'
import type { AnswerFields, PassThroughDelta, WireToolCall } from '../../generation/pass-through.ts'
import type { GenerationResult } from '../../generation/text-generator.ts'
import type { StreamWriter } from '../replies/stream-writer.ts'
import type { ChoiceListener, ReplyStream } from './surface.ts'

export interface AnswerPart {
  readonly kind: 'reasoning' | 'text' | 'call'
  /** The position in the answer, from 0. */
  readonly index: number
  /** The text so far, or the arguments of the call. */
  text: string
  readonly call?: Pick<WireToolCall, 'id' | 'name'>
}

/** Servers behind an engine use one of two names for the reasoning. */
export function readReasoning(fields: AnswerFields | undefined): string {
  const { reasoning_content: content, reasoning } = fields?.message ?? {}
  const text = content ?? reasoning
  return typeof text === 'string' ? text : ''
}

/** Returns the parts of a complete answer. */
export function listParts({ text, toolCalls, fields }: GenerationResult): readonly AnswerPart[] {
  const reasoning = readReasoning(fields)
  const parts: Omit<AnswerPart, 'index'>[] = []
  if (reasoning !== '') parts.push({ kind: 'reasoning', text: reasoning })
  if (text !== '') parts.push({ kind: 'text', text })
  for (const { id, name, arguments: given } of toolCalls) {
    parts.push({ kind: 'call', text: given, call: { id, name } })
  }
  return parts.map((part, index) => ({ ...part, index }))
}

/** Writes one answer. A part is closed before the next part opens. */
export abstract class PartStream implements ReplyStream, ChoiceListener {
  readonly #writer: StreamWriter
  readonly #parts: AnswerPart[] = []
  /** The part of each call that arrives in pieces, by the index of the call. */
  readonly #pieces = new Map<number, AnswerPart>()
  #open: AnswerPart | null = null
  #isBegun = false

  constructor(writer: StreamWriter) {
    this.#writer = writer
  }

  createChoice(): ChoiceListener {
    return this
  }

  delta(delta: PassThroughDelta): Promise<void> | undefined {
    return this.#writer.send(this.#begin(delta) + this.#toEvents(delta), delta.ignored)
  }

  finish(result: GenerationResult): void {
    const parts = this.#parts
    const text = parts.some(({ kind }) => kind === 'text') ? '' : result.text
    const sentCalls = parts.filter(({ kind }) => kind === 'call').length
    const toolCalls = this.#pieces.size > 0 ? [] : result.toolCalls.slice(sentCalls)
    const last = result.lastFields
    const missing = { text, toolCalls, ...(last === undefined ? {} : { fields: last }) }
    const events = this.#begin(missing) + this.#toEvents(missing) + this.#close()
    void this.#writer.send(events + this.toClosing(result, parts))
  }

  end(): void {
    // Writes nothing: `finish` of the only choice has already written the last events.
  }

  fail(problem: HttpError, body: object): void {
    void this.#writer.send(this.toFailure(problem, body))
  }

  /** Returns the events before the first part. */
  protected abstract toOpening(first: PassThroughDelta): string
  protected abstract toPartOpening(part: AnswerPart): string
  protected abstract toPartDelta(part: AnswerPart, text: string): string
  protected abstract toPartClosing(part: AnswerPart): string
  protected abstract toClosing(result: GenerationResult, parts: readonly AnswerPart[]): string
  protected abstract toFailure(problem: HttpError, body: object): string

  #begin(first: PassThroughDelta): string {
    if (this.#isBegun) return ''
    this.#isBegun = true
    return this.toOpening(first)
  }

  #toEvents({ text, fields, toolCalls = [], toolCallPieces = [] }: PassThroughDelta): string {
    let events = ''
    const reasoning = readReasoning(fields)
    if (reasoning !== '') events += this.#append('reasoning', reasoning)
    if (text !== '') events += this.#append('text', text)
    for (const { id, name, arguments: given } of toolCalls) {
      events += this.#openPart({ kind: 'call', text: '', call: { id, name } })
      events += this.#extend(given)
    }
    for (const { index, id = '', name = '', arguments: given } of toolCallPieces) {
      const known = this.#pieces.get(index)
      if (known === undefined) {
        events += this.#openPart({ kind: 'call', text: '', call: { id, name } })
        if (this.#open !== null) this.#pieces.set(index, this.#open)
      }
      if (known === undefined || known === this.#open) events += this.#extend(given)
    }
    return events
  }

  #append(kind: 'reasoning' | 'text', text: string): string {
    const opening = this.#open?.kind === kind ? '' : this.#openPart({ kind, text: '' })
    return opening + this.#extend(text)
  }

  #extend(text: string): string {
    const part = this.#open
    if (part === null || text === '') return ''
    part.text += text
    return this.toPartDelta(part, text)
  }

  #openPart(given: Omit<AnswerPart, 'index'>): string {
    const closing = this.#close()
    const part = { ...given, index: this.#parts.length }
    this.#parts.push(part)
    this.#open = part
    return closing + this.toPartOpening(part)
  }

  #close(): string {
    const part = this.#open
    this.#open = null
    return part === null ? '' : this.toPartClosing(part)
  }
}
