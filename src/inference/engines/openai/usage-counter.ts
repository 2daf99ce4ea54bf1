/** Counts the tokens of an exchange whose server did not. */

import type { Log } from '../../../foundation/log.ts'
import type { GenerationInput, Usage } from '../../generation/inference-engine.ts'
import { estimateTokens, promptText } from '../../generation/token-estimate.ts'

/**
 * Counts with the server's tokenizer where there is one, else by the length of the text. Either way
 * a conversation is counted without what the model's template adds. Warns once.
 */
export class UsageCounter {
  readonly #tokenize: (text: string) => Promise<readonly number[]>
  readonly #log: Log
  #canTokenize = true
  #hasWarned = false

  constructor(tokenize: (text: string) => Promise<readonly number[]>, log: Log) {
    this.#tokenize = tokenize
    this.#log = log
  }

  async count(input: GenerationInput, answer: string): Promise<Usage> {
    if (!this.#hasWarned) {
      this.#hasWarned = true
      this.#log.warn('UsageEstimated', 'the server tells no usage; token counts are estimates')
    }
    const [promptTokens, completionTokens] = [
      await this.#countTokens(promptText(input)),
      await this.#countTokens(answer),
    ]
    return { promptTokens, completionTokens }
  }

  async #countTokens(text: string): Promise<number> {
    if (text === '') return 0
    try {
      if (this.#canTokenize) return (await this.#tokenize(text)).length
    } catch {
      this.#canTokenize = false
    }
    return estimateTokens(text)
  }
}
