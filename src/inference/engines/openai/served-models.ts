/** Finds the model that was asked for in a server's list of models. */

import { didYouMean } from '../../../foundation/options.ts'
import { inferenceError } from '../../generation/inference-errors.ts'
import { countOr, listOf, pick, textOr } from './foreign-json.ts'

const mostNames = 10

/** The context length that the list tells of the model, or `null`; throws if it is not served. */
export function servedContextLength(list: unknown, model: string): number | null {
  const entries = listOf(pick(list, 'data'))
  const entry = entries.find((one) => pick(one, 'id') === model)
  if (entry !== undefined) return countOr(pick(entry, 'max_model_len'), null)
  const names = entries.map((one) => textOr(pick(one, 'id'), '')).filter((name) => name !== '')
  const known = names.slice(0, mostNames).map((name) => `"${name}"`)
  const more = names.length > mostNames ? ` and ${names.length - mostNames} more` : ''
  const served = known.length === 0 ? 'it serves none' : `it serves ${known.join(', ')}${more}`
  throw inferenceError(
    'engine_error',
    `the server does not serve "${model}": ${served}${didYouMean(model, names)}`,
    { hint: "set the model's name to one that the server lists" },
  )
}
