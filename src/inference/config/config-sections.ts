/** The sections of a complete configuration: defaults are filled in, every value is in range. */

import type { GuardrailConfig } from '../guardrails/rules.ts'
import type { Secret } from '../schema/secret.ts'

/** All settings but those of the engine. */
export interface CommonConfig {
  /** A hub name or a local path. */
  readonly modelName: string
  /** What an engine loads: the absolute path of a local model, otherwise its name. */
  readonly modelPath: string
  /** The names of the model for clients. Default: the model's name, without folder and `.gguf`. */
  readonly servedNames: readonly string[]
  /** Passed only to the program that downloads the model. */
  readonly hubToken: Secret | null
  /** The number of GPUs that share one model. Default 1. */
  readonly tpSize: number
  readonly hardware: HardwareConfig
  readonly llm: LlmConfig
  readonly batching: BatchingConfig
  readonly guardrails: GuardrailConfig
  readonly dynamicWorkers: DynamicWorkersConfig
  readonly server: ServerConfig
}

/** The section `server`. */
export interface ServerConfig {
  /** Refuses request fields that have no effect. Default `false`. */
  readonly isStrict: boolean
}

/** The section `hardware`. */
export interface HardwareConfig {
  readonly numNodes: number
  /** GPUs per node; 0 for CPU only. */
  readonly numGpus: number
  /** The first node that this backend uses. */
  readonly nodeOffset: number
  /** The number of workers. Default: numNodes × floor(numGpus ÷ tpSize), at least 1. */
  readonly numInfWorkers: number
  /** How many requests may be queued; further ones are refused. Default 10,000. */
  readonly queueLimit: number
}

/** The section `llm`. */
export interface LlmConfig {
  readonly dtype: string
  /** The maximum length of an answer in tokens. Default 100, or `maxModelLen` if that is less. */
  readonly maxTokens: number
  readonly maxModelLen: number
  readonly temperature: number
  readonly topP: number
  /** 0 considers all tokens. */
  readonly topK: number
  readonly repetitionPenalty: number
  readonly seed: number | null
  readonly stop: readonly string[]
  readonly ignoreEos: boolean
  readonly systemPrompt: readonly string[]
  readonly gpuMemoryUtilization: number
}

/** The section `input_batching`. */
export interface BatchingConfig {
  readonly isOn: boolean
  readonly maxBatchSize: number
  readonly maxBatchWaitMs: number
  /** Default: `fixed` if the file or an option gives `maxBatchWaitMs`, otherwise `adaptive`. */
  readonly type: 'adaptive' | 'fixed'
}

/** The section `dynamic_workers`. */
export interface DynamicWorkersConfig {
  readonly isOn: boolean
  readonly minWorkers: number
  /** The maximum number of workers. Default: `numInfWorkers`, at least `minWorkers`. */
  readonly maxWorkers: number
  /**
   * The number of requests, running and queued, per wanted worker. Default: what one worker handles
   * at a time, which is the engine's sequences or concurrency, at most a batch.
   */
  readonly targetOngoingRequests: number
  readonly spinUpSeconds: number
  readonly spinDownSeconds: number
}
