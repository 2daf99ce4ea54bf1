/** Backend options that take precedence over the file; they pass the same checks as the file. */

import {
  expectInteger,
  expectKnownKeys,
  expectObject,
  expectOneOf,
  expectString,
} from '../../foundation/options.ts'
import { ConfigProblems, treeOf } from './config-tree.ts'
import type { EngineConfig, EngineOption, InferenceOverrides } from './inference-config.ts'
import { readTree } from './read-tree.ts'
import type { FileConfig } from './schema/config-schema.ts'
import { defaultPaths, engineKinds, engineSection } from './schema/engine-schema.ts'
import { type Environment, section, sharedRanges } from './schema/field-schemas.ts'
import { withMaskedValues } from './secret.ts'

type Counted = keyof typeof sharedRanges

const counted = Object.keys(sharedRanges) as Counted[]

/**
 * Returns the options without `undefined`; throws a `ValueError` that names a wrong one. Keys of
 * the engine are not checked here: see `expectEngineOption`.
 */
export function resolveOverrides(overrides: InferenceOverrides): InferenceOverrides {
  const given = expectObject('overrides', overrides)
  expectKnownKeys('InferenceOverrides', given, ['modelName', 'engine', ...counted])
  const resolved: { -readonly [K in keyof InferenceOverrides]: InferenceOverrides[K] } = {}
  if (given['modelName'] !== undefined) {
    resolved.modelName = expectString('modelName', given['modelName'])
  }
  for (const name of counted) {
    if (given[name] === undefined) continue
    resolved[name] = expectInteger(name, given[name], sharedRanges[name])
  }
  if (overrides.engine !== undefined) resolved.engine = overrides.engine
  return resolved
}

/**
 * The engine of the option; the file's engine if there is no option, or only the kind of the file.
 */
export function readEngineOption(
  option: InferenceOverrides['engine'],
  written: EngineConfig,
  env: Environment,
): EngineConfig {
  if (option === undefined || typeof option === 'function') return written
  if (option === written.kind) return written
  return readOption(option, env)
}

/**
 * Checks the option before the file is read. A kind alone is not complete: the file may have its
 * keys.
 */
export function expectEngineOption(option: EngineOption, env: Environment): void {
  if (typeof option === 'string') expectOneOf('engine', option, engineKinds)
  else readOption(option, env)
}

function readOption(option: EngineOption, env: Environment): EngineConfig {
  const given = typeof option === 'string' ? { kind: option } : expectObject('engine', option)
  expectOneOf('engine', given['kind'], engineKinds)
  const problems = new ConfigProblems({ kind: 'option' })
  const keys = Object.entries(given).map(([name, value]) => [toSnakeCase(name), value])
  const tree = treeOf({ engine: Object.fromEntries(keys) })
  const { engine } = readTree(section({ engine: engineSection(env) }), tree, problems)
  problems.throwIfAny()
  return engineOf(engine)
}

const toSnakeCase = (name: string): string =>
  name.replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)

/** The settings of the engine that a file describes. */
export function engineOf(engine: FileConfig['engine']): EngineConfig {
  switch (engine.kind) {
    case 'llama':
      return {
        kind: 'llama',
        threads: engine.threads ?? null,
        gpu: engine.gpu,
        flashAttention: engine.flash_attention,
        sequences: engine.sequences,
        batchSize: engine.batch_size,
        hungSeconds: engine.hung_seconds,
        cacheDir: engine.cache_dir ?? null,
      }
    case 'openai':
      return {
        kind: 'openai',
        baseUrl: engine.base_url,
        apiKey: engine.api_key ?? null,
        maxConcurrency: engine.max_concurrency,
        paths: engine.paths ?? defaultPaths,
      }
    case 'process':
      return {
        kind: 'process',
        command: engine.command,
        env: withMaskedValues(engine.env ?? {}),
        startTimeoutSeconds: engine.start_timeout_seconds,
        healthPath: engine.health_path,
        maxConcurrency: engine.max_concurrency,
        cores: engine.cores,
        paths: engine.paths ?? defaultPaths,
      }
    default:
      return {
        kind: 'echo',
        latencyMs: engine.latency_ms,
        latencyPerPromptMs: engine.latency_per_prompt_ms,
      }
  }
}
