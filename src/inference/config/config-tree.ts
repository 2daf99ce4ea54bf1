/** A configuration file as a tree of values with positions, and the problems in the file. */

import { ValueError } from '../../foundation/errors.ts'
import { maskSecrets } from '../../foundation/secrets.ts'
import type { Problem } from '../schema/problems.ts'
import { toCamelCase } from '../schema/config-fields.ts'
import { formatPath, type Path } from '../schema/schema.ts'

/** A position in a text. Line and column count from 1. */
export interface SourcePosition {
  readonly line: number
  readonly column: number
}

export interface ScalarNode {
  readonly kind: 'scalar'
  readonly value: string | number | boolean | null
  /** The value as it is written in the file, such as `0x10` for 16. */
  readonly source: string
  readonly position: SourcePosition
}

export interface ListNode {
  readonly kind: 'list'
  readonly items: readonly ConfigNode[]
  readonly position: SourcePosition
}

export interface MapNode {
  readonly kind: 'map'
  readonly entries: readonly ConfigEntry[]
  readonly position: SourcePosition
}

export interface ConfigEntry {
  readonly key: string
  readonly position: SourcePosition
  readonly value: ConfigNode
}

export type ConfigNode = ScalarNode | ListNode | MapNode

export const startOfFile: SourcePosition = { line: 1, column: 1 }

/** Marks a value that comes from a command-line option. */
export const commandLine: SourcePosition = { line: 0, column: 0 }

/** Whether no value is given, as in `key:` and `key: null`, so that the default applies. */
export function isEmptyNode(node: ConfigNode): boolean {
  return node.kind === 'scalar' && node.value === null
}

export function toPlainValue(node: ConfigNode): unknown {
  if (node.kind === 'scalar') return node.value
  if (node.kind === 'list') return node.items.map(toPlainValue)
  const given = node.entries.filter(({ value }) => !isEmptyNode(value))
  return Object.fromEntries(given.map(({ key, value }) => [key, toPlainValue(value)]))
}

/** The nesting is limited, because the code that converts and checks values is recursive. */
export const maxDepth = 100

/**
 * Converts a value to a tree. Omits `undefined` values. Throws for an object that contains itself
 * or is nested too deep.
 */
export function toConfigNode(
  value: unknown,
  path: Path = [],
  above: readonly unknown[] = [],
  position = startOfFile,
): ConfigNode {
  if (typeof value === 'object' && value !== null) {
    if (above.includes(value)) throw createTreeError(path, 'an object that contains itself')
    if (above.length >= maxDepth)
      throw createTreeError(path, `one nested more than ${maxDepth} deep`)
    const toChildNode = (one: unknown, key: string | number): ConfigNode =>
      toConfigNode(one, [...path, key], [...above, value], position)
    if (Array.isArray(value)) return { kind: 'list', items: value.map(toChildNode), position }
    const given = Object.entries(value).filter(([, one]) => one !== undefined)
    const entries = given.map(([key, one]) => ({ key, position, value: toChildNode(one, key) }))
    return { kind: 'map', entries, position }
  }
  const isPlain = typeof value === 'number' || typeof value === 'boolean' || value === null
  const plain = isPlain ? value : String(value)
  return { kind: 'scalar', value: plain, source: String(value), position }
}

function createTreeError(path: Path, got: string): ValueError {
  const expected = 'a value that a file can hold'
  const field = formatPath(path)
  return new ValueError(`${field}: expected ${expected}, got ${got}`, {
    code: 'ConfigError',
    field,
    expected,
    got,
  })
}

/** A node and the position of its key, or its own position if it has no key. */
export interface LocatedNode {
  readonly node: ConfigNode
  readonly keyPosition: SourcePosition
}

function locate(root: ConfigNode, path: Path): LocatedNode | undefined {
  let found: LocatedNode | undefined = { node: root, keyPosition: root.position }
  for (const step of path) {
    found = found === undefined ? undefined : getChildNode(found.node, step)
  }
  return found
}

function getChildNode(node: ConfigNode, step: string | number): LocatedNode | undefined {
  if (node.kind === 'list') {
    const item = node.items[Number(step)]
    return item === undefined ? undefined : { node: item, keyPosition: item.position }
  }
  if (node.kind === 'scalar') return undefined
  const entry = node.entries.find(({ key }) => key === step)
  return entry === undefined ? undefined : { node: entry.value, keyPosition: entry.position }
}

export function* listScalars(node: ConfigNode, path: Path = []): Generator<[Path, ScalarNode]> {
  if (node.kind === 'scalar') yield [path, node]
  else if (node.kind === 'list') {
    for (const [at, item] of node.items.entries()) yield* listScalars(item, [...path, at])
  } else {
    for (const { key, value } of node.entries) yield* listScalars(value, [...path, key])
  }
}

/** The maximum number of problems in a message. With more, the first would scroll out of view. */
const maxReported = 50

/** Where a configuration comes from: a file, an option (keys in camelCase) or an object. */
export type ConfigSource =
  | { readonly kind: 'file'; readonly name: string }
  | { readonly kind: 'option' }
  | { readonly kind: 'object' }

interface FoundProblem {
  readonly position: SourcePosition
  readonly text: string
}

const optionBySource = { file: 'configFile', option: 'engine', object: 'config' } as const

export class ConfigProblems {
  readonly #source: ConfigSource
  readonly #foundProblems: FoundProblem[] = []

  constructor(source: ConfigSource) {
    this.#source = source
  }

  add(position: SourcePosition, text: string): void {
    this.#foundProblems.push({ position, text })
  }

