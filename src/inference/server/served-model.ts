/** What the server reports about its models. */

import type { ModelFacts } from '../generation/inference-engine.ts'
import { unknownModelError } from './requests/invalid-request.ts'

/**
 * What is known about a model. Reading these facts neither loads the model nor delays its
 * unloading.
 */
export interface ServedModel {
  /** The names of the model. `/v1/models` lists them. */
  readonly names: readonly string[]
  /** Other names that requests may use, such as a path. */
  readonly hiddenNames: readonly string[]
  readonly contextLength: number
  readonly isLoaded: boolean
  /** In how many seconds the model is unloaded; `Infinity` if it stays or is in use. */
  readonly leftSeconds: number
  /** The estimated memory of the model; 0 if it is unknown. */
  readonly memoryBytes: number
  /** What the engine has reported about the loaded model; `null` if nothing is known. */
  readonly facts: KnownFacts | null
}

export type KnownFacts = Partial<Pick<ModelFacts, 'purpose' | 'hasChatTemplate' | 'chatTemplate'>>

export function expectModel(id: string, models: readonly ServedModel[]): ServedModel {
  const found = models.find(({ names, hiddenNames }) => [...names, ...hiddenNames].includes(id))
  if (found !== undefined) return found
  throw unknownModelError(
    id,
    models.flatMap(({ names }) => names),
  )
}
