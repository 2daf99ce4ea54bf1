/** Parses the generated text incrementally into content, reasoning and tool calls. */

import { newUuid } from '../../../../foundation/ids.ts'
import type { ToolCallPiece, ToolDefinition } from '../../../generation/inference-engine.ts'
import { ParserInput, type Step } from './parser-input.ts'
import type { AnswerMarks, ReasoningMarks } from './reasoning.ts'

/** Receives the parts that the parser of a tool-call format finds. */
export interface CallSink {
  readonly tools: readonly ToolDefinition[]
  /** Set by the parser while it reads reasoning, so that reasoning tokens are counted. */
  isReasoning: boolean
  text(text: string): void
  reasoning(text: string): void
  /** Begins a call. Returns `false` if there is no such tool, so that the text is not a call. */
  call(name: string, id?: string): boolean
  /** Receives more of the latest call's arguments, as JSON text. */
  argument(text: string): void
}

/** How a family of models writes tool calls. */
export interface ToolCallFormat {
  readonly name: string
  /** Texts of control tokens that the parser needs. */
  readonly marks: readonly string[]
  /** Texts that begin a call, or a list of calls. */
  readonly openings: readonly string[]
  /** Whether the output may begin with a call without an opening. */
  readonly isBare?: boolean
  /**
   * Reads calls after one of the openings, or at the beginning of the output. Returns `false` and
   * emits nothing if the text is not a call.
   */
  parse(input: ParserInput, sink: CallSink, opening: string): Step<boolean>
  /** Reads the whole output, for formats that are more than text with calls. */
  parseAll?(input: ParserInput, sink: CallSink): Step<void>
  /** The text that begins an answer without calls and reasoning. Default: none. */
  readonly answerStart?: string
  /** Creates the ids of calls. Default: `call_` followed by random text. */
  readonly toId?: (name: string, index: number) => string
}

/** The newly parsed parts of the output. */
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
  /** Default: nothing marks the answer. */
  readonly answer?: AnswerMarks
  /** Whether the prompt ends within reasoning. */
  readonly isReasoning?: boolean
  readonly toId?: (name: string, index: number) => string
  /** The maximum number of calls. Further calls are dropped. Default: no limit. */
  readonly maxCalls?: number
}

/** Collects the output. Omits white space around calls and reasoning. */
export class OutputParser implements CallSink {
  readonly #input = new ParserInput()
  readonly #steps: Step<void>
  readonly tools: readonly ToolDefinition[]
  readonly #names: ReadonlySet<string>
  readonly #toId: (name: string, index: number) => string
  readonly #trims: boolean
  readonly #maxCalls: number
  /** Whether the output has more calls than requested. */
  isFull = false
  /** Whether the next text is reasoning or the mark that closes it. */
  isReasoning = false
  #text = ''
  #reasoning = ''
  #calls: ToolCallPiece[] = []
  /** The arguments of the latest call so far. */
  #arguments = ''
  #heldText = ''
  #heldReasoning = ''
  /** The number of calls that have begun. */
  callCount = 0
  /** Whether content other than white space was emitted. */
  hasText = false
  #hasReasoning = false

  constructor(options: OutputParserOptions) {
    const { tools, format, toId, maxCalls = Infinity } = options
    this.#maxCalls = maxCalls
    this.tools = tools
    this.#names = new Set(tools.map(({ name }) => name))
    this.#toId = toId ?? format?.toId ?? newCallId
    this.#trims = format !== null
    this.#steps = parseOutput(this.#input, this, options)
    this.#steps.next()
  }

  push(text: string): OutputPiece {
    this.#input.push(text)
    this.#steps.next()
    return this.#take()
  }