  addProblem(
    root: ConfigNode,
    problem: Problem,
    explain: (path: Path, nearest?: string) => string | undefined = () => undefined,
  ): void {
    const { path } = problem
    const parent = path.slice(0, -1)
    const key = String(path.at(-1))
    switch (problem.kind) {
      case 'missing':
        return this.add(locate(root, parent)?.keyPosition ?? startOfFile, missingText(parent, key))
      case 'unknown_key': {
        const text = explain(path, problem.nearest) ?? unknownText(problem.nearest, problem.known)
        const position = locate(root, path)?.keyPosition ?? startOfFile
        return this.add(position, `${this.#formatName(parent, key)}: ${text}`)
      }
      case 'invalid_key': {
        const text = `${formatPath(parent)}: expected ${problem.expected} as key`
        return this.add(locate(root, path)?.keyPosition ?? startOfFile, text)
      }
      default: {
        const { node } = locate(root, path) ?? locate(root, parent) ?? { node: root }
        return this.add(node.position, `${formatPath(path)}: ${mismatchText(problem, node)}`)
      }
    }
  }

  throwIfAny(): void {
    if (this.#foundProblems.length === 0) return
    const inOrder = this.#foundProblems.toSorted(
      (a, b) => a.position.line - b.position.line || a.position.column - b.position.column,
    )
    // A set removes duplicates, because a value that an alias repeats is checked more than once.
    const lines = new Set(inOrder.map((problem) => this.#toLine(problem)))
    const shown = [...lines].slice(0, maxReported)
    const hiddenCount = lines.size - shown.length
    if (hiddenCount > 0) shown.push(`and ${hiddenCount} more problems`)
    throw new ValueError(maskSecrets(shown.join('\n')), {
      code: 'ConfigError',
      field: optionBySource[this.#source.kind],
    })
  }

  /** In a file, the key alone is enough, because the message has line and column. */
  #formatName(parent: Path, key: string): string {
    return this.#source.kind === 'file' ? formatKey(key) : formatPath([...parent, formatKey(key)])
  }

  #toLine({ position, text }: FoundProblem): string {
    const source = this.#source
    if (position === commandLine) return `--${withHyphens(text)}`
    if (source.kind === 'option') return toCamelCase(text)
    if (source.kind === 'object') return text
    return `${source.name}:${position.line}:${position.column} ${text}`
  }
}

/** Writes the key at the beginning of a problem as an option: `llm.max-tokens: …`. */
const withHyphens = (text: string): string =>
  text.replace(/^[^:]*/, (key) => key.replaceAll('_', '-'))

export class ConfigDocument {
  readonly #tree: ConfigNode
  readonly #problems: ConfigProblems

  constructor(tree: ConfigNode, problems: ConfigProblems) {
    this.#tree = tree
    this.#problems = problems
  }

  has(...path: Path): boolean {
    const found = locate(this.#tree, path)
    return found !== undefined && !isEmptyNode(found.node)
  }

  valueAt(...path: Path): unknown {
    return this.has(...path)
      ? toPlainValue(locate(this.#tree, path)?.node ?? this.#tree)
      : undefined
  }

  addProblem(path: Path, problem: string, at: 'value' | 'key' = 'value'): void {
    const found = this.has(...path) ? locate(this.#tree, path) : undefined
    const section = locate(this.#tree, path.slice(0, 1))?.keyPosition ?? startOfFile
    const position = at === 'key' ? found?.keyPosition : found?.node.position
    this.#problems.add(position ?? section, `${formatPath(path)}: ${problem}`)
  }
}

/** A long key is not shown, because it may be a misplaced token. */
export function formatKey(key: string): string {
  return key.length > 32 ? `a key of ${key.length} characters` : key
}

/** A key that is missing in an item of a list is reported at that item, such as `rules[0]`. */
function missingText(parent: Path, key: string): string {
  if (typeof parent.at(-1) !== 'number') return `${formatPath([...parent, key])}: missing`
  return `${formatPath(parent)}: expected ${/^[aeiou]/.test(key) ? 'an' : 'a'} ${key}`
}

function unknownText(near: string | undefined, known: readonly string[]): string {
  return near === undefined
    ? `unknown key, known are ${known.join(', ')}`
    : `unknown key, did you mean ${near}?`
}

type ValueProblem = Exclude<Problem, { kind: 'missing' | 'unknown_key' | 'invalid_key' }>

function mismatchText(problem: ValueProblem, node: ConfigNode): string {
  if (problem.kind === 'rule') return problem.message
  const got = node.kind === 'scalar' && !problem.isPrivate ? formatScalar(node) : describeNode(node)
  return `expected ${expectedText(problem, node)}, got ${got}`
}

function expectedText(problem: Exclude<ValueProblem, { kind: 'rule' }>, node: ConfigNode): string {
  const { allowed } = problem.kind === 'choice' || problem.kind === 'type' ? problem : {}
  if (allowed !== undefined) return `one of ${allowed.join(', ')}`
  if (problem.kind === 'length') return `at most ${problem.bound.value} items`
  const isQuoted = node.kind === 'scalar' && /^(?:true|false)$/i.test(String(node.value))
  const isBoolean = problem.expected === 'true or false'
  return `${problem.expected}${isBoolean && isQuoted ? ' without quotes' : ''}`
}

function formatScalar(node: ScalarNode): string {
  if (typeof node.value !== 'string') return node.source === '' ? 'nothing' : node.source
  const shown = node.value.length > 60 ? `${node.value.slice(0, 57)}...` : node.value
  return `${JSON.stringify(shown)} (string)`
}

function describeNode(node: ConfigNode): string {
  if (node.kind === 'list') return 'a list'
  if (node.kind === 'map') return 'keys and values'
  return node.value === null ? 'nothing' : `a ${typeof node.value}`
}
