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
   * The engine to use instead of the one in the file's `engine` section. If only its kind is given
   * and the file names the same kind, the file's other keys still apply. If it is a function, the
   * function creates the engines, and the `engine` section has no effect.
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

/** The settings of an inference backend, deeply frozen. */
export interface InferenceConfig extends CommonConfig {
  readonly engine: EngineConfig
}
