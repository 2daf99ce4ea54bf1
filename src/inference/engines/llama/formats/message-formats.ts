/**
 * Outputs that consist of messages with a header: harmony (the format of gpt-oss) and Muse's
 * format.
 */

import { type CallSink, parseNothing, type ToolCallFormat } from './output-parser.ts'
import type { ParserInput, Step } from './parser-input.ts'
import { taggedCalls } from './tagged-calls.ts'

const start = '<|start|>'
const channel = '<|channel|>'
const message = '<|message|>'

interface MessageFormatOptions {
  readonly name: string
  /** Control tokens, except those that begin and end messages. */
  readonly marks: readonly string[]
  /** Texts that end a message. */
  readonly ends: readonly string[]
  readonly answerStart: string
  isReasoning(header: string): boolean
  /** Recipients of messages that are not tools. */
  readonly recipients: readonly string[]
  /** Reads a message to a tool. Returns `false` if it does not call an available tool. */
  call(input: ParserInput, sink: CallSink, tool: string): Step<boolean>
}

function messageFormat(options: MessageFormatOptions): ToolCallFormat {
  const { name, marks, ends, answerStart } = options
  return {
    name,
    marks: [start, message, ...marks, ...ends],
    openings: [],
    answerStart,
    parse: parseNothing,
    *parseAll(input, sink) {
      // The prompt ends with the role, so the first message may begin with its header.
      while (!input.isAtEnd) yield* readMessage(input, sink, options)
    },
  }
}

function* readMessage(
  input: ParserInput,
  sink: CallSink,
  options: MessageFormatOptions,
): Step<void> {
  const ends = [...options.ends, start]
  const header = yield* input.textUntil(message, ...ends)
  if (header.mark !== message) {
    // A header without marks is text, such as that of a model that was not trained with the format.
    const isText = !header.text.includes(channel) && !/^\s*(?:assistant|to=)/.test(header.text)
    if (isText) sink.text(header.text)
    return
  }
  const tool = recipientOf(header.text)
  if (tool !== undefined && !options.recipients.includes(tool)) {
    const isCall = yield* input.attempt(() => options.call(input, sink, tool))
    // A message to an unavailable tool is not meant for the user.
    if (!isCall) yield* input.until(ends, () => undefined)
    return
  }
  const isReasoning = options.isReasoning(header.text)
  sink.isReasoning = isReasoning
  yield* input.until(ends, (text) => (isReasoning ? sink.reasoning(text) : sink.text(text)))
  sink.isReasoning = false
}

const recipientOf = (header: string): string | undefined =>
  /\bto=(?:functions\.)?([\w.-]+)/.exec(header)?.[1]

const harmonyEnds = ['<|end|>', '<|call|>', '<|return|>']

export const harmonyFormat = messageFormat({
  name: 'gpt-oss (harmony)',
  marks: [channel, '<|constrain|>'],
  ends: harmonyEnds,
  answerStart: `${channel}final${message}`,
  isReasoning: (header) => header.includes(`${channel}analysis`),
  recipients: ['assistant'],
  *call(input, sink, tool) {
    if (!sink.call(tool)) return false
    yield* input.partUntil([...harmonyEnds, start], (text) => sink.argument(text))
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
  answerStart: ` to=user${message}`,
  isReasoning: (header) => recipientOf(header) === 'self',
  recipients: ['self', 'user'],
  *call(input, sink) {
    yield* input.space()
    const opening = yield* input.accept(...museCalls.openings)
    return opening !== null && (yield* museCalls.parse(input, sink, opening))
  },
})
