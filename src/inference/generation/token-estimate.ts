/** What is counted where nobody tells the tokens of a prompt. */

import type { GenerationInput } from './inference-engine.ts'

/** What a token of ordinary text has, about. */
const charactersPerToken = 4

/** The words of a prompt, without what a model's template adds. */
export function promptText(input: GenerationInput): string {
  return input.kind === 'text'
    ? input.text
    : input.messages.map(({ content }) => content).join('\n')
}

/** By the length of the text. */
export function estimateTokens(text: string): number {
  return Math.ceil(text.length / charactersPerToken)
}
