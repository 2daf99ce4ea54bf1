/** Estimates token counts where no engine or server reports them. */

import type { GenerationInput } from './inference-engine.ts'

/** The approximate length of a token in ordinary text. */
const charactersPerToken = 4

/** The text of a prompt, without the model's chat template. */
export function promptText(input: GenerationInput): string {
  return input.kind === 'text'
    ? input.text
    : input.messages.map(({ content }) => content).join('\n')
}

/** Estimates the number of tokens from the length of the text. */
export function estimateTokens(text: string): number {
  return Math.ceil(text.length / charactersPerToken)
}
