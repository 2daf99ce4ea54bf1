/** A complete configuration: defaults are filled in and every value is in range. */

import type { GuardrailConfig } from '../guardrails/rules.ts'
import type { Secret } from './secret.ts'

/** Constructor options that take precedence over the file. */
export interface InferenceOverrides {
  readonly modelName?: string
  readonly numNodes?: number
  readonly numGpus?: number
  readonly tpSize?: number
  readonly offset?: number
  readonly maxBatchSize?: number
  readonly maxBatchWaitMs?: number
  /**
   * A kind alone keeps the file's keys if the file has the same kind. A function creates the
   * engines in place of the `engine` section.
   */
  readonly engine?: EngineOption | ((...args: never[]) => unknown)
}

/** A configuration as an object: the sections of a file, with the same keys. */
export interface ConfigSections {
  readonly required?: Readonly<Record<string, unknown>>
  readonly hardware?: Readonly<Record<string, unknown>>
  readonly llm?: Readonly<Record<string, unknown>>
  readonly input_batching?: Readonly<Record<string, unknown>>
  readonly guardrails?: Readonly<Record<string, unknown>>
  readonly dynamic_workers?: Readonly<Record<string, unknown>>
  readonly engine?: Readonly<Record<string, unknown>>
  readonly server?: Readonly<Record<string, unknown>>
}

/** The settings of an inference backend, frozen deeply. */
export interface InferenceConfig {
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
  readonly engine: EngineConfig
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

/** The section `engine`, by its kind. */
export type EngineConfig =
  | LlamaEngineConfig
  | OpenAiEngineConfig
  | ProcessEngineConfig
  | EchoEngineConfig

/** An engine as an option: its kind, or the keys of its section in camelCase. */
export type EngineOption =
  | EngineConfig['kind']
  | ({ readonly kind: 'llama' } & Partial<Omit<LlamaEngineConfig, 'kind'>>)
  | (Pick<OpenAiEngineConfig, 'kind' | 'baseUrl'> &
      Partial<Pick<OpenAiEngineConfig, 'maxConcurrency' | 'paths'>> & { readonly apiKey?: string })
  | (Pick<ProcessEngineConfig, 'kind' | 'command'> &
      Partial<Omit<ProcessEngineConfig, 'kind' | 'command'>>)
  | ({ readonly kind: 'echo' } & Partial<Omit<EchoEngineConfig, 'kind'>>)

/** The engine that runs llama.cpp. */
export interface LlamaEngineConfig {
  readonly kind: 'llama'
  /** `null`: chosen by the engine. */
  readonly threads: number | null
  readonly gpu: 'auto' | false
  /** `auto`: chosen by the engine. */
  readonly flashAttention: 'auto' | boolean
  /** The number of requests at a time. Default 16. */
  readonly sequences: number
  /** The number of prompt tokens that are evaluated in one step. Default 512. */
  readonly batchSize: number
  /** Seconds of silence from a working process after which it is replaced. Default 60. */
  readonly hungSeconds: number
  /** The folder of downloaded models; `null`: the user's cache folder. */
  readonly cacheDir: string | null
}

/** The engine for a server that is already running. */
export interface OpenAiEngineConfig {
  readonly kind: 'openai'
  /** The address of the server, without a trailing `/`. */
  readonly baseUrl: string
  readonly apiKey: Secret | null
  /** The number of requests at a time. Default 64. */
  readonly maxConcurrency: number
  /** Paths that are passed on. Default `/v1/embeddings`, `/v1/responses`, `/v1/rerank`. */
  readonly paths: readonly string[]
}

/** The engine that starts servers. */
export interface ProcessEngineConfig {
  readonly kind: 'process'
  /**
   * The program and its arguments, run without a shell. Placeholders such as {model}, {port} and
   * {worker} are replaced by the values of each worker.
   */
  readonly command: readonly string[]
  /** Variables that are added to the server's environment. Printing the record masks the values. */
  readonly env: Readonly<Record<string, string>>
  readonly startTimeoutSeconds: number
  readonly healthPath: string
  /** The number of requests at a time. Default 64. */
  readonly maxConcurrency: number
  /** The number of cores of each server on a node of an allocation. Default 1. */
  readonly cores: number
  /** Paths that are passed on. Default `/v1/embeddings`, `/v1/responses`, `/v1/rerank`. */
  readonly paths: readonly string[]
}

/** The engine for tests. */
export interface EchoEngineConfig {
  readonly kind: 'echo'
  /** The simulated time of a batch. */
  readonly latencyMs: number
  readonly latencyPerPromptMs: number
}
