/** A configuration file as a tree of values with positions, and the problems in the file. */

import { ValueError } from '../../foundation/errors.ts'
import { maskSecrets } from '../../foundation/secrets.ts'
import type { Problem } from '../schema/problems.ts'
import { toCamelCase } from '../schema/config-fields.ts'
import type { Path } from '../schema/schema.ts'

/** A position in a text. Line and column count from 1. */
export interface SourcePosition {
  readonly line: number
  readonly column: number
}

export interface ScalarNode {
  readonly kind: 'scalar'
  readonly value: string | number | boolean | null
  /** The text in the file, which distinguishes `0x10` from `16`. */
  readonly source: string
  readonly position: SourcePosition
}

export interface ListNode {
  readonly kind: 'list'
  readonly items: readonly ConfigNode[]
  readonly position: SourcePosition
}

/** A map whose keys are unique. */
export interface MapNode {
  readonly kind: 'map'
  readonly entries: readonly ConfigEntry[]
  readonly position: SourcePosition
}

export interface ConfigEntry {
  readonly key: string
  /** The position of the key. */
  readonly position: SourcePosition
  readonly value: ConfigNode
}

export type ConfigNode = ScalarNode | ListNode | MapNode

export const startOfFile: SourcePosition = { line: 1, column: 1 }

/** Converts offsets in a text to positions. */
export function positionsIn(text: string): (offset: number) => SourcePosition {
  const starts = [0]
  for (let at = text.indexOf('\n'); at >= 0; at = text.indexOf('\n', at + 1)) starts.push(at + 1)
  return (offset) => {
    let [low, high] = [0, starts.length - 1]
    while (low < high) {
      const middle = Math.ceil((low + high) / 2)
      if ((starts[middle] ?? 0) <= offset) low = middle
      else high = middle - 1
    }
    return { line: low + 1, column: offset - (starts[low] ?? 0) + 1 }
  }
}

/** Whether no value is given, as in `key:` and `key: null`, so that the default applies. */
export function isEmptyNode(node: ConfigNode): boolean {
  return node.kind === 'scalar' && node.value === null
}

/** The plain value of a tree; entries without a value are left out. */
export function valueOf(node: ConfigNode): unknown {
  if (node.kind === 'scalar') return node.value
  if (node.kind === 'list') return node.items.map(valueOf)
  const given = node.entries.filter(({ value }) => !isEmptyNode(value))
  return Object.fromEntries(given.map(({ key, value }) => [key, valueOf(value)]))
}

/** The maximum depth of files and objects. The code that converts and checks them is recursive. */
export const maxDepth = 100

/**
 * Converts a plain value to a tree as if it were written in a file; leaves out `undefined`. Throws
 * a `ValueError` for an object that contains itself or is nested too deep.
 */
export function treeOf(
  value: unknown,
  path: Path = [],
  above: readonly unknown[] = [],
): ConfigNode {
  const position = startOfFile
  if (typeof value === 'object' && value !== null) {
    if (above.includes(value)) throw notATree(path, 'an object that contains itself')
    if (above.length >= maxDepth) throw notATree(path, `one nested more than ${maxDepth} deep`)
    const below = (one: unknown, key: string | number): ConfigNode =>
      treeOf(one, [...path, key], [...above, value])
    if (Array.isArray(value)) return { kind: 'list', items: value.map(below), position }
    const given = Object.entries(value).filter(([, one]) => one !== undefined)
    const entries = given.map(([key, one]) => ({ key, position, value: below(one, key) }))
    return { kind: 'map', entries, position }
  }
  const isPlain = typeof value === 'number' || typeof value === 'boolean' || value === null
  const plain = isPlain ? value : String(value)
  return { kind: 'scalar', value: plain, source: String(value), position }
}

function notATree(path: Path, got: string): ValueError {
  const expected = 'a value that a file can hold'
  const field = pathText(path)
  return new ValueError(`${field}: expected ${expected}, got ${got}`, {
    code: 'ConfigError',
    field,
    expected,
    got,
  })
}

/** A node, and the position of its key. Without a key, `keyPosition` is the node's position. */
export interface Located {
  readonly node: ConfigNode
  readonly keyPosition: SourcePosition
}

/** The node at a path; `undefined` if there is none. */
function locate(root: ConfigNode, path: Path): Located | undefined {
  let found: Located | undefined = { node: root, keyPosition: root.position }
  for (const step of path) {
    found = found === undefined ? undefined : childOf(found.node, step)
  }
  return found
}

function childOf(node: ConfigNode, step: string | number): Located | undefined {
  if (node.kind === 'list') {
    const item = node.items[Number(step)]
    return item === undefined ? undefined : { node: item, keyPosition: item.position }
  }
  if (node.kind === 'scalar') return undefined
  const entry = node.entries.find(({ key }) => key === step)
  return entry === undefined ? undefined : { node: entry.value, keyPosition: entry.position }
}

/** Every scalar of a tree with its path. */
export function* scalarsIn(node: ConfigNode, path: Path = []): Generator<[Path, ScalarNode]> {
  if (node.kind === 'scalar') yield [path, node]
  else if (node.kind === 'list') {
    for (const [at, item] of node.items.entries()) yield* scalarsIn(item, [...path, at])
  } else {
    for (const { key, value } of node.entries) yield* scalarsIn(value, [...path, key])
  }
}

/** The maximum number of reported problems. With more, the first would scroll out of view. */
const maxShown = 50

/**
 * Where the values come from: a file; an option of a constructor, with keys in camelCase and no
 * positions; or an object with the sections of a file.
 */
