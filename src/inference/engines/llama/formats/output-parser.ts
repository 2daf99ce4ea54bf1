/** Parses the generated text into content, reasoning and tool calls, piece by piece. */

import { newUuid } from '../../../../foundation/ids.ts'
import type { ToolCallPiece, ToolDefinition } from '../../../generation/inference-engine.ts'
import { ParserInput, type Step } from './parser-input.ts'
import type { ReasoningMarks } from './reasoning.ts'

/** Receives what the parser of a tool-call format finds. */
export interface CallSink {
  readonly tools: readonly ToolDefinition[]
  /** Set by the parser while it reads reasoning, so that its tokens are counted. */
  isReasoning: boolean
  text(text: string): void
  reasoning(text: string): void
  /** Begins a call; `false` if there is no such tool, so that the text is not a call. */
  call(name: string, id?: string): boolean
  /** More of the arguments of the latest call, as JSON text. */
  argument(text: string): void
}

/** How a family of models writes calls. */
export interface ToolCallFormat {
  readonly name: string
  /** Texts of control tokens that the parser has to see. */
  readonly marks: readonly string[]
  /** Texts that begin a call, or a list of calls. */
  readonly openings: readonly string[]
  /** Whether the output may begin with a call without an opening. */
  readonly isBare?: boolean
  /**
   * Reads calls after one of the openings, or at the beginning of the output. Returns `false`,
   * before anything is passed on, if the text is not a call.
   */
  parse(input: ParserInput, sink: CallSink, opening: string): Step<boolean>
  /** Reads the whole output, for formats that are more than text with calls. */
  parseAll?(input: ParserInput, sink: CallSink): Step<void>
  /** The beginning of an answer without calls and reasoning. Default: none. */
  readonly answerStart?: string
  /** Creates the ids of calls. Default: `call_` and a random text. */
  readonly toId?: (name: string, index: number) => string
}

/** The parts of the output that became known. */
export interface OutputPiece {
  readonly text: string
  readonly reasoning: string
  readonly calls: readonly ToolCallPiece[]
}

export interface OutputParserOptions {
  /** `null` for answers without calls. */
  readonly format: ToolCallFormat | null
  readonly tools: readonly ToolDefinition[]
  /** `null` if the output has no reasoning. */
  readonly reasoning: ReasoningMarks | null
  /** Whether the prompt ends within reasoning. */
  readonly isReasoning?: boolean
  readonly toId?: (name: string, index: number) => string
  /** The maximum number of calls; further ones are left out. Default: no limit. */
  readonly maxCalls?: number
}

export class OutputParser {
  readonly #input = new ParserInput()
  readonly #pieces: PieceCollector
  readonly #steps: Step<void>

  constructor(options: OutputParserOptions) {
    this.#pieces = new PieceCollector(options)
    this.#steps = parseOutput(this.#input, this.#pieces, options)
    this.#steps.next()
  }

  /** How many calls have begun. */
  get callCount(): number {
    return this.#pieces.callCount
  }

  /** Whether the arguments of the latest call are complete JSON. */
  get isCallWhole(): boolean {
    return this.#pieces.isCallWhole
  }

  /** Whether more calls have begun than were requested. */
  get isFull(): boolean {
    return this.#pieces.isFull
  }

  /** Whether the next text is reasoning or the end of it. */
  get isReasoning(): boolean {
    return this.#pieces.isReasoning
  }

  /** Whether text is held back that may turn out to be something else. */
  get isHolding(): boolean {
    return this.#input.rest !== '' || this.#pieces.isHolding
  }

  push(text: string): OutputPiece {
    this.#input.push(text)
    this.#steps.next()
    return this.#pieces.take()
  }

  /** `isCut` means that the output was cut off, for example at its limit of tokens. */
  end(isCut: boolean): OutputPiece {
    this.#input.end(isCut)
    this.#pieces.isClosed = isCut && this.#pieces.callCount > 0
    this.#steps.next()
    this.#pieces.end()
    return this.#pieces.take()
  }
}

function* parseOutput(
  input: ParserInput,
  sink: PieceCollector,
  { format, reasoning, isReasoning = false }: OutputParserOptions,
): Step<void> {
  if (format?.parseAll !== undefined) {
    yield* format.parseAll(input, sink)
    return
  }
  if (isReasoning && reasoning !== null) yield* readReasoning(input, sink, reasoning)
  yield* bareCalls(input, sink, format)
  const opens = reasoning === null ? [] : [reasoning.open]
  const marks = [...opens, ...(format?.openings ?? [])]
  for (;;) {
    const mark = yield* input.until(marks, (text) => sink.text(text))
    if (mark === null) return
    if (reasoning !== null && mark === reasoning.open && !sink.hasText) {
      yield* readReasoning(input, sink, reasoning)
      yield* bareCalls(input, sink, format)
    } else if (format === null || mark === reasoning?.open) sink.text(mark)
    else if (!(yield* input.attempt(() => format.parse(input, sink, mark)))) sink.text(mark)
  }
}

