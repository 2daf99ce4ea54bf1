/** Formats of outputs that consist of messages with a header: harmony (gpt-oss) and Muse. */

import { type CallSink, parseNothing, type ToolCallFormat } from './output-parser.ts'
import type { ParserInput, ParseStep } from './parser-input.ts'
import { taggedCalls } from './tagged-calls.ts'

const startMark = '<|start|>'
const channelMark = '<|channel|>'
const messageMark = '<|message|>'

interface MessageFormatOptions {
  readonly name: string
  /** Control tokens, except those that begin and end messages. */
  readonly marks: readonly string[]
  readonly ends: readonly string[]
  readonly answerStart: string
  isReasoning(header: string): boolean
  readonly recipients: readonly string[]
  /** Returns `false` if the message does not call an available tool. */
  call(input: ParserInput, sink: CallSink, tool: string): ParseStep<boolean>
}

function messageFormat(options: MessageFormatOptions): ToolCallFormat {
  const { name, marks, ends, answerStart } = options
  return {
    name,
    marks: [startMark, messageMark, ...marks, ...ends],
    openings: [],
    answerStart,
    parse: parseNothing,
    *parseAll(input, sink) {
      // The prompt ends with the role of the first message, so only the rest of its header follows.
      while (!input.isAtEnd) yield* readMessage(input, sink, options)
    },
  }
}

function* readMessage(
  input: ParserInput,
  sink: CallSink,
  options: MessageFormatOptions,
): ParseStep<void> {
  const ends = [...options.ends, startMark]
  const header = yield* input.textUntil(messageMark, ...ends)
  if (header.mark !== messageMark) {
    // A header without marks is the answer of a model that was not trained with the format.
    const isText = !header.text.includes(channelMark) && !/^\s*(?:assistant|to=)/.test(header.text)
    if (isText) sink.text(header.text)
    return
  }
  const tool = findRecipient(header.text)
  if (tool !== undefined && !options.recipients.includes(tool)) {
    const isCall = yield* input.attempt(() => options.call(input, sink, tool))
    // A message to an unavailable tool is skipped, because it is not meant for the user.
    if (!isCall) yield* input.until(ends, () => undefined)
    return
  }
  const isReasoning = options.isReasoning(header.text)
  sink.isReasoning = isReasoning
  yield* input.until(ends, (text) => (isReasoning ? sink.reasoning(text) : sink.text(text)))
  sink.isReasoning = false
}

const findRecipient = (header: string): string | undefined =>
  /\bto=(?:functions\.)?([\w.-]+)/.exec(header)?.[1]

const harmonyEnds = ['<|end|>', '<|call|>', '<|return|>']

export const harmonyFormat = messageFormat({
  name: 'gpt-oss (harmony)',
  marks: [channelMark, '<|constrain|>'],
  ends: harmonyEnds,
  answerStart: `${channelMark}final${messageMark}`,
  isReasoning: (header) => header.includes(`${channelMark}analysis`),
  recipients: ['assistant'],
  *call(input, sink, tool) {
    if (!sink.call(tool)) return false
    yield* input.partUntil([...harmonyEnds, startMark], (text) => sink.argument(text))
    return true
  },
})

const museCalls = taggedCalls({
  name: 'Muse Glimmer',
  wrappers: [['<atem:function_calls>', '</atem:function_calls>']],
  call: ['<atem:invoke name="', '</atem:invoke>'],
  parameter: ['<atem:parameter name="', '</atem:parameter>'],
})

export const museFormat = messageFormat({
  name: museCalls.name,
  marks: [],
  ends: ['<|eom|>', '<|eot|>'],
  answerStart: ` to=user${messageMark}`,
  isReasoning: (header) => findRecipient(header) === 'self',
  recipients: ['self', 'user'],
  *call(input, sink) {
    yield* input.space()
    const opening = yield* input.accept(...museCalls.openings)
    return opening !== null && (yield* museCalls.parse(input, sink, opening))
  },
})
