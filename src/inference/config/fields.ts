/** Readers for the values of a configuration: each gives the value, or notes what was expected. */

import { nearest } from '../../foundation/options.ts'
import {
  type ConfigNode,
  type MapNode,
  type Place,
  type Problems,
  type ScalarNode,
  showKey,
} from './tree.ts'

/** What a reader may look at and where it complains. */
export interface ReadContext {
  readonly problems: Problems
  readonly env: Readonly<Record<string, string | undefined>>
}

/** Where a value stands in the file's structure, such as `llm.top_p`. */
export interface Field extends ReadContext {
  readonly path: string
}

/** Gives `undefined` after it has noted a problem. */
export type Reader<T> = (node: ConfigNode, field: Field) => T | undefined

export interface Range {
  readonly min?: number
  readonly above?: number
  readonly max: number
}

/** An integer in plain decimal digits: neither `0x10` nor `1e3`. */
export function integer(min: number, max: number): Reader<number> {
  return (node, field) => {
    const { value = NaN, source } = numberIn(node)
    const isInRange = Number.isInteger(value) && value >= min && value <= max
    if (isInRange && /^[-+]?\d+$/.test(source)) return value
    const form = isInRange ? ' in plain decimal digits' : ''
    return wrong(node, field, `an integer from ${min} to ${max}${form}`)
  }
}

/** A number in decimal digits, with an exponent or without. */
export function number(range: Range): Reader<number> {
  const { min = -Infinity, above = -Infinity, max } = range
  const from = range.above === undefined ? `from ${min}` : `above ${above}`
  return (node, field) => {
    const { value = NaN, source } = numberIn(node)
    const isDecimal = /^[-+]?[\d.]+(?:e[-+]?\d+)?$/i.test(source)
    if (isDecimal && value >= min && value > above && value <= max) return value
    return wrong(node, field, `a number ${from} to ${max}`)
  }
}

function numberIn(node: ConfigNode): { readonly value?: number; readonly source: string } {
  if (node.kind !== 'scalar' || typeof node.value !== 'number') return { source: '' }
  return { value: node.value, source: node.source }
}

export const boolean: Reader<boolean> = (node, field) => {
  if (node.kind === 'scalar' && typeof node.value === 'boolean') return node.value
  const isQuoted = node.kind === 'scalar' && /^(?:true|false)$/i.test(String(node.value))
  return wrong(node, field, `true or false${isQuoted ? ' without quotes' : ''}`)
}

export function oneOf<T extends string | false>(...allowed: readonly T[]): Reader<T> {
  return (node, field) => {
    const value = node.kind === 'scalar' ? node.value : undefined
    const found = allowed.find((one) => one === value)
    return found ?? wrong(node, field, `one of ${allowed.join(', ')}`)
  }
}

export interface TextOptions {
  /** Never shown in a message. */
  readonly isPrivate?: boolean
  /** Default 65,536 characters. */
  readonly maxLength?: number
  readonly pattern?: RegExp
  /** What `pattern` asks for, in words. */
  readonly expected?: string
}

/** A text of at least one character, with `${env:NAME}` in it replaced. */
export function text(options: TextOptions = {}): Reader<string> {
  const { isPrivate = false, maxLength = 65_536, pattern, expected = 'a non-empty text' } = options
  return (node, field) => {
    if (node.kind !== 'scalar' || typeof node.value !== 'string') {
      return wrong(node, field, expected, isPrivate)
    }
    const value = expandEnv(node.value, node, field)
    if (value === undefined) return undefined
    if (value.length > maxLength) {
      note(node, field, `expected at most ${maxLength} characters, got ${value.length}`)
      return undefined
    }
    if (value !== '' && (pattern === undefined || pattern.test(value))) return value
    return wrong(node, field, expected, isPrivate)
  }
}

const envReference = /\$\{env:([^}]*)\}/g

