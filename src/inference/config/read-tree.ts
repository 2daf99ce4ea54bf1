/**
 * Validates a configuration tree by a schema, and by the same rules the backend options that take
 * precedence over the file. One report contains all problems.
 */

import { expectInteger, expectKnownKeys, expectObject } from '../../foundation/options.ts'
import { expectOneOf, expectString, findNearest } from '../../foundation/options.ts'
import { type Environment, section, settingRanges } from '../schema/config-fields.ts'
import { type Problem, findProblems } from '../schema/problems.ts'
import {
  describeExpected,
  formatPath,
  isInteger,
  isNumber,
  isRecord,
  listKeys,
  type Path,
  type Schema,
  getSchemaAt,
  getValueAt,
  type z,
} from '../schema/schema.ts'
import { type ConfigNode, ConfigProblems, listScalars, type ScalarNode } from './config-tree.ts'
import { toConfigNode, toPlainValue } from './config-tree.ts'
import { type EngineConfig, engineKinds, type EngineOption, engines } from '../engines/engines.ts'
import { engineSection, toEngineConfig } from '../engines/engines.ts'
import type { InferenceOverrides } from './inference-config.ts'

/** Treats a key with an invalid value as missing, so that the rest can still be checked. */
export function readTree<S extends z.ZodType>(
  schema: S,
  tree: ConfigNode,
  problems: ConfigProblems,
): z.output<S> {
  const value = toPlainValue(tree)
  const found = findProblems(schema, value)
  const explain = (path: Path, near?: string): string | undefined =>
    explainEngineKey(path, value) ??
    (near === undefined ? explainSectionKey(path, schema) : undefined)
  for (const problem of found) problems.addProblem(tree, problem, explain)
  const problemPaths = [
    ...found.map(({ path }) => path),
    ...addNotationProblems(schema, tree, found, problems),
  ]
  const kept = problemPaths.reduce(omitPath, value)
  const sections = problemPaths.map((path) => path.slice(0, 2)).reduce(omitPath, value) as object
  // The `echo` engine stands in for an engine with missing keys until the caller throws.
  for (const candidate of [kept, sections, { ...sections, engine: { kind: 'echo' } }]) {
    const result = schema.safeParse(candidate)
    if (result.success) return result.data
  }
  problems.throwIfAny()
  return schema.parse(value)
}

const plainDigits = /^[-+]?\d+$/
const decimal = /^[-+]?[\d.]+(?:e[-+]?\d+)?$/i

/** Rejects numbers such as `0x10`, integers such as `1e3`, and empty values in a record. */
function addNotationProblems(
  schema: Schema,
  tree: ConfigNode,
  found: readonly Problem[],
  problems: ConfigProblems,
): Path[] {
  const known = new Set(found.map(({ path }) => formatPath(path)))
  const value = toPlainValue(tree)
  const paths: Path[] = []
  for (const [path, node] of listScalars(tree)) {
    const expected = findNotationProblem(schema, path, node, value)
    if (expected === undefined || known.has(formatPath(path))) continue
    const got = node.value === null ? 'nothing' : node.source
    problems.add(node.position, `${formatPath(path)}: expected ${expected}, got ${got}`)
    paths.push(path)
  }
  return paths
}

function findNotationProblem(
  schema: Schema,
  path: Path,
  { value, source }: ScalarNode,
  document: unknown,
): string | undefined {
  const field = getSchemaAt(schema, path, document)
  if (value === null) {
    const isEntry = isRecord(getSchemaAt(schema, path.slice(0, -1), document))
    return isEntry ? describeExpected(field) : undefined
  }
  if (typeof value !== 'number' || !isNumber(field)) return undefined
  if (!isInteger(field)) return decimal.test(source) ? undefined : describeExpected(field)
  return plainDigits.test(source) ? undefined : `${describeExpected(field)} in plain decimal digits`
}

/** Returns a copy without the value. If the path leads into a list, the whole list is removed. */
function omitPath(value: unknown, path: Path): unknown {
  const listAt = path.findIndex((step) => typeof step === 'number')
  const keys = listAt < 0 ? path : path.slice(0, listAt)
  const [key, ...rest] = keys
  if (key === undefined || typeof value !== 'object' || value === null) return value
  const { [key]: inner, ...others } = value as Record<string | number, unknown>
  return rest.length === 0 || inner === undefined
    ? others
    : { ...others, [key]: omitPath(inner, rest) }
}

function explainEngineKey([name, key]: Path, value: unknown): string | undefined {
  if (name !== 'engine') return undefined
  const owner = engines.find((engine) => Object.hasOwn(engine.section({}).shape, String(key)))
  if (owner === undefined) return undefined
  const kind = getValueAt(value, ['engine', 'kind']) ?? engines[0]?.kind
  return `belongs to the ${owner.kind} engine, but the kind is ${String(kind)}`
}

/** Suggests the section of a misplaced key. */
function explainSectionKey(path: Path, schema: Schema): string | undefined {
  const [key] = path
  if (path.length !== 1 || typeof key !== 'string') return undefined
  const owned = listKeys(schema, {}).flatMap((sectionName) => {
    const sectionSchema = getSchemaAt(schema, [sectionName], {})
    return sectionSchema === undefined
      ? []
      : listKeys(sectionSchema, {}).map((name) => ({ sectionName, name }))
  })
  const nearestName = findNearest(
    key,
    owned.map(({ name }) => name),
  )
  const owner = owned.find(({ name }) => name === nearestName)
  return owner && `unknown key, did you mean ${owner.sectionName}.${owner.name}?`
}

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