  /** `isCut` means that the output was cut off, for example at its token limit. */
  end(isCut: boolean): OutputPiece {
    this.#input.end(isCut)
    this.#steps.next()
    // Trailing white space of an answer without calls belongs to the answer.
    if (this.callCount === 0 && (this.hasText || !this.#hasReasoning)) this.#text += this.#heldText
    this.#heldText = ''
    this.#heldReasoning = ''
    return this.#take()
  }

  /** Whether the latest call's arguments are complete JSON. */
  get isCallWhole(): boolean {
    try {
      return JSON.parse(this.#arguments) !== undefined
    } catch {
      return false
    }
  }

  /** Whether text is held back because its meaning is not known yet. */
  get isHolding(): boolean {
    return this.#input.isHolding || this.#heldText !== '' || this.#heldReasoning !== ''
  }

  text(text: string): void {
    // In an output that was cut off, text after a call may be part of a mark or call.
    if (this.isFull || (this.#input.isCut && this.callCount > 0)) return
    const end = this.#trims || !this.hasText ? text.trimEnd().length : text.length
    if (end === 0) {
      this.#heldText += text
      return
    }
    const kept = this.#heldText + text.slice(0, end)
    this.#heldText = text.slice(end)
    const isAfter = !this.hasText && (this.#hasReasoning || this.callCount > 0)
    this.#text += isAfter ? kept.trimStart() : kept
    this.hasText = true
  }

  reasoning(text: string): void {
    this.#heldText = ''
    const kept = text.trimEnd()
    if (kept === '') {
      this.#heldReasoning += text
      return
    }
    this.#reasoning += this.#heldReasoning + kept
    this.#heldReasoning = text.slice(kept.length)
    this.#hasReasoning = true
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

  #take(): OutputPiece {
    const piece = { text: this.#text, reasoning: this.#reasoning, calls: this.#calls }
    this.#text = ''
    this.#reasoning = ''
    this.#calls = []
    return piece
  }
}

function* parseOutput(
  input: ParserInput,
  sink: OutputParser,
  options: OutputParserOptions,
): Step<void> {
  const { format, reasoning, answer, isReasoning = false } = options
  if (format?.parseAll !== undefined) {
    yield* format.parseAll(input, sink)
    return
  }
  if (isReasoning) yield* readReasoning(input, sink, options)
  yield* bareCalls(input, sink, format)
  const openings = format?.openings ?? []
  const { open, close, marks: controls = [], isControl = false } = reasoning ?? {}
  const { opens = [], closes = [] } = answer ?? {}
  const answerMarks = new Set([...opens, ...closes])
  const single = new Set(isControl ? [...listed(close), ...controls] : [])
  const marks = [...listed(open), ...listed(close), ...answerMarks, ...single, ...openings]
  for (;;) {
    const mark = yield* input.until(marks, (text) => sink.text(text))
    if (mark === null) return
    // A closing mark of reasoning without an opening mark: there was no reasoning.
    const isEnd = mark === close && !sink.hasText
    const isBegin = mark === open && (isControl || !sink.hasText)
    if (isBegin) yield* readReasoning(input, sink, options)
    if (isEnd || answerMarks.has(mark)) yield* input.space()
    const isLeftOut = answerMarks.has(mark) || single.has(mark)
    if (isBegin || isEnd) yield* bareCalls(input, sink, format)
    else if (!isLeftOut) yield* readCalls(input, sink, format, mark)
  }
}

const listed = (mark: string | undefined): readonly string[] => (mark === undefined ? [] : [mark])

/** Reads calls without an opening, which some formats allow at the beginning of an answer. */
function* bareCalls(input: ParserInput, sink: CallSink, format: ToolCallFormat | null): Step<void> {
  if (format?.isBare === true) yield* input.attempt(() => format.parse(input, sink, ''))
}

/** Reads calls after an opening; any other mark is text. */
function* readCalls(
  input: ParserInput,
  sink: CallSink,
  format: ToolCallFormat | null,
  mark: string,
): Step<void> {
  const isOpening = format?.openings.includes(mark) === true
  if (!isOpening || !(yield* input.attempt(() => format.parse(input, sink, mark)))) sink.text(mark)
}

/** Reads reasoning up to its closing mark, or to the beginning of the answer or of a call. */
function* readReasoning(
  input: ParserInput,
  sink: CallSink,
  { format, reasoning, answer }: OutputParserOptions,
): Step<void> {
  if (reasoning === null) return
  if (reasoning.keepsOpen === true) sink.reasoning(reasoning.open)
  const openings = format?.openings ?? []
  const { opens = [], closes = [] } = answer ?? {}
  const marks = [reasoning.close, ...opens, ...openings]
  sink.isReasoning = true
  yield* input.space()
  let draftsEnd = 0
  for (;;) {
    const mark = yield* input.until(marks, (text) => sink.reasoning(text))
    sink.isReasoning = false
    if (format === null || mark === null || !openings.includes(mark)) break
    const dry = dryRun(sink)
    if (input.position > draftsEnd) {
      const end = yield* input.peek(() => endOfDrafts(input, dry, format, mark, closes))
      if (end === null && (yield* format.parse(input, sink, mark))) return
      draftsEnd = end ?? 0
    }
    sink.isReasoning = true
    sink.reasoning(mark)
  }
  yield* input.space()
}

/**
 * The position up to which calls within reasoning are drafts, because the model continues to reason
 * after them; `null` if nothing but calls follows.
 */
function* endOfDrafts(
  input: ParserInput,
  sink: CallSink,
  format: ToolCallFormat,
  opening: string,
  closings: readonly string[],
): Step<number | null> {
  for (let mark: string | null = opening; mark !== null;) {
    const start = input.position
    const isClosing: boolean = closings.includes(mark)
    if (!isClosing && !(yield* format.parse(input, sink, mark))) return start
    yield* input.space()
    mark = yield* input.accept(...format.openings, ...closings)
  }
  return input.isAtEnd ? null : input.position
}

/** Accepts what a parser finds, and emits nothing. */
const dryRun = ({ tools }: CallSink): CallSink => ({
  tools,
  isReasoning: false,
  text: () => undefined,
  reasoning: () => undefined,
  call: (name) => tools.some((tool) => tool.name === name),
  argument: () => undefined,
})

/** The `parse` of formats that read the whole output with `parseAll`. */
export function* parseNothing(): Step<boolean> {
  yield* []
  return false
}

const newCallId = (): string => `call_${newUuid().replaceAll('-', '').slice(0, 24)}`

/** Nine letters and digits, as Mistral's templates require. */
export const newMistralCallId = (): string => newUuid().replaceAll('-', '').slice(-9)
