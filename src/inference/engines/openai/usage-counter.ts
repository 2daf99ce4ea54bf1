/** Token counts of answers for which a server reports no usage. */

import type { Log } from '../../../foundation/log.ts'
import type { GenerationInput, Usage } from '../../generation/inference-engine.ts'
import { estimateTokens, promptText } from '../../generation/token-estimate.ts'

/**
 * Counts the tokens of calls for which the server reported no usage: with the server's tokenizer if
 * there is one, otherwise from the length of the text. Tokens that the model's chat template adds
 * are not counted. Warns once.
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

  async count(input: GenerationInput, output: string): Promise<Usage> {
    if (!this.#hasWarned) {
      this.#hasWarned = true
      this.#log.warn('UsageEstimated', 'the server reports no usage; token counts are estimates')
    }
    const [promptTokens, completionTokens] = [
      await this.#countTokens(promptText(input)),
      await this.#countTokens(output),
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
