/** Parses the generated text incrementally into content, reasoning and tool calls. */

import { newUuid } from '../../../../foundation/ids.ts'
import { isJsonText } from '../../../../foundation/json-value.ts'
import type { ToolCallPiece, ToolDefinition } from '../../../generation/inference-engine.ts'
import { ParserInput, type ParseStep } from './parser-input.ts'
import type { AnswerMarks, ReasoningMarks } from './reasoning.ts'

export interface CallSink {
  readonly tools: readonly ToolDefinition[]
  /** The parser sets this while it reads reasoning, so that reasoning tokens are counted. */
  isReasoning: boolean
  text(text: string): void
  reasoning(text: string): void
  /** Returns `false` if no tool has this name. The text is then not a call. */
  call(name: string, id?: string): boolean
  argument(text: string): void
}

export interface ToolCallFormat {
  readonly name: string
  /** The texts of control tokens that the parser needs. */
  readonly marks: readonly string[]
  readonly openings: readonly string[]
  readonly allowsBareCalls?: boolean
  /** If the text is not a call, returns `false` and emits nothing. */
  parse(input: ParserInput, sink: CallSink, opening: string): ParseStep<boolean>
  /** Reads the whole output, for formats with more structure than text and calls. */
  parseAll?(input: ParserInput, sink: CallSink): ParseStep<void>
  /** The text that begins an answer without calls and reasoning. Default: none. */
  readonly answerStart?: string
  readonly createId?: (name: string, index: number) => string
}

export interface OutputDelta {
  readonly text: string
  readonly reasoning: string
  readonly calls: readonly ToolCallPiece[]
}

export interface OutputParserOptions {
  readonly format: ToolCallFormat | null
  readonly tools: readonly ToolDefinition[]
  readonly reasoning: ReasoningMarks | null
  readonly answer?: AnswerMarks
  readonly isReasoning?: boolean
  readonly createId?: (name: string, index: number) => string
  /** The maximum number of calls. Further calls are dropped. Default: no limit. */
  readonly maxCalls?: number
}

/** Omits white space around calls and reasoning. */
export class OutputParser implements CallSink {
  readonly #input = new ParserInput()
  readonly #steps: ParseStep<void>
  readonly tools: readonly ToolDefinition[]
  readonly #names: ReadonlySet<string>
  readonly #createId: (name: string, index: number) => string
  readonly #trimsText: boolean
  readonly #maxCalls: number
  hasDroppedCalls = false
  /** Whether the next text is reasoning, or the mark that closes it. */
  isReasoning = false
  #text = ''
  #reasoning = ''
  #calls: ToolCallPiece[] = []
  #arguments = ''
  #heldText = ''
  #heldReasoning = ''
  callCount = 0
  hasText = false
  #hasReasoning = false

  constructor(options: OutputParserOptions) {
    const { tools, format, createId, maxCalls = Infinity } = options
    this.#maxCalls = maxCalls
    this.tools = tools
    this.#names = new Set(tools.map(({ name }) => name))
    this.#createId = createId ?? format?.createId ?? newCallId
    this.#trimsText = format !== null
    this.#steps = parseOutput(this.#input, this, options)
    this.#steps.next()
  }

  push(text: string): OutputDelta {
    this.#input.push(text)
    this.#steps.next()
    return this.#takeDelta()
  }

