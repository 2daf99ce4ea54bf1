/** A complete configuration: defaults are filled in and every value is in range. */

import type { EngineConfig, EngineOption } from '../engines/engines.ts'
import type { CommonConfig } from './config-sections.ts'

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
   * The engine to use instead of the one in the file's `engine` section. If only a kind is given
   * and the file names the same kind, the file's other keys still apply. If a function is given, it
   * creates the engines, and the `engine` section has no effect.
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
  /** Further models of the server, with the keys of the list `models` in the file. */
  readonly models?: readonly Readonly<Record<string, unknown>>[]
}

/** The settings of an inference backend, deeply frozen. */
export interface InferenceConfig extends CommonConfig {
  readonly engine: EngineConfig
  /** Further models of the server. Default none. */
  readonly models: readonly FurtherModel[]
}

/** A model that is loaded when a request names it. */
export interface FurtherModel {
  /** The settings of the model. Its `models` are empty. */
  readonly config: InferenceConfig
  /** Whether the model is loaded at the start. Default `false`. */
  readonly isPreloaded: boolean
  /** How long the model stays loaded without a request; -1 for ever. Default 300. */
  readonly keepAliveSeconds: number
}
