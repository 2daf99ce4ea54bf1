/** The sections of a complete configuration: defaults are filled in, every value is in range. */

import type { GuardrailConfig } from '../guardrails/rules.ts'
import type { Secret } from '../schema/secret.ts'

/** All settings except those of the engine. */
export interface CommonConfig {
  /** The name of the model on a model hub, or a local path. */
  readonly modelName: string
  /** The absolute path if the model is a local file; otherwise the model's name. */
  readonly modelPath: string
  /** The names of the model for clients. Default: the model's name without folder and `.gguf`. */
  readonly servedNames: readonly string[]
  /** The token for the model hub. Only the program that downloads the model gets it. */
  readonly hubToken: Secret | null
  /** What the model is loaded for; `null` if the engine decides by the file of the model. */
  readonly purpose: 'chat' | 'embedding' | null
  /** The number of GPUs that share one model. Default 1. */
  readonly tpSize: number
  /** The absolute path of a LoRA adapter that is applied to the model; `null` for none. */
  readonly adapterPath: string | null
  readonly hardware: HardwareConfig
  readonly llm: LlmConfig
  readonly batching: BatchingConfig
  readonly guardrails: GuardrailConfig
  readonly dynamicWorkers: DynamicWorkersConfig
  readonly server: ServerConfig
}

/** How the HTTP server treats requests (section `server`). */
export interface ServerConfig {
  /** Whether request fields without an effect are refused. Default `false`. */
  readonly isStrict: boolean
}

/** Nodes, GPUs, workers and the length of the queue (section `hardware`). */
export interface HardwareConfig {
  readonly numNodes: number
  /** The number of GPUs per node; 0 for CPU only. */
  readonly numGpus: number
  /** The index of the first node that this backend uses. */
  readonly nodeOffset: number
  /** The number of workers. Default: numNodes × floor(numGpus ÷ tpSize), at least 1. */
  readonly numInfWorkers: number
  /** The maximum number of queued requests. Further requests are refused. Default 10,000. */
  readonly queueLimit: number
  /** The memory that all models may have together. Default `null`: free memory less 2 GB. */
  readonly modelMemoryMb: number | null
}

/** The model's limits and default sampling (section `llm`). */
export interface LlmConfig {
  readonly dtype: string
  /** The maximum length of an answer in tokens. Default 100, or `maxModelLen` if that is less. */
  readonly maxTokens: number
  readonly maxModelLen: number
  readonly temperature: number
  readonly topP: number
  /** The number of most likely tokens to sample from; 0 for all tokens. */
  readonly topK: number
  readonly repetitionPenalty: number
  readonly seed: number | null
  readonly stop: readonly string[]
  readonly ignoreEos: boolean
  readonly systemPrompt: readonly string[]
  readonly gpuMemoryUtilization: number
}

/** How requests are collected into batches (section `input_batching`). */
export interface BatchingConfig {
  readonly isOn: boolean
  readonly maxBatchSize: number
  readonly maxBatchWaitMs: number
  /** Default: `fixed` if the file or an option sets `maxBatchWaitMs`, otherwise `adaptive`. */
  readonly type: 'adaptive' | 'fixed'
}

/** How the number of workers follows the load (section `dynamic_workers`). */
export interface DynamicWorkersConfig {
  readonly isOn: boolean
  readonly minWorkers: number
  /** The maximum number of workers. Default: `numInfWorkers`, at least `minWorkers`. */
  readonly maxWorkers: number
  /** Running and queued requests per worker. Default: what one worker handles at a time. */
  readonly targetOngoingRequests: number
  readonly spinUpSeconds: number
  readonly spinDownSeconds: number
}
