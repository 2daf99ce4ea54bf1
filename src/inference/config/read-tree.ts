/** Validates a configuration tree by a schema. One report contains all problems. */

import { findNearest } from '../../foundation/options.ts'
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
import {
  type ConfigNode,
  type ConfigProblems,
  type ScalarNode,
  listScalars,
  toPlainValue,
} from './config-tree.ts'
import { engines } from '../engines/engines.ts'

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

function explainEngineKey([section, key]: Path, value: unknown): string | undefined {
  if (section !== 'engine') return undefined
  const owner = engines.find((engine) => Object.hasOwn(engine.section({}).shape, String(key)))
  if (owner === undefined) return undefined
  const kind = getValueAt(value, ['engine', 'kind']) ?? engines[0]?.kind
  return `belongs to the ${owner.kind} engine, but the kind is ${String(kind)}`
}

/** Suggests the section of a misplaced key. */
function explainSectionKey(path: Path, schema: Schema): string | undefined {
  const [key] = path
  if (path.length !== 1 || typeof key !== 'string') return undefined
  const owned = listKeys(schema, {}).flatMap((section) => {
    const sectionSchema = getSchemaAt(schema, [section], {})
    return sectionSchema === undefined
      ? []
      : listKeys(sectionSchema, {}).map((name) => ({ section, name }))
  })
  const nearestName = findNearest(
    key,
    owned.map(({ name }) => name),
  )
  const owner = owned.find(({ name }) => name === nearestName)
  return owner && `unknown key, did you mean ${owner.section}.${owner.name}?`
}
