/** Translates a JSON schema into a grammar (GBNF) for llama.cpp; refuses what it cannot enforce. */

import { integerGrammar, type NumberBounds, numberGrammar } from './number-grammar.ts'
import { patternGrammar } from './pattern-grammar.ts'
import { freeFormats, stringFormats } from './string-formats.ts'

type Schema = Readonly<Record<string, unknown>>

/** Keywords that restrict values and cannot be expressed by a grammar. */
const inexpressible = [
  'not',
  'if',
  'patternProperties',
  'dependentSchemas',
  'contains',
  'multipleOf',
]
const maxDepth = 64
/** All other requests wait while a grammar is compiled. */
const maxGrammarChars = 262_144

/**
 * White space is where programs write it that indent JSON: one space after a colon, a line and its
 * indentation inside of brackets and after a comma. A model may write as much as it is allowed, and
 * reach the limit of its tokens before the end. There is none after the last bracket.
 */
const basics = [
  'value ::= object | array | string | number | boolean | null',
  'object ::= "{" ws ( member ( "," ws member )* ws )? "}"',
  'member ::= string ":" sp value',
  'array ::= "[" ws ( value ( "," ws value )* ws )? "]"',
  String.raw`char ::= [^"\\\x7F\x00-\x1F] | "\\" ( ["\\/bfnrt] | "u" [0-9a-fA-F]{4} )`,
  String.raw`string ::= "\"" char* "\""`,
  'integer ::= "-"? ( "0" | [1-9] [0-9]{0,15} )',
  'number ::= "-"? ( "0" | [1-9] [0-9]{0,15} ) ( "." [0-9]{1,16} )? ( [eE] [-+]? [0-9]{1,3} )?',
  'boolean ::= "true" | "false"',
  'null ::= "null"',
  'sp ::= " "?',
  String.raw`ws ::= | " " | "\n" [ \t]{0,20}`,
  String.raw`end ::= [ \n]?`,
]

/** Any JSON object. */
export const objectGrammar: string = ['root ::= object', ...basics].join('\n')

/**
 * Throws an `Error` that names what cannot be enforced. The length of the grammar is proportional
 * to that of the schema, and limited.
 */
export function toJsonGrammar(schema: object): string {
  const writer = new GrammarWriter(schema as Schema)
  const root = writer.expression(schema, 0)
  writer.define('root', root)
  return [...writer.rules.toReversed(), ...basics].join('\n')
}

class GrammarWriter {
  /** Rules come after those that they use. */
  readonly rules: string[] = []
  readonly #document: Schema
  #length = 0
  /** Names of the rules of definitions, by reference: a definition may refer to itself. */
  readonly #names = new Map<string, string>()

  constructor(document: Schema) {
    this.#document = document
  }

  define(name: string, text: string): void {
    this.#length += text.length
    if (this.#length > maxGrammarChars) {
      throw new Error(`the schema needs a grammar of more than ${maxGrammarChars} characters`)
    }
    this.rules.push(`${name} ::= ${text}`)
  }

  expression(schema: unknown, depth: number): string {
    if (depth > maxDepth) throw new Error(`the schema is nested deeper than ${maxDepth}`)
    if (schema === true) return 'value'
    if (typeof schema !== 'object' || schema === null) throw new Error('false allows nothing')
    const given = schema as Schema
    for (const key of inexpressible) {
      if (key in given) throw unenforceable(key)
    }
    expectGivenCount(given)
    if (typeof given['$ref'] === 'string') return this.#reference(given['$ref'], depth)
    if ('const' in given) return literal(given['const'])
    if (Array.isArray(given['enum'])) return anyOf(given['enum'].map(literal))
    const choices = choicesOf(given)
    if (choices !== null) return anyOf(choices.map((choice) => this.expression(choice, depth + 1)))
    const types = typesOf(given)
    return anyOf(types.map((type) => this.#ofType(type, given, depth)))
  }

  #reference(reference: string, depth: number): string {
    const known = this.#names.get(reference)
    if (known !== undefined) return known
    const name = `d${this.#names.size}`
    this.#names.set(reference, name)
    this.define(name, this.expression(this.#find(reference), depth + 1))
    return name
  }

  /**
   * A name for an expression that is used or repeated more than once. Inlined, it would double at
   * every level, and llama.cpp refuses to repeat long expressions.
   */
  #named(text: string): string {
    if (/^\w+$/.test(text)) return text
    const name = `r${this.rules.length}`
    this.define(name, text)
    return name
  }

  #find(reference: string): unknown {
    const [head, ...path] = reference.split('/')
    let found: unknown = head === '#' ? this.#document : undefined
    for (const part of path) {
      const key = part.replaceAll('~1', '/').replaceAll('~0', '~')
      found = typeof found === 'object' && found !== null ? (found as Schema)[key] : undefined
    }
    if (found === undefined) throw new Error(`\`${reference}\` is not defined in the schema`)
    return found
  }

  #ofType(type: string, schema: Schema, depth: number): string {
    if (type === 'object') return this.#object(schema, depth)
    if (type === 'array') return this.#array(schema, depth)
    if (type === 'string') return stringOf(schema)
    if (type === 'integer') return integerGrammar(boundsOf(schema))
    if (type === 'number') return numberGrammar(boundsOf(schema))
    if (['boolean', 'null', 'value'].includes(type)) return type
    throw new Error(`there is no type \`${type}\``)
  }