/** Reads calls without an opening, which some formats allow at the beginning of an answer. */
function* bareCalls(input: ParserInput, sink: CallSink, format: ToolCallFormat | null): Step<void> {
  if (format?.isBare === true) yield* input.attempt(() => format.parse(input, sink, ''))
}

function* readReasoning(input: ParserInput, sink: CallSink, { close }: ReasoningMarks): Step<void> {
  sink.isReasoning = true
  yield* input.space()
  yield* input.until([close], (text) => sink.reasoning(text))
  sink.isReasoning = false
}

/** Collects the output of parsers; white space around calls and reasoning is left out. */
class PieceCollector implements CallSink {
  readonly tools: readonly ToolDefinition[]
  readonly #names: ReadonlySet<string>
  readonly #toId: (name: string, index: number) => string
  readonly #trims: boolean
  readonly #maxCalls: number
  isFull = false
  isReasoning = false
  /** Set if the output is cut off after a call: text after it may be a part of a mark or call. */
  isClosed = false
  #text = ''
  #reasoning = ''
  #calls: ToolCallPiece[] = []
  /** The arguments of the latest call so far. */
  #arguments = ''
  #heldText = ''
  #heldReasoning = ''
  callCount = 0
  /** Whether content other than white space was passed on. */
  hasText = false
  #hasReasoning = false

  constructor({ tools, format, toId, maxCalls = Infinity }: OutputParserOptions) {
    this.#maxCalls = maxCalls
    this.tools = tools
    this.#names = new Set(tools.map(({ name }) => name))
    this.#toId = toId ?? format?.toId ?? newCallId
    this.#trims = format !== null
  }

  get isCallWhole(): boolean {
    try {
      return JSON.parse(this.#arguments) !== undefined
    } catch {
      return false
    }
  }

  get isHolding(): boolean {
    return this.#heldText !== '' || this.#heldReasoning !== ''
  }

  text(text: string): void {
    if (this.isFull || this.isClosed) return
    const all = this.#heldText + text
    const kept = this.#trims || !this.hasText ? all.trimEnd() : all
    this.#heldText = all.slice(kept.length)
    if (kept === '') return
    const isAfter = !this.hasText && (this.#hasReasoning || this.callCount > 0)
    this.#text += isAfter ? kept.trimStart() : kept
    this.hasText = true
  }

  reasoning(text: string): void {
    const all = this.#heldReasoning + text
    const kept = all.trimEnd()
    this.#heldReasoning = all.slice(kept.length)
    this.#reasoning += kept
    this.#hasReasoning ||= kept !== ''
    this.#heldText = ''
  }

  call(name: string, id?: string): boolean {
    if (!this.#names.has(name)) return false
    this.#heldText = ''
    this.isFull ||= this.callCount >= this.#maxCalls
    if (this.isFull) return true
    const index = this.callCount++
    this.#arguments = ''
    this.#calls.push({ index, id: id ?? this.#toId(name, index), name, arguments: '' })
    return true
  }

  argument(text: string): void {
    if (text === '' || this.isFull) return
    this.#arguments += text
    const index = this.callCount - 1
    const last = this.#calls.at(-1)
    if (last?.index !== index) this.#calls.push({ index, arguments: text })
    else this.#calls[this.#calls.length - 1] = { ...last, arguments: last.arguments + text }
  }

  /** White space at the end of an answer without calls belongs to the answer. */
  end(): void {
    if (this.callCount === 0 && (this.hasText || !this.#hasReasoning)) this.#text += this.#heldText
    this.#heldText = ''
    this.#heldReasoning = ''
  }

  take(): OutputPiece {
    const piece = { text: this.#text, reasoning: this.#reasoning, calls: this.#calls }
    this.#text = ''
    this.#reasoning = ''
    this.#calls = []
    return piece
  }
}

/** The `parse` of formats that read the whole output by `parseAll`. */
export function* parseNothing(): Step<boolean> {
  yield* []
  return false
}

const newCallId = (): string => `call_${newUuid().replaceAll('-', '').slice(0, 24)}`

/** Nine letters and digits, as the templates of Mistral require. */
export const newNineLetterId = (): string => newUuid().replaceAll('-', '').slice(-9)
