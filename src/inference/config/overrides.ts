/** Backend options that take precedence over the file; they pass the same checks as the file. */

import {
  expectInteger,
  expectKnownKeys,
  expectObject,
  expectOneOf,
  expectString,
} from '../../foundation/options.ts'
import { ConfigProblems, treeOf } from './config-tree.ts'
import {
  type EngineConfig,
  engineKinds,
  type EngineOption,
  engineSection,
  toEngineConfig,
} from '../engines/engines.ts'
import type { InferenceOverrides } from './inference-config.ts'
import { readTree } from './read-tree.ts'
import { type Environment, section, sharedRanges } from '../schema/config-fields.ts'

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
  if (typeof option === 'string') expectOneOf('engine', option, engineKinds())
  else readOption(option, env)
}

function readOption(option: EngineOption, env: Environment): EngineConfig {
  const given = typeof option === 'string' ? { kind: option } : expectObject('engine', option)
  expectOneOf('engine', given['kind'], engineKinds())
  const problems = new ConfigProblems({ kind: 'option' })
  const keys = Object.entries(given).map(([name, value]) => [toSnakeCase(name), value])
  const tree = treeOf({ engine: Object.fromEntries(keys) })
  const { engine } = readTree(section({ engine: engineSection(env) }), tree, problems)
  problems.throwIfAny()
  return toEngineConfig(engine)
}

const toSnakeCase = (name: string): string =>
  name.replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)