  end(isCut: boolean): OutputDelta {
    this.#input.end(isCut)
    this.#steps.next()
    // Without calls, trailing white space belongs to the answer.
    if (this.callCount === 0 && (this.hasText || !this.#hasReasoning)) this.#text += this.#heldText
    this.#heldText = ''
    this.#heldReasoning = ''
    return this.#takeDelta()
  }

  get isCallComplete(): boolean {
    return isJsonText(this.#arguments)
  }

  get hasPendingText(): boolean {
    return this.#input.hasPendingText || this.#heldText !== '' || this.#heldReasoning !== ''
  }

  text(text: string): void {
    // After a cut-off call, the text is dropped, because it may be a part of a mark.
    if (this.hasDroppedCalls || (this.#input.isCut && this.callCount > 0)) return
    const end = this.#trimsText || !this.hasText ? text.trimEnd().length : text.length
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
    this.hasDroppedCalls ||= this.callCount >= this.#maxCalls
    if (this.hasDroppedCalls) return true
    const index = this.callCount++
    this.#arguments = ''
    this.#calls.push({ index, id: id ?? this.#createId(name, index), name, arguments: '' })
    return true
  }

  argument(text: string): void {
    if (text === '' || this.hasDroppedCalls) return
    this.#arguments += text
    const index = this.callCount - 1
    const last = this.#calls.at(-1)
    if (last?.index !== index) this.#calls.push({ index, arguments: text })
    else this.#calls[this.#calls.length - 1] = { ...last, arguments: last.arguments + text }
  }

  #takeDelta(): OutputDelta {
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
): ParseStep<void> {
  const { format, reasoning, answer, isReasoning = false } = options
  if (format?.parseAll !== undefined) {
    yield* format.parseAll(input, sink)
    return
  }
  if (isReasoning) yield* readReasoning(input, sink, options)
  yield* bareCalls(input, sink, format)
  const openings = format?.openings ?? []
  const { open, close, marks: controls = [], areControlTokens = false } = reasoning ?? {}
  const { opens = [], closes = [] } = answer ?? {}
  const answerMarks = new Set([...opens, ...closes])
  const single = new Set(areControlTokens ? [...toList(close), ...controls] : [])
  const marks = [...toList(open), ...toList(close), ...answerMarks, ...single, ...openings]
  for (;;) {
    const mark = yield* input.until(marks, (text) => sink.text(text))
    if (mark === null) return
    // A closing mark without an opening mark means that there was no reasoning.
    const isEnd = mark === close && !sink.hasText
    const isBegin = mark === open && (areControlTokens || !sink.hasText)
    if (isBegin) yield* readReasoning(input, sink, options)
    if (isEnd || answerMarks.has(mark)) yield* input.space()
    const isLeftOut = answerMarks.has(mark) || single.has(mark)
    if (isBegin || isEnd) yield* bareCalls(input, sink, format)
    else if (!isLeftOut) yield* readCalls(input, sink, format, mark)
  }
}

const toList = (mark: string | undefined): readonly string[] => (mark === undefined ? [] : [mark])

function* bareCalls(
  input: ParserInput,
  sink: CallSink,
  format: ToolCallFormat | null,
): ParseStep<void> {
  if (format?.allowsBareCalls === true) yield* input.attempt(() => format.parse(input, sink, ''))
}

function* readCalls(
  input: ParserInput,
  sink: CallSink,
  format: ToolCallFormat | null,
  mark: string,
): ParseStep<void> {
  const isOpening = format?.openings.includes(mark) === true
  if (!isOpening || !(yield* input.attempt(() => format.parse(input, sink, mark)))) sink.text(mark)
}

function* readReasoning(
  input: ParserInput,
  sink: CallSink,
  { format, reasoning, answer }: OutputParserOptions,
): ParseStep<void> {
  if (reasoning === null) return
  if (reasoning.keepsOpenMark === true) sink.reasoning(reasoning.open)
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
    const dry = createDryRun(sink)
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

/** Calls in reasoning are drafts if text follows. Returns where they end; `null` for real calls. */
function* endOfDrafts(
  input: ParserInput,
  sink: CallSink,
  format: ToolCallFormat,
  opening: string,
  closings: readonly string[],
): ParseStep<number | null> {
  for (let mark: string | null = opening; mark !== null;) {
    const start = input.position
    const isClosing: boolean = closings.includes(mark)
    if (!isClosing && !(yield* format.parse(input, sink, mark))) return start
    yield* input.space()
    mark = yield* input.accept(...format.openings, ...closings)
  }
  return input.isAtEnd ? null : input.position
}

const createDryRun = ({ tools }: CallSink): CallSink => ({
  tools,
  isReasoning: false,
  text: () => undefined,
  reasoning: () => undefined,
  call: (name) => tools.some((tool) => tool.name === name),
  argument: () => undefined,
})

/** The `parse` of formats that read the whole output with `parseAll`. */
export function* parseNothing(): ParseStep<boolean> {
  yield* []
  return false
}

const newCallId = (): string => `call_${newUuid().replaceAll('-', '').slice(0, 24)}`

/** Returns an id of nine letters and digits, as Mistral's templates require. */
export const newMistralCallId = (): string => newUuid().replaceAll('-', '').slice(-9)