  /** Members are in the order of the schema, required ones first. */
  #object(schema: Schema, depth: number): string {
    const properties = Object.entries(propertiesOf(schema))
    const required = requiredOf(schema)
    const member = ([name, value]: [string, unknown]): string =>
      `${quoted(JSON.stringify(name))} ":" sp ${this.expression(value, depth + 1)}`
    const always = [
      ...properties.filter(([name]) => required.has(name)),
      ...unnamedOf(schema).map((name): [string, unknown] => [name, unnamedValueOf(schema, name)]),
    ].map(member)
    const sometimes = properties.filter(([name]) => !required.has(name))
    const others = this.#otherMember(schema, depth)
    let rest = others === null ? '' : ` ( "," ws ${others} )*`
    const heads = others === null ? [] : [others + rest]
    for (const text of sometimes.map(member).toReversed()) {
      const name = this.#named(text)
      heads.unshift(name + rest)
      rest = ` ${this.#named(`( "," ws ${name} )?${rest}`)}`
    }
    const last = spaceBeforeEnd(depth)
    if (always.length > 0) return braces(`${always.join(' "," ws ')}${rest} ${last}`)
    return braces(heads.length === 0 ? '' : `( ${this.#named(heads.join(' | '))} ${last} )?`)
  }

  /** Without `additionalProperties`, only named members are generated. */
  #otherMember(schema: Schema, depth: number): string | null {
    const others = othersOf(schema)
    if (others === false) return null
    const names = schema['propertyNames'] ?? true
    const name = names === true ? 'string' : this.expression(toTextSchema(names), depth + 1)
    return this.#named(`${name} ":" sp ${this.expression(others, depth + 1)}`)
  }

  #array(schema: Schema, depth: number): string {
    const last = spaceBeforeEnd(depth)
    if (Array.isArray(schema['prefixItems'])) {
      const items = schema['prefixItems'].map((item) => this.expression(item, depth + 1))
      return items.length === 0 ? emptyArray : `"[" ws ${items.join(' "," ws ')} ${last} "]"`
    }
    if (schema['uniqueItems'] === true && numberIn(schema, 'maxItems') !== 1) {
      return uniqueArray(schema, last)
    }
    const item = this.#named(this.expression(schema['items'] ?? true, depth + 1))
    const least = numberIn(schema, 'minItems') ?? 0
    const most = numberIn(schema, 'maxItems')
    if (most === 0) return emptyArray
    const range = `{${Math.max(0, least - 1)},${most === null ? '' : most - 1}}`
    const items = `${item} ( "," ws ${item} )${range} ${last}`
    return `"[" ws ${least === 0 ? `( ${items} )?` : items} "]"`
  }
}

const emptyArray = '"[" ws "]"'

/** The last bracket of an answer is not indented. */
const spaceBeforeEnd = (depth: number): string => (depth === 0 ? 'end' : 'ws')

const unenforceable = (key: string): Error => new Error(`\`${key}\` cannot be enforced`)

const propertiesOf = (schema: Schema): Schema => (schema['properties'] ?? {}) as Schema

const requiredOf = (schema: Schema): ReadonlySet<string> =>
  new Set(Array.isArray(schema['required']) ? schema['required'].map(String) : [])

/** Required names that are not among `properties`. */
const unnamedOf = (schema: Schema): readonly string[] =>
  [...requiredOf(schema)].filter((name) => !Object.hasOwn(propertiesOf(schema), name))

function unnamedValueOf(schema: Schema, name: string): unknown {
  const value = schema['additionalProperties'] ?? true
  if (value !== false) return value
  throw new Error(`\`${name}\` is required, but not among the \`properties\``)
}

/** The schema of members beyond the named ones; `false` if there are none. */
const othersOf = (schema: Schema): unknown =>
  schema['additionalProperties'] ?? Object.keys(propertiesOf(schema)).length === 0

/** Throws for limits on the number of members that do not follow from their names. */
function expectGivenCount(schema: Schema): void {
  const { minProperties: least = 0, maxProperties: most = Infinity } = schema
  const named = Object.keys(propertiesOf(schema)).length + unnamedOf(schema).length
  if (requiredOf(schema).size < Number(least)) throw unenforceable('minProperties')
  const isOpen = othersOf(schema) !== false
  if ((isOpen ? Infinity : named) > Number(most)) throw unenforceable('maxProperties')
}

const braces = (members: string): string => `"{" ws ${members} "}"`

