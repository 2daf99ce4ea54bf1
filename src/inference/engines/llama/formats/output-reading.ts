/** Decides how a request's output is parsed, based on its tools, its format and the template. */

import type { GenerationInput } from '../../../generation/inference-engine.ts'
import type { Token, Vocabulary } from '../runtime.ts'
import type { ChatTemplate } from '../templates/chat-template.ts'
import { newMistralCallId, type OutputParserOptions, type ToolCallFormat } from './output-parser.ts'
import {
  answerMarksOf,
  opensReasoning,
  type ReasoningMarks,
  reasoningMarksOf,
} from './reasoning.ts'
import type { OutputReading } from './result-text.ts'
import { callableTools } from '../templates/template-messages.ts'
import { forcedFormat, plainFormat, instructedFormat, toolFormatOf } from './tool-formats.ts'

export interface ReadingOptions {
  readonly input: GenerationInput
  readonly template: ChatTemplate | null
  /** The rendered prompt. */
  readonly prompt: string
  /** Whether a grammar determines the output. */
  readonly hasGrammar: boolean
  readonly vocabulary: Vocabulary
}

const plainReading: OutputReading = { parser: null, marks: new Map() }

export function readingOf(options: ReadingOptions): OutputReading {
  const { input, hasGrammar, vocabulary } = options
  if (input.kind === 'text') return plainReading
  const parser = hasGrammar ? grammarParser(options, input) : chatParser(options, input)
  if (parser === null) return plainReading
  const { format, reasoning, answer } = parser
  const { opens = [], closes = [] } = answer ?? {}
  const texts = [...(format?.marks ?? []), ...marksOf(reasoning), ...opens, ...closes]
  return { parser, marks: markTokens(texts, vocabulary) }
}

type Chat = Extract<GenerationInput, { kind: 'chat' }>

/** Whether the output must be a tool call. */
export const requiresCall = (input: GenerationInput): boolean =>
  input.kind === 'chat' && (input.toolChoice === 'required' || typeof input.toolChoice === 'object')

/** The parser for an output that follows a grammar and has no reasoning; `null` for plain text. */
function grammarParser({ template }: ReadingOptions, input: Chat): OutputParserOptions | null {
  if (!requiresCall(input)) return null
  const tools = callableTools(input)
  return { format: forcedFormat(tools), tools, reasoning: null, ...callIdsOf(template) }
}

function chatParser({ template, prompt }: ReadingOptions, input: Chat): OutputParserOptions {
  const tools = callableTools(input)
  const maxCalls = input.parallelToolCalls === false ? { maxCalls: 1 } : {}
  if (template === null) {
    return { format: tools.length === 0 ? null : plainFormat, tools, reasoning: null, ...maxCalls }
  }
  const reasoning = reasoningMarksOf(template.source)
  return {
    format: formatOf(template, tools.length > 0),
    tools,
    reasoning,
    answer: answerMarksOf(template.source),
    isReasoning: opensReasoning(prompt, reasoning),
    ...maxCalls,
    ...callIdsOf(template),
  }
}

/** The id format that the template or its family requires, even if calls have another format. */
function callIdsOf(template: ChatTemplate | null): Pick<OutputParserOptions, 'toId'> {
  if (template === null) return {}
  const { source, traits } = template
  const toId = traits.callIds === 'nine' ? newMistralCallId : toolFormatOf(source).toId
  return toId === undefined ? {} : { toId }
}

/** `null` if the output is text without calls. */
function formatOf({ source, traits }: ChatTemplate, hasTools: boolean): ToolCallFormat | null {
  const format = toolFormatOf(source)
  if (format.parseAll !== undefined) return format
  if (!hasTools) return null
  return traits.knowsTools ? format : instructedFormat(source)
}

/**
 * The text between the prompt and an output that follows a grammar: the mark that closes the
 * reasoning which the template has opened, or the beginning of an answer in the template's format.
 */
export function prefixOfGrammar(template: ChatTemplate | null, prompt: string): string {
  if (template === null) return ''
  const { source } = template
  const reasoning = reasoningMarksOf(source)
  const end = opensReasoning(prompt, reasoning) ? `\n${reasoning.close}\n\n` : ''
  const start = answerMarksOf(source).opens[0] ?? toolFormatOf(source).answerStart ?? ''
  return prompt.endsWith(start) ? end : end + start
}

const marksOf = (reasoning: ReasoningMarks | null): readonly string[] =>
  reasoning === null ? [] : [reasoning.open, reasoning.close, ...(reasoning.marks ?? [])]

/** Includes only texts that are a single token. Longer texts consist of tokens that have text. */
function markTokens(texts: readonly string[], vocabulary: Vocabulary): ReadonlyMap<Token, string> {
  return new Map(
    texts.flatMap((text) => {
      const [token, ...others] = vocabulary.tokenize(text, { special: true, inner: true })
      return token === undefined || others.length > 0 ? [] : [[token, text] as const]
    }),
  )
}