function expandEnv(value: string, node: ConfigNode, field: Field): string | undefined {
  let isComplete = true
  const expanded = value.replaceAll(envReference, (_, name: string) => {
    const found = /^[A-Za-z_]\w*$/.test(name) && Object.hasOwn(field.env, name)
    const content = found ? field.env[name] : undefined
    if (content !== undefined) return content
    isComplete = false
    note(node, field, `the environment variable ${name === '' ? '(no name)' : name} is not set`)
    return ''
  })
  return isComplete ? expanded : undefined
}

/** A list of what `item` reads, or one such value alone. */
export function listOf<T>(item: Reader<T>, max = 1000): Reader<readonly T[]> {
  return (node, field) => {
    const items = node.kind === 'list' ? node.items : [node]
    if (items.length > max) return wrong(node, field, `at most ${max} items`)
    const read = items.map((one, at) => {
      const path = node.kind === 'list' ? `${field.path}[${at}]` : field.path
      return item(one, { ...field, path })
    })
    return read.every((one) => one !== undefined) ? read : undefined
  }
}

/** A map whose keys the reader does not know beforehand. */
export function mapOf<T>(key: RegExp, expected: string, item: Reader<T>): Reader<Map<string, T>> {
  return (node, field) => {
    if (node.kind !== 'map') return wrong(node, field, 'keys and values', true)
    const read = new Map<string, T>()
    for (const entry of node.entries) {
      const path = `${field.path}.${entry.key}`
      if (!key.test(entry.key)) {
        field.problems.add(entry.place, `${field.path}: expected ${expected} as key`)
      }
      const value = item(entry.value, { ...field, path })
      if (value !== undefined) read.set(entry.key, value)
    }
    return read.size === node.entries.length ? read : undefined
  }
}

/** What the keys of a section are and how each is read. */
export type Spec = Readonly<Record<string, Reader<unknown>>>

type ValueOf<R> = R extends Reader<infer T> ? T : never

/** The values that a section gives, and where: what is left out, empty or wrong is `undefined`. */
export interface Section<S extends Spec> {
  readonly values: { readonly [K in keyof S]?: ValueOf<S[K]> }
  /** Whether there is a value, right or wrong. */
  readonly has: (key: keyof S) => boolean
  /** Of the value, or else of the section. */
  readonly placeOf: (key: keyof S) => Place
}

/** Reads a map by its spec; keys that it does not know are problems. */
export function readSection<S extends Spec>(
  spec: S,
  node: MapNode,
  field: Field,
  explain: (key: string) => string | undefined = () => undefined,
): Section<S> {
  const values: Record<string, unknown> = {}
  const places = new Map<string, Place>()
  for (const { key, place, value } of node.entries) {
    const reader = Object.hasOwn(spec, key) ? spec[key] : undefined
    if (reader === undefined) {
      const problem = explain(key) ?? unknownKey(key, Object.keys(spec))
      field.problems.add(place, `${showKey(key)}: ${problem}`)
      continue
    }
    if (isNothing(value)) continue
    places.set(key, value.place)
    const path = field.path === '' ? key : `${field.path}.${key}`
    values[key] = reader(value, { ...field, path })
  }
  return {
    values: values as Section<S>['values'],
    has: (key) => places.has(String(key)),
    placeOf: (key) => places.get(String(key)) ?? node.place,
  }
}

/** `key:` and `key: null` leave the default as it is. */
export function isNothing(node: ConfigNode): boolean {
  return node.kind === 'scalar' && node.value === null
}

function unknownKey(key: string, known: readonly string[]): string {
  const near = nearest(key, known)
  return near === undefined
    ? `unknown key, known are ${known.join(', ')}`
    : `unknown key, did you mean ${near}?`
}

/** Notes what was expected and what is written there; gives `undefined`. */
export function wrong(
  node: ConfigNode,
  field: Field,
  expected: string,
  isPrivate = false,
): undefined {
  const got = node.kind === 'scalar' && !isPrivate ? written(node) : kindOf(node)
  note(node, field, `expected ${expected}, got ${got}`)
}

const note = (node: ConfigNode, field: Field, problem: string): void =>
  field.problems.add(node.place, `${field.path}: ${problem}`)

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
