/** Reads outputs of models as the engine does. */

import {
  OutputParser,
  type OutputParserOptions,
  type OutputDelta,
} from '../../../../../src/inference/engines/llama/formats/output-parser.ts'
import { planParsing } from '../../../../../src/inference/engines/llama/formats/output-parsing.ts'
import { renderPrompt } from '../../../../../src/inference/engines/llama/prepared-prompt.ts'
import type { Vocabulary } from '../../../../../src/inference/engines/llama/runtime.ts'
import type { GenerationInput } from '../../../../../src/inference/generation/inference-engine.ts'
import { readTemplates } from '../templates/bundle-templates.ts'
import { templateOf } from '../templates/template-of.ts'

type Chat = Extract<GenerationInput, { kind: 'chat' }>

/** The templates of llama.cpp, by name. */
export const sources = readTemplates()

/** The tools of most tests. */
export const tools = [
  {
    name: 'weather',
    parameters: {
      type: 'object',
      properties: {
        // The template of Command R+ fails without descriptions and the type of other properties.
        city: { type: 'string', description: 'The place.' },
        days: { type: 'integer', description: 'How many.' },
        deep: {
          type: 'object',
          description: 'Anything.',
          additionalProperties: { type: 'string' },
        },
      },
    },
  },
  { name: 'now' },
]

export interface Read {
  readonly text: string
  readonly reasoning: string
  readonly calls: readonly { readonly name: string; readonly arguments: string }[]
}

/** The output of a parser for the pieces, in order. */
export function read(
  pieces: readonly string[],
  options: Partial<OutputParserOptions>,
  isCut = false,
): Read {
  const parser = new OutputParser({ format: null, tools, reasoning: null, ...options })
  return collect([...pieces.map((one) => parser.push(one)), parser.end(isCut)])
}

export function collect(pieces: readonly OutputDelta[]): Read {
  const calls: { name: string; arguments: string }[] = []
  let text = ''
  let reasoning = ''
  for (const piece of pieces) {
    text += piece.text
    reasoning += piece.reasoning
    for (const { index, id, name, arguments: more } of piece.calls) {
      if (name !== undefined) {
        if (id === undefined || index !== calls.length) throw new Error('a call without its place')
        calls.push({ name, arguments: '' })
      }
      const call = calls[index]
      if (call === undefined) throw new Error('arguments without a call')
      call.arguments += more
    }
  }
  return { text, reasoning, calls }
}

/** With the arguments of calls as values. */
export const parsed = ({ calls, ...rest }: Read) => ({
  ...rest,
  calls: calls.map(({ name, arguments: text }) => [name, JSON.parse(text) as unknown]),
})

export const messages = [{ role: 'user', content: 'How is the weather?' }] as const
const vocabulary = { tokenize: () => [] } as unknown as Vocabulary

/** How the engine reads the output of a model that has this template. */
export function readingBy(source: string, more: Partial<Chat> = {}, hasGrammar = false) {
  const template = templateOf(source)
  const input = { kind: 'chat', messages, tools, ...more } as const
  const prompt = renderPrompt(input, template, hasGrammar).pieces.join('')
  const { parser } = planParsing({ input, template, prompt, hasGrammar, vocabulary })
  if (parser === null) throw new Error('the output is not read')
  return parser
}
