/** Harmony, the format of gpt-oss: messages in channels for reasoning, calls and answers. */

import { type CallSink, parseNothing, type ToolCallFormat } from './output-parser.ts'
import type { ParserInput, Step } from './parser-input.ts'

const start = '<|start|>'
const channel = '<|channel|>'
const message = '<|message|>'
const ends = ['<|end|>', '<|call|>', '<|return|>', start]

export const harmonyFormat: ToolCallFormat = {
  name: 'gpt-oss (harmony)',
  marks: [start, channel, message, '<|constrain|>', ...ends],
  openings: [],
  answerStart: `${channel}final${message}`,
  parse: parseNothing,
  *parseAll(input, sink) {
    // The prompt ends with the role, so that the first message may begin with its channel.
    while (!input.hasEnded || input.rest !== '') yield* readMessage(input, sink)
  },
}

function* readMessage(input: ParserInput, sink: CallSink): Step<void> {
  const header = yield* input.textUntil(message, ...ends)
  if (header.mark !== message) {
    // A header without marks is text, for example of a model that was not trained with harmony.
    const isText = !header.text.includes(channel) && !/^\s*assistant/.test(header.text)
    if (isText) sink.text(header.text)
    return
  }
  const tool = /\bto=(?:functions\.)?([\w.-]+)/.exec(header.text)?.[1]
  if (tool !== undefined && sink.call(tool)) {
    yield* input.partUntil(ends, (text) => sink.argument(text))
    return
  }
  const isReasoning = header.text.includes(`${channel}analysis`)
  sink.isReasoning = isReasoning
  yield* input.until(ends, (text) => (isReasoning ? sink.reasoning(text) : sink.text(text)))
  sink.isReasoning = false
}
