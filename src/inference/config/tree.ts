/** A configuration file as a plain tree that knows where each value is written. */

import type { Path } from '../../schema/schema.ts'

/** A position in a text. Line and column count from 1. */
export interface SourcePosition {
  readonly line: number
  readonly column: number
}

export interface ScalarNode {
  readonly kind: 'scalar'
  readonly value: string | number | boolean | null
  /** As it is written, so that `0x10` differs from `16`. */
  readonly source: string
  readonly position: SourcePosition
}

export interface ListNode {
  readonly kind: 'list'
  readonly items: readonly ConfigNode[]
  readonly position: SourcePosition
}

/** An entry's key occurs once in its map. */
export interface MapNode {
  readonly kind: 'map'
  readonly entries: readonly ConfigEntry[]
  readonly position: SourcePosition
}

export interface ConfigEntry {
  readonly key: string
  /** Of the key. */
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

/** `key:` and `key: null` leave the default as it is. */
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

/** The tree of a plain value, as if it were written in a file; `undefined` is left out. */
export function treeOf(value: unknown): ConfigNode {
  const position = startOfFile
  if (Array.isArray(value)) return { kind: 'list', items: value.map(treeOf), position }
  if (typeof value === 'object' && value !== null) {
    const given = Object.entries(value).filter(([, one]) => one !== undefined)
    const entries = given.map(([key, one]) => ({ key, position, value: treeOf(one) }))
    return { kind: 'map', entries, position }
  }
  const isPlain = typeof value === 'number' || typeof value === 'boolean' || value === null
  const plain = isPlain ? value : String(value)
  return { kind: 'scalar', value: plain, source: String(value), position }
}

/** A node and the position of its key; without a key, its own. */
export interface Located {
  readonly node: ConfigNode
  readonly keyPosition: SourcePosition
}

/** What is written at a path, if anything is. */
export function locate(root: ConfigNode, path: Path): Located | undefined {
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
