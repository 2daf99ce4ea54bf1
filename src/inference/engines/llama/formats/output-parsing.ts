/** Decides how a request's output is parsed, based on its tools, its format and the template. */

import type { GenerationInput } from '../../../generation/inference-engine.ts'
import type { Token, Vocabulary } from '../runtime.ts'
import type { ChatTemplate } from '../templates/chat-template.ts'
import { newMistralCallId, type OutputParserOptions, type ToolCallFormat } from './output-parser.ts'
import {
  findAnswerMarks,
  opensReasoning,
  type ReasoningMarks,
  findReasoningMarks,
} from './reasoning.ts'
import type { OutputParsing } from './answer-decoder.ts'
import { callableTools, type ChatInput } from '../templates/template-messages.ts'
import { forcedFormat, plainFormat, ownOrPlainFormat, findToolFormat } from './tool-formats.ts'

export interface OutputParsingOptions {
  readonly input: GenerationInput
  readonly template: ChatTemplate | null
  readonly prompt: string
  readonly hasGrammar: boolean
  readonly vocabulary: Vocabulary
}

const plainParsing: OutputParsing = { parser: null, marks: new Map() }

export function planParsing(options: OutputParsingOptions): OutputParsing {
  const { input, hasGrammar, vocabulary } = options
  if (input.kind === 'text') return plainParsing
  const parser = hasGrammar
    ? grammarParserOptions(options, input)
    : chatParserOptions(options, input)
  if (parser === null) return plainParsing
  const { format, reasoning, answer } = parser
  const { opens = [], closes = [] } = answer ?? {}
  const texts = [...(format?.marks ?? []), ...reasoningMarkTexts(reasoning), ...opens, ...closes]
  return { parser, marks: findMarkTokens(texts, vocabulary) }
}

export const requiresCall = (input: GenerationInput): boolean =>
  input.kind === 'chat' && (input.toolChoice === 'required' || typeof input.toolChoice === 'object')

/** A grammar excludes reasoning. Returns `null` if the output is plain text. */
function grammarParserOptions(
  { template }: OutputParsingOptions,
  input: ChatInput,
): OutputParserOptions | null {
  if (!requiresCall(input)) return null
  const tools = callableTools(input)
  return { format: forcedFormat(tools), tools, reasoning: null, ...callIdOptions(template) }
}

function chatParserOptions(
  { template, prompt }: OutputParsingOptions,
  input: ChatInput,
): OutputParserOptions {
  const tools = callableTools(input)
  const maxCalls = input.parallelToolCalls === false ? { maxCalls: 1 } : {}
  if (template === null) {
    return { format: tools.length === 0 ? null : plainFormat, tools, reasoning: null, ...maxCalls }
  }
  const reasoning = findReasoningMarks(template.source)
  return {
    format: chooseFormat(template, tools.length > 0),
    tools,
    reasoning,
    answer: findAnswerMarks(template.source),
    isReasoning: opensReasoning(prompt, reasoning),
    ...maxCalls,
    ...callIdOptions(template),
  }
}

/** Templates may require ids of a certain form, regardless of the call format. */
function callIdOptions(template: ChatTemplate | null): Pick<OutputParserOptions, 'createId'> {
  if (template === null) return {}
  const { source, traits } = template
  const createId = traits.callIds === 'nine' ? newMistralCallId : findToolFormat(source).createId
  return createId === undefined ? {} : { createId }
}

function chooseFormat({ source, traits }: ChatTemplate, hasTools: boolean): ToolCallFormat | null {
  const format = findToolFormat(source)
  if (format.parseAll !== undefined) return format
  if (!hasTools) return null
  return traits.rendersTools ? format : ownOrPlainFormat(source)
}

/**
 * Returns the text that begins the answer. If the template has begun reasoning, the text ends it
 * first.
 */
export function grammarPrefix(template: ChatTemplate | null, prompt: string): string {
  if (template === null) return ''
  const { source } = template
  const reasoning = findReasoningMarks(source)
  const reasoningEnd = opensReasoning(prompt, reasoning) ? `\n${reasoning.close}\n\n` : ''
  const answerStartText =
    findAnswerMarks(source).opens[0] ?? findToolFormat(source).answerStart ?? ''
  return prompt.endsWith(answerStartText) ? reasoningEnd : reasoningEnd + answerStartText
}

const reasoningMarkTexts = (reasoning: ReasoningMarks | null): readonly string[] =>
  reasoning === null ? [] : [reasoning.open, reasoning.close, ...(reasoning.marks ?? [])]

/** Finds the marks that are single tokens. The tokens of longer marks are output as text. */
function findMarkTokens(
  texts: readonly string[],
  vocabulary: Vocabulary,
): ReadonlyMap<Token, string> {
  return new Map(
    texts.flatMap((text) => {
      const [token, ...others] = vocabulary.tokenize(text, { special: true, inner: true })
      return token === undefined || others.length > 0 ? [] : [[token, text] as const]
    }),
  )
}
