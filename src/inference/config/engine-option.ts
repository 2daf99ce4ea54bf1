/** The engine as an option of the backend: the file's keys in camelCase, held to the same rules. */

import { expectObject, expectOneOf } from '../../foundation/options.ts'
import { engineKinds, readEngine } from './engines.ts'
import type { ReadContext } from './fields.ts'
import type { EngineConfig, EngineOption } from './inference-config.ts'
import { type ConfigEntry, type ConfigNode, Problems, startOfFile } from './tree.ts'

/** The engine that the option asks for; without one, or of the same kind alone, the file's. */
export function readEngineOption(
  option: EngineOption | undefined,
  written: EngineConfig,
  env: ReadContext['env'],
): EngineConfig {
  if (option === undefined || option === written.kind) return written
  return readOption(option, env)
}

/** Refuses what no file could make right; a kind alone may have its keys there. */
export function expectEngineOption(option: EngineOption, env: ReadContext['env']): void {
  if (typeof option === 'string') expectOneOf('engine', option, engineKinds)
  else readOption(option, env)
}

function readOption(option: EngineOption, env: ReadContext['env']): EngineConfig {
  const section = typeof option === 'string' ? { kind: option } : expectObject('engine', option)
  expectOneOf('engine', section['kind'], engineKinds)
  const problems = new Problems(null)
  const entries = entriesOf(section, toSnakeCase)
  const node = { kind: 'map' as const, entries, place: startOfFile }
  const engine = readEngine(node, { problems, env, path: 'engine' })
  problems.throwIfAny()
  return engine
}

const entriesOf = (record: object, toKey: (name: string) => string): ConfigEntry[] =>
  Object.entries(record)
    .filter(([, value]) => value !== undefined)
    .map(([name, value]) => ({ key: toKey(name), place: startOfFile, value: toNode(value) }))

/** Names inside of a key, such as those of variables, stay as they are. */
function toNode(value: unknown): ConfigNode {
  const place = startOfFile
  if (Array.isArray(value)) return { kind: 'list', items: value.map(toNode), place }
  if (typeof value === 'object' && value !== null) {
    return { kind: 'map', entries: entriesOf(value, (name) => name), place }
  }
  const isPlain = typeof value === 'number' || typeof value === 'boolean' || value === null
  const plain = isPlain ? value : String(value)
  return { kind: 'scalar', value: plain, source: String(value), place }
}

const toSnakeCase = (name: string): string =>
  name.replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)