export type ConfigSource =
  | { readonly kind: 'file'; readonly name: string }
  | { readonly kind: 'option' }
  | { readonly kind: 'object' }

const fieldOfSource = { file: 'configFile', option: 'engine', object: 'config' } as const

/** Collects the problems of one source. */
export class ConfigProblems {
  readonly #source: ConfigSource
  readonly #found: { readonly position: SourcePosition; readonly text: string }[] = []

  constructor(source: ConfigSource) {
    this.#source = source
  }

  add(position: SourcePosition, text: string): void {
    this.#found.push({ position, text })
  }

  /** Adds a problem of the schema. `explain` may return a better text for an unknown key. */
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
        return this.add(position, `${this.#nameOf(parent, key)}: ${text}`)
      }
      case 'invalid_key': {
        const text = `${pathText(parent)}: expected ${problem.expected} as key`
        return this.add(locate(root, path)?.keyPosition ?? startOfFile, text)
      }
      default: {
        const { node } = locate(root, path) ?? locate(root, parent) ?? { node: root }
        return this.add(node.position, `${pathText(path)}: ${mismatchText(problem, node)}`)
      }
    }
  }

  /** Throws one `ValueError` with one line per problem, in the order of the file. */
  throwIfAny(): void {
    if (this.#found.length === 0) return
    const inOrder = this.#found.toSorted(
      (a, b) => a.position.line - b.position.line || a.position.column - b.position.column,
    )
    // A set removes duplicates: a value that an alias repeats is checked more than once.
    const lines = new Set(inOrder.map((problem) => this.#toLine(problem)))
    const shown = [...lines].slice(0, maxShown)
    const left = lines.size - shown.length
    if (left > 0) shown.push(`and ${left} more problems`)
    throw new ValueError(maskSecrets(shown.join('\n')), {
      code: 'ConfigError',
      field: fieldOfSource[this.#source.kind],
    })
  }

  /** The key alone in a file, where line and column locate it; otherwise its whole path. */
  #nameOf(parent: Path, key: string): string {
    return this.#source.kind === 'file' ? showKey(key) : pathText([...parent, showKey(key)])
  }

  #toLine({
    position,
    text,
  }: {
    readonly position: SourcePosition
    readonly text: string
  }): string {
    const source = this.#source
    if (source.kind === 'option') return toCamelCase(text)
    if (source.kind === 'object') return text
    return `${source.name}:${position.line}:${position.column} ${text}`
  }
}

/** Access to the values that a file contains, for checks that involve several values. */
export class WrittenFile {
  readonly #tree: ConfigNode
  readonly #problems: ConfigProblems

  constructor(tree: ConfigNode, problems: ConfigProblems) {
    this.#tree = tree
    this.#problems = problems
  }

  /** Whether the file has a value at the path, valid or not. */
  has(...path: Path): boolean {
    const found = locate(this.#tree, path)
    return found !== undefined && !isEmptyNode(found.node)
  }

  /** The plain value at a path, valid or not; `undefined` if there is none. */
  valueAt(...path: Path): unknown {
    return this.has(...path) ? valueOf(locate(this.#tree, path)?.node ?? this.#tree) : undefined
  }

  /** Adds a problem at the value, or at its section if the value is not in the file. */
  refuse(path: Path, problem: string, at: 'value' | 'key' = 'value'): void {
    const found = this.has(...path) ? locate(this.#tree, path) : undefined
    const section = locate(this.#tree, path.slice(0, 1))?.keyPosition ?? startOfFile
    const position = at === 'key' ? found?.keyPosition : found?.node.position
    this.#problems.add(position ?? section, `${pathText(path)}: ${problem}`)
  }
}

/** Formats a path, such as `llm.stop[1]`. */
export function pathText(path: Path): string {
  const text = path.map((step) => (typeof step === 'number' ? `[${step}]` : `.${step}`)).join('')
  return text.startsWith('.') ? text.slice(1) : text
}

/** Hides a long key, which may be a misplaced token rather than a typing error. */
export function showKey(key: string): string {
  return key.length > 32 ? `a key of ${key.length} characters` : key
}

/** A list item has no name, so its message names the index and the missing key. */
function missingText(parent: Path, key: string): string {
  if (typeof parent.at(-1) !== 'number') return `${pathText([...parent, key])}: missing`
  return `${pathText(parent)}: expected ${/^[aeiou]/.test(key) ? 'an' : 'a'} ${key}`
}

function unknownText(near: string | undefined, known: readonly string[]): string {
  return near === undefined
    ? `unknown key, known are ${known.join(', ')}`
    : `unknown key, did you mean ${near}?`
}

type ValueProblem = Exclude<Problem, { kind: 'missing' | 'unknown_key' | 'invalid_key' }>

function mismatchText(problem: ValueProblem, node: ConfigNode): string {
  if (problem.kind === 'rule') return problem.message
  const got = node.kind === 'scalar' && !problem.isPrivate ? written(node) : kindOf(node)
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

function written(node: ScalarNode): string {
  if (typeof node.value !== 'string') return node.source === '' ? 'nothing' : node.source
  const shown = node.value.length > 60 ? `${node.value.slice(0, 57)}...` : node.value
  return `${JSON.stringify(shown)} (string)`
}

function kindOf(node: ConfigNode): string {
  if (node.kind === 'list') return 'a list'
  if (node.kind === 'map') return 'keys and values'
  return node.value === null ? 'nothing' : `a ${typeof node.value}`
}
