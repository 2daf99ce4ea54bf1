/** The model that a server serves: finds it in the list of models, and counts its tokens. */

import type { Log } from '../../../foundation/log.ts'
import { didYouMean } from '../../../foundation/options.ts'
import type { GenerationInput, Usage } from '../../generation/inference-engine.ts'
import { inferenceError } from '../../generation/inference-errors.ts'
import { estimateTokens, promptText } from '../../generation/token-estimate.ts'
import { countOr, listOf, pick, textOr } from './untrusted-json.ts'

const maxNames = 10

/** The model's context length in the list, or `null`; throws if the model is not served. */
export function servedContextLength(list: unknown, model: string): number | null {
  const entries = listOf(pick(list, 'data'))
  const entry = entries.find((one) => pick(one, 'id') === model)
  if (entry !== undefined) return countOr(pick(entry, 'max_model_len'), null)
  const names = entries.map((one) => textOr(pick(one, 'id'), '')).filter((name) => name !== '')
  const known = names.slice(0, maxNames).map((name) => `"${name}"`)
  const more = names.length > maxNames ? ` and ${names.length - maxNames} more` : ''
  const served = known.length === 0 ? 'it serves no model' : `it serves ${known.join(', ')}${more}`
  throw inferenceError(
    'engine_error',
    `the server does not serve "${model}": ${served}${didYouMean(model, names)}`,
    { hint: "set the model's name to one that the server lists" },
  )
}

/**
 * Counts the tokens of calls for which the server reported no usage: with the server's tokenizer if
 * there is one, else by the length of the text. What the model's template adds is not counted.
 * Warns once.
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