/** `allOf` of one schema is that schema; more cannot be expressed. */
function choicesOf(schema: Schema): readonly unknown[] | null {
  for (const key of ['anyOf', 'oneOf', 'allOf']) {
    const choices = schema[key]
    if (!Array.isArray(choices)) continue
    if (key === 'allOf' && choices.length !== 1) throw unenforceable(key)
    return choices
  }
  return null
}

function typesOf(schema: Schema): readonly string[] {
  const { type } = schema
  if (Array.isArray(type)) return [...new Set(type.map(String))]
  if (type !== undefined) return [String(type)]
  if ('properties' in schema || 'required' in schema) return ['object']
  return 'items' in schema || 'prefixItems' in schema ? ['array'] : ['value']
}

/** A schema of the names of members: they are texts. */
function toTextSchema(names: unknown): Schema {
  if (typeof names !== 'object' || names === null) throw unenforceable('propertyNames')
  return { type: 'string', ...names }
}

/** The most lists that are written out for a list without repetitions. */
const maxUniqueLists = 400

/** Every list of different values is written out: that is possible for a few values only. */
function uniqueArray(schema: Schema, last: string): string {
  const values = valuesOf(schema['items'])
  const least = numberIn(schema, 'minItems') ?? 0
  const most = Math.min(numberIn(schema, 'maxItems') ?? Infinity, values.length)
  const lists: string[] = []
  const extend = (chosen: readonly string[]): void => {
    if (chosen.length >= least) lists.push(chosen.join(' "," ws '))
    if (lists.length > maxUniqueLists) throw unenforceable('uniqueItems')
    if (chosen.length >= most) return
    for (const value of values) if (!chosen.includes(value)) extend([...chosen, value])
  }
  extend([])
  return `"[" ws ${anyOf(lists.map((list) => (list === '' ? '""' : `${list} ${last}`)))} "]"`
}

/** The literals of a schema that has few values. */
function valuesOf(items: unknown): readonly string[] {
  const { enum: given, type, const: only } = (items ?? {}) as Schema
  if (Array.isArray(given)) return [...new Set(given.map(literal))]
  if (only !== undefined) return [literal(only)]
  if (type === 'boolean') return [literal(true), literal(false)]
  throw unenforceable('uniqueItems')
}

function boundsOf(schema: Schema): NumberBounds {
  const bound = (key: string): number | null => {
    const value = schema[key]
    return typeof value === 'number' && Number.isFinite(value) ? value : null
  }
  const [min, over] = [bound('minimum'), bound('exclusiveMinimum')]
  const [max, under] = [bound('maximum'), bound('exclusiveMaximum')]
  const isMinExclusive = over !== null && (min === null || over >= min)
  const isMaxExclusive = under !== null && (max === null || under <= max)
  return toBounds({
    min: isMinExclusive ? over : min,
    max: isMaxExclusive ? under : max,
    isMinExclusive,
    isMaxExclusive,
  })
}

/** Bounds beyond what a grammar can count are none: zod writes those of safe integers. */
function toBounds(bounds: NumberBounds): NumberBounds {
  const limit = (value: number | null): number | null =>
    value === null || Math.abs(value) >= Number.MAX_SAFE_INTEGER ? null : value
  return { ...bounds, min: limit(bounds.min), max: limit(bounds.max) }
}

/** The pattern of a text, its own or that of its format. */
function patternOf({ pattern, format }: Schema): string | null {
  if (typeof pattern === 'string') return pattern
  if (typeof format !== 'string' || freeFormats.has(format)) return null
  const known = Object.hasOwn(stringFormats, format) ? stringFormats[format] : undefined
  if (known === undefined) throw new Error(`\`format\`: \`${format}\` cannot be enforced`)
  return known
}

function stringOf(schema: Schema): string {
  const least = numberIn(schema, 'minLength') ?? 0
  const most = numberIn(schema, 'maxLength')
  const pattern = patternOf(schema)
  if (pattern !== null) {
    const isLimited = most !== null || least > 1
    if (isLimited) throw new Error('`pattern` with `minLength` or `maxLength` cannot be enforced')
    return String.raw`"\"" ${patternGrammar(pattern, 'json')} "\""`
  }
  if (least === 0 && most === null) return 'string'
  return String.raw`"\"" char{${least},${most ?? ''}} "\""`
}

function numberIn(schema: Schema, key: string): number | null {
  const value = schema[key]
  return typeof value === 'number' && Number.isInteger(value) && value >= 0 ? value : null
}

function anyOf(choices: readonly string[]): string {
  if (choices.length === 0) throw new Error('an empty choice allows nothing')
  return choices.length === 1 ? choices.join('') : `( ${choices.join(' | ')} )`
}

const literal = (value: unknown): string => quoted(JSON.stringify(value))

/** A string of GBNF, which has fewer escapes than JSON. */
function quoted(text: string): string {
  const escaped = text.replaceAll('\\', String.raw`\\`).replaceAll('"', String.raw`\"`)
  return `"${escaped.replaceAll('\n', String.raw`\n`)}"`
}
