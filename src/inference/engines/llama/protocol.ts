/** The messages between the engine and the model's process. */

import type {
  GenerationDelta,
  GenerationInput,
  ModelFacts,
  FinishReason,
  PromptTokens,
  Sampling,
  Usage,
} from '../../generation/inference-engine.ts'
import type { InferenceErrorCode } from '../../generation/inference-errors.ts'

/** Sent in a message, not in arguments or the environment, because it contains the hub token. */
export interface LoadRequest {
  readonly modelName: string
  readonly hubToken: string | null
  readonly cacheDir: string
  /** The number of threads; `null` for the fastest number up to the number of free cores. */
  readonly threads: number | null
  readonly gpu: 'auto' | false
  readonly flashAttention: 'auto' | boolean
  readonly sequences: number
  /** The number of prompt tokens in a step; `null` for the fastest number by measurement. */
  readonly batchSize: number | null
  /** The context length; `null` for the model's context length, up to 4096. */
  readonly contextLength: number | null
  /** What the model is loaded for; `null`: what its file says. */
  readonly purpose?: 'chat' | 'embedding' | null
  /** The file of a LoRA adapter; `null` for none. */
  readonly adapterPath?: string | null
}

export interface LlamaRequest {
  readonly id: string
  readonly input: GenerationInput
  readonly sampling: Sampling
}

export type MessageToLlama =
  | { readonly kind: 'load'; readonly request: LoadRequest }
  | { readonly kind: 'generate'; readonly requests: readonly LlamaRequest[] }
  | { readonly kind: 'cancel' | 'hold' | 'resume'; readonly id: string }
  | { readonly kind: 'query'; readonly queryId: number; readonly query: TokenQuery }

export type MessageFromLlama =
  | { readonly kind: 'progress'; readonly progress: LoadProgress }
  | {
      readonly kind: 'loaded'
      readonly facts: ModelFacts
      readonly templateProblem: string | null
      readonly threadWarning: string | null
      /** Whether the chat template reads the reasoning of earlier answers. */
      readonly readsReasoning: boolean
      readonly readsNames: boolean
      /**
       * Whether the chat template can switch reasoning on or off, or has levels of reasoning
       * effort.
       */
      readonly readsEffort: boolean
    }
  /** A sign of life: a step is complete, or the model is still loading. */
  | { readonly kind: 'alive' }
  | { readonly kind: 'unloadable'; readonly failure: Failure }
  | { readonly kind: 'update'; readonly update: RequestUpdate }
  | {
      readonly kind: 'queryResult'
      readonly queryId: number
      readonly result: PromptTokens | Failure
    }

/** A query about texts and tokens. The result has both. */
export type TokenQuery =
  | { readonly kind: 'tokenize'; readonly text: string }
  | { readonly kind: 'detokenize'; readonly tokens: readonly number[] }
  | { readonly kind: 'readPrompt'; readonly input: GenerationInput }

export interface LoadProgress {
  readonly stage: 'download' | 'load'
  /** The completed fraction, from 0 to 1. */
  readonly done: number
}

/** An error as plain data, because messages do not preserve classes. */
export interface Failure {
  readonly code: InferenceErrorCode
  readonly message: string
  readonly hint?: string
  readonly param?: string
  /** The error code for the client: unsupported by this model, or invalid for every model. */
  readonly clientCode?: 'unsupported_value' | 'unsupported_parameter' | 'invalid_value'
}

/** More output of a request, its result, or both. */
export interface RequestUpdate {
  readonly id: string
  readonly delta?: GenerationDelta
  readonly end?: RequestEnd
}

export type RequestEnd =
  | { readonly kind: 'done'; readonly finishReason: FinishReason; readonly usage: Usage }
  | { readonly kind: 'failed'; readonly failure: Failure }
  | { readonly kind: 'canceled' }
