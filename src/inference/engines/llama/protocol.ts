/** The messages between the engine and its process. */

import type {
  GenerationDelta,
  GenerationInput,
  ModelFacts,
  FinishReason,
  Sampling,
  Usage,
} from '../../generation/inference-engine.ts'
import type { InferenceErrorCode } from '../../generation/inference-errors.ts'

/** What is loaded, and how. Not passed by arguments or environment: it contains the token. */
export interface LoadOrder {
  readonly modelName: string
  readonly hubToken: string | null
  readonly cacheDir: string
  /** `null` takes the cores that are free. */
  readonly threads: number | null
  readonly gpu: 'auto' | false
  readonly flashAttention: 'auto' | boolean
  readonly sequences: number
  readonly batchSize: number
  /** `null` takes what the model was trained with, up to 4096. */
  readonly contextLength: number | null
  /** False keeps to the library's interface, whatever its version. */
  readonly usesNativeContext: boolean
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
      readonly libraryProblem: string | null
      /** The chat template reads what earlier answers thought. */
      readonly readsThoughts: boolean
    }
  /** A sign of life: a step is done, or the model is still loaded. */
  | { readonly kind: 'alive' }
  | { readonly kind: 'unloadable'; readonly failure: Failure }
  | { readonly kind: 'update'; readonly update: RequestUpdate }
  | { readonly kind: 'tokens'; readonly ask: number; readonly tokens: readonly number[] }

export interface LoadProgress {
  readonly stage: 'download' | 'load'
  /** From 0 to 1. */
  readonly done: number
}

/** An error without its class, which would be lost on the way. */
export interface Failure {
  readonly code: InferenceErrorCode
  readonly message: string
  readonly hint?: string
  /** The field of the request that is wrong. */
  readonly param?: string
  /**
   * What a client is told instead of `unsupported`. Default `unsupported_value`; a field that the
   * model does not know at all is an `unsupported_parameter`, what nobody could take an
   * `invalid_value`.
   */
  readonly told?: 'unsupported_value' | 'unsupported_parameter' | 'invalid_value'
}

/** What happened to a request. */
export interface RequestUpdate {
  readonly id: string
  readonly delta?: GenerationDelta
  readonly end?: PlainEnd
}

export type PlainEnd =
  | { readonly kind: 'done'; readonly finishReason: FinishReason; readonly usage: Usage }
  | { readonly kind: 'failed'; readonly failure: Failure }
  | { readonly kind: 'canceled' }
