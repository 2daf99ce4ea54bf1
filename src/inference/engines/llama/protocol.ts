/** The messages between the engine and the model's process. */

import type {
  GenerationDelta,
  GenerationInput,
  ModelFacts,
  FinishReason,
  Sampling,
  Usage,
} from '../../generation/inference-engine.ts'
import type { InferenceErrorCode } from '../../generation/inference-errors.ts'

/**
 * The model to load and its settings. Sent as a message instead of arguments or environment
 * variables, because it contains the hub token.
 */
export interface LoadOrder {
  readonly modelName: string
  readonly hubToken: string | null
  readonly cacheDir: string
  /** `null` for the number of free cores. */
  readonly threads: number | null
  readonly gpu: 'auto' | false
  readonly flashAttention: 'auto' | boolean
  readonly sequences: number
  readonly batchSize: number
  /** `null` for the context length that the model was trained with, up to 4096. */
  readonly contextLength: number | null
}

export interface PlainRequest {
  readonly id: string
  readonly input: GenerationInput
  readonly sampling: Sampling
}

export type ToLlama =
  | { readonly kind: 'load'; readonly order: LoadOrder }
  | { readonly kind: 'generate'; readonly requests: readonly PlainRequest[] }
  | { readonly kind: 'cancel' | 'hold' | 'resume'; readonly id: string }
  | { readonly kind: 'tokenize'; readonly ask: number; readonly text: string }

export type FromLlama =
  | { readonly kind: 'progress'; readonly progress: LoadProgress }
  | {
      readonly kind: 'loaded'
      readonly facts: ModelFacts
      /** Why the model's chat template cannot be used; `null` if it can. */
      readonly templateProblem: string | null
      readonly threadProblem: string | null
      /** Whether the chat template reads the reasoning of earlier answers. */
      readonly readsThoughts: boolean
      /** Whether the chat template reads the names of participants. */
      readonly readsNames: boolean
    }
  /** A sign of life: a step is done, or the model is still being loaded. */
  | { readonly kind: 'alive' }
  | { readonly kind: 'unloadable'; readonly failure: Failure }
  | { readonly kind: 'update'; readonly update: RequestUpdate }
  | { readonly kind: 'tokens'; readonly ask: number; readonly tokens: readonly number[] }

export interface LoadProgress {
  readonly stage: 'download' | 'load'
  /** The completed fraction, from 0 to 1. */
  readonly done: number
}

/** An error as plain data, because messages do not preserve its class. */
export interface Failure {
  readonly code: InferenceErrorCode
  readonly message: string
  readonly hint?: string
  /** The name of the invalid request field. */
  readonly param?: string
  /**
   * The error code for clients instead of `unsupported`. Default `unsupported_value`;
   * `unsupported_parameter` for a field that the model does not know at all; `invalid_value` for a
   * value that no model could accept.
   */
  readonly clientCode?: 'unsupported_value' | 'unsupported_parameter' | 'invalid_value'
}

/** More output of a request, its result, or both. */
export interface RequestUpdate {
  readonly id: string
  readonly delta?: GenerationDelta
  readonly end?: PlainEnd
}

export type PlainEnd =
  | { readonly kind: 'done'; readonly finishReason: FinishReason; readonly usage: Usage }
  | { readonly kind: 'failed'; readonly failure: Failure }
  | { readonly kind: 'canceled' }
