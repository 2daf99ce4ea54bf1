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
   * A kind alone keeps the keys of a file that has the same kind. A function creates engines of its
   * own, which load what they like.
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
  /** What an engine loads: the absolute path of a local model, else its name. */
  readonly modelPath: string
  /** The names by which clients know the model. Default: its name, without folder and `.gguf`. */
  readonly servedNames: readonly string[]
  /** Passed only to the downloader of hub models. */
  readonly hubToken: Secret | null
  /** GPUs that share one model. Default 1. */
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
  /** Refuses fields of a request that nobody reads. Default `false`. */
  readonly isStrict: boolean
}

/** The section `hardware`. */
export interface HardwareConfig {
  readonly numNodes: number
  /** Per node; 0 for CPU only. */
  readonly numGpus: number
  /** The first node that this backend uses. */
  readonly nodeOffset: number
  /** Default: numNodes × floor(numGpus ÷ tpSize), at least 1. */
  readonly numInfWorkers: number
  /** Requests that may wait; one more is refused. Default 10,000. */
  readonly queueLimit: number
}

/** The section `llm`. */
export interface LlmConfig {
  readonly dtype: string
  /** Default 100, or `maxModelLen` where that is less. */
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
  /** Default: `fixed` where the file or an option gives `maxBatchWaitMs`, else `adaptive`. */
  readonly type: 'adaptive' | 'fixed'
}

/** The section `dynamic_workers`. */
export interface DynamicWorkersConfig {
  readonly isOn: boolean
  readonly minWorkers: number
  /** Default: `numInfWorkers`, at least `minWorkers`. */
  readonly maxWorkers: number
  /**
   * Requests, running and waiting, that one worker is wanted for. Default: what one worker takes at
   * a time, which is the engine's sequences or concurrency, at most a batch.
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

/** An engine as an option: its kind, or its keys as the file has them, in camelCase. */
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
  /** `null`: the engine's choice. */
  readonly threads: number | null
  readonly gpu: 'auto' | false
  /** `auto`: the engine's choice. */
  readonly flashAttention: 'auto' | boolean
  /** Requests at a time. Default 16. */
  readonly sequences: number
  /** Tokens of a prompt that are read in one step. Default 512. */
  readonly batchSize: number
  /** Seconds without a sign of life while it works, until it is replaced. Default 60. */
  readonly hungSeconds: number
  /** Folder of downloaded models; `null`: the engine's choice. */
  readonly cacheDir: string | null
}

/** The engine in front of a server that runs already. */
export interface OpenAiEngineConfig {
  readonly kind: 'openai'
  /** Without a `/` at its end. */
  readonly baseUrl: string
  readonly apiKey: Secret | null
  /** Requests at a time. Default 64. */
  readonly maxConcurrency: number
  /** Passed on to the server. Default `/v1/embeddings`, `/v1/responses`, `/v1/rerank`. */
  readonly paths: readonly string[]
}

/** The engine that starts servers. */
export interface ProcessEngineConfig {
  readonly kind: 'process'
  /**
   * Program and arguments, seen by no shell. {model}, {port}, {worker} and the like stand for what
   * each worker gets.
   */
  readonly command: readonly string[]
  /** Added to the server's environment. Printing it shows names alone. */
  readonly env: Readonly<Record<string, string>>
  readonly startTimeoutSeconds: number
  readonly healthPath: string
  /** Requests at a time. Default 64. */
  readonly maxConcurrency: number
  /** Cores that each server has on a node of an allocation. Default 1. */
  readonly cores: number
  /** Passed on to the server. Default `/v1/embeddings`, `/v1/responses`, `/v1/rerank`. */
  readonly paths: readonly string[]
}

/** The engine for tests. */
export interface EchoEngineConfig {
  readonly kind: 'echo'
  /** Per batch. */
  readonly latencyMs: number
  readonly latencyPerPromptMs: number
}
