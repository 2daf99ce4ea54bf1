/** Reads a tree by a schema. Problems are collected, so that one report contains them all. */

import { nearest } from '../../foundation/options.ts'
import { type Problem, problemsOf } from '../schema/problems.ts'
import {
  expectationOf,
  isInteger,
  isNumber,
  isRecord,
  keysOf,
  type Path,
  type Schema,
  schemaAt,
  valueAt,
  type z,
} from '../schema/schema.ts'
import {
  type ConfigNode,
  type ConfigProblems,
  pathText,
  type ScalarNode,
  scalarsIn,
  valueOf,
} from './config-tree.ts'
import { engines } from '../engines/engines.ts'

/**
 * The values of a tree, with defaults. A key with an invalid value counts as left out, so that the
 * caller can also check relations between the other values before it throws.
 */
export function readTree<S extends z.ZodType>(
  schema: S,
  tree: ConfigNode,
  problems: ConfigProblems,
): z.output<S> {
  const value = valueOf(tree)
  const found = problemsOf(schema, value)
  const explain = (path: Path, near?: string): string | undefined =>
    keyOfOtherEngine(path, value) ?? (near === undefined ? keyOfSection(path, schema) : undefined)
  for (const problem of found) problems.addProblem(tree, problem, explain)
  const wrong = [
    ...found.map(({ path }) => path),
    ...miswrittenValues(schema, tree, found, problems),
  ]
  const kept = wrong.reduce(withoutKey, value)
  const sections = wrong.map((path) => path.slice(0, 2)).reduce(withoutKey, value) as object
  // If required keys of the engine are missing, another engine stands in until the caller throws.
  for (const candidate of [kept, sections, { ...sections, engine: { kind: 'echo' } }]) {
    const result = schema.safeParse(candidate)
    if (result.success) return result.data
  }
  problems.throwIfAny()
  return schema.parse(value)
}

const plainDigits = /^[-+]?\d+$/
const decimal = /^[-+]?[\d.]+(?:e[-+]?\d+)?$/i

/**
 * Adds problems that are visible only in the text: numbers written as `0x10`, integers written as
 * `1e3`, and keys without a value in a map that has no defaults. Returns their paths.
 */
function miswrittenValues(
  schema: Schema,
  tree: ConfigNode,
  found: readonly Problem[],
  problems: ConfigProblems,
): Path[] {
  const known = new Set(found.map(({ path }) => pathText(path)))
  const value = valueOf(tree)
  const paths: Path[] = []
  for (const [path, node] of scalarsIn(tree)) {
    const expected = expectedWriting(schema, path, node, value)
    if (expected === undefined || known.has(pathText(path))) continue
    const got = node.value === null ? 'nothing' : node.source
    problems.add(node.position, `${pathText(path)}: expected ${expected}, got ${got}`)
    paths.push(path)
  }
  return paths
}

function expectedWriting(
  schema: Schema,
  path: Path,
  { value, source }: ScalarNode,
  document: unknown,
): string | undefined {
  const field = schemaAt(schema, path, document)
  if (value === null) {
    const isEntry = isRecord(schemaAt(schema, path.slice(0, -1), document))
    return isEntry ? expectationOf(field) : undefined
  }
  if (typeof value !== 'number' || !isNumber(field)) return undefined
  if (!isInteger(field)) return decimal.test(source) ? undefined : expectationOf(field)
  return plainDigits.test(source) ? undefined : `${expectationOf(field)} in plain decimal digits`
}

/** A copy without the key at a path. If the path leads into a list, the whole list is removed. */
function withoutKey(value: unknown, path: Path): unknown {
  const inList = path.findIndex((step) => typeof step === 'number')
  const keys = inList < 0 ? path : path.slice(0, inList)
  const [key, ...rest] = keys
  if (key === undefined || typeof value !== 'object' || value === null) return value
  const { [key]: inner, ...others } = value as Record<string | number, unknown>
  return rest.length === 0 || inner === undefined
    ? others
    : { ...others, [key]: withoutKey(inner, rest) }
}

/** The message for a key that belongs to another engine; `undefined` for other keys. */
function keyOfOtherEngine([section, key]: Path, value: unknown): string | undefined {
  if (section !== 'engine') return undefined
  const owner = engines.find((engine) => Object.hasOwn(engine.section({}).shape, String(key)))
  if (owner === undefined) return undefined
  const kind = valueAt(value, ['engine', 'kind']) ?? engines[0]?.kind
  return `belongs to the ${owner.kind} engine, but the kind is ${String(kind)}`
}

/** The message for a top-level key that resembles a section's key; `undefined` for other keys. */
function keyOfSection(path: Path, schema: Schema): string | undefined {
  const [key] = path
  if (path.length !== 1 || typeof key !== 'string') return undefined
  const owned = keysOf(schema, {}).flatMap((section) => {
    const own = schemaAt(schema, [section], {})
    return own === undefined ? [] : keysOf(own, {}).map((name) => ({ section, name }))
  })
  const near = nearest(
    key,
    owned.map(({ name }) => name),
  )
  const owner = owned.find(({ name }) => name === near)
  return owner && `unknown key, did you mean ${owner.section}.${owner.name}?`
}
