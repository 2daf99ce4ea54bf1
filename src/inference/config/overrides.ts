/** Validates backend options that take precedence over the file, by the same rules as the file. */

import {
  expectInteger,
  expectKnownKeys,
  expectObject,
  expectOneOf,
  expectString,
} from '../../foundation/options.ts'
import { ConfigProblems, toConfigNode } from './config-tree.ts'
import {
  type EngineConfig,
  engineKinds,
  type EngineOption,
  engineSection,
  toEngineConfig,
} from '../engines/engines.ts'
import type { InferenceOverrides } from './inference-config.ts'
import { readTree } from './read-tree.ts'
import { type Environment, section, settingRanges } from '../schema/config-fields.ts'

const integerOptions = Object.keys(settingRanges) as (keyof typeof settingRanges)[]

export const overrideNames = ['modelName', 'engine', ...integerOptions] as const

/**
 * Validates the overrides and omits `undefined` values. The keys of the engine are checked by
 * `expectEngineOption`.
 */
export function resolveOverrides(overrides: InferenceOverrides): InferenceOverrides {
  const given = expectObject('overrides', overrides)
  expectKnownKeys('InferenceOverrides', given, overrideNames)
  const resolved: { -readonly [K in keyof InferenceOverrides]: InferenceOverrides[K] } = {}
  if (given['modelName'] !== undefined) {
    resolved.modelName = expectString('modelName', given['modelName'])
  }
  for (const name of integerOptions) {
    if (given[name] === undefined) continue
    resolved[name] = expectInteger(name, given[name], settingRanges[name])
  }
  if (overrides.engine !== undefined) resolved.engine = overrides.engine
  return resolved
}

/**
 * The option replaces the file's `engine` section, unless it is a function or only repeats the
 * kind.
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

/** If only a kind is given, checks only the kind, because the file may contain the other keys. */
export function expectEngineOption(option: EngineOption, env: Environment): void {
  if (typeof option === 'string') expectOneOf('engine', option, engineKinds())
  else readOption(option, env)
}

function readOption(option: EngineOption, env: Environment): EngineConfig {
  const given = typeof option === 'string' ? { kind: option } : expectObject('engine', option)
  expectOneOf('engine', given['kind'], engineKinds())
  const problems = new ConfigProblems({ kind: 'option' })
  const keys = Object.entries(given).map(([name, value]) => {
    return [name.replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`), value]
  })
  const tree = toConfigNode({ engine: Object.fromEntries(keys) })
  const { engine } = readTree(section({ engine: engineSection(env) }), tree, problems)
  problems.throwIfAny()
  return toEngineConfig(engine)
}
