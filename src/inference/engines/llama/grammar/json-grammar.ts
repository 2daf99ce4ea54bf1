/** Converts a JSON schema to a GBNF grammar for llama.cpp. Rejects what it cannot enforce. */

import type { ToolDefinition } from '../../../generation/inference-engine.ts'
import { emptyParameters } from '../templates/template-messages.ts'
import { integerGrammar, numberGrammar } from './number-grammar.ts'
import {
  keysOf,
  keywordsOf,
  located,
  type Schema,
  SchemaFault,
  impossible,
  invalidSchema,
  unenforceable,
} from './schema-keywords.ts'
import { choicesOf, type SchemaReader } from './schema-merge.ts'
import {
  boundsOf,
  countsOf,
  decodedPart,
  listedIn,
  memberOf,
  namedPart,
  namesOf,
  nothingFits,
  othersOf,
  requiredOf,
  typesOf,
  valueOf,
  expectFewValues,
} from './schema-parts.ts'
import { otherKey, quoted, stringGrammar, textChoice } from './string-grammar.ts'

const maxDepth = 64
/** Limited, because all other requests wait while a grammar is compiled. */
const maxGrammarChars = 262_144
/** Limited, because expanding combined schemas multiplies them. */
const maxSteps = 5_000

/**
 * White space is allowed where indented JSON has it: one space after a colon, a line break with
 * indentation inside brackets and after a comma. It is limited, because a model may write as much
 * as is allowed until it reaches its token limit. None is allowed after the last bracket.
 */
const basics = [
  'value ::= object | array | string | number | boolean | null',
  'object ::= "{" ws ( member ( "," ws member )* ws )? "}"',
  'member ::= string ":" sp value',
  'array ::= "[" ws ( value ( "," ws value )* ws )? "]"',
  String.raw`char ::= [^"\\\x7F\x00-\x1F] | "\\" ( ["\\/bfnrt] | "u" [0-9a-fA-F]{4} )`,
  String.raw`string ::= "\"" char* "\""`,
  'integer ::= "-"? ( "0" | [1-9] [0-9]{0,15} )',
  'number ::= "-"? ( "0" | [1-9] [0-9]{0,15} ) ( "." [0-9]{1,16} )? ( [eE] [-+]? [0-9]{1,2} )?',
  'boolean ::= "true" | "false"',
  'null ::= "null"',
  'sp ::= " "?',
  String.raw`ws ::= | " " | "\n" [ \t]{0,20}`,
  String.raw`end ::= [ \n]?`,
]

/** The grammar of any JSON object. */
export const objectGrammar: string = ['root ::= object', ...basics].join('\n')

/**
 * Throws an `Error` that names what cannot be enforced, and where. The length of the grammar is
 * limited. Without combined schemas, it is proportional to the length of the schema.
 */
export function toJsonGrammar(schema: object): string {
  const writer = new GrammarWriter()
  writer.define('root', writer.document(schema, { depth: 0 }))
  return writer.text
}

/**
 * The grammar of a call of one of the tools as JSON. A `SchemaFault` names the faulty tool. A tool
 * for which no arguments are possible is an error, because a client would not notice its omission.
 */
export function toCallGrammar(tools: readonly ToolDefinition[]): string {
  const writer = new GrammarWriter()
  const calls = tools.map(({ name, parameters = noParameters }, tool) => {
    const given = writer.document(parameters, { depth: 1, tool, toolName: name })
    const members = [member('name', literal(name)), member('arguments', given)]
    return braces(`${members.join(' "," ws ')} ${spaceBeforeEnd(0)}`)
  })
  writer.define('root', anyOf([...new Set(calls)]))
  return writer.text
}

/** The schema of a tool without `parameters`: an empty object. */
const noParameters = { ...emptyParameters, additionalProperties: false }

class GrammarWriter implements SchemaReader {
  /** Each rule follows the rules that it uses. */
  readonly rules: string[] = []
  #document: unknown = null
  #length = 0
  #steps = 0
  #definitions = 0
  /** The rules of definitions, by reference: a definition may refer to itself. */
  readonly #names = new Map<string, string>()

  get text(): string {
    return [...this.rules.toReversed(), ...basics].join('\n')
  }

  /** The expression of a schema that is the root of its own references. */
  document(schema: object, { depth, tool = null, toolName = '' }: DocumentPlace): string {
    this.#document = schema
    this.#names.clear()
    try {
      return located('#', () => {
        expectFewValues(schema)
        return this.expression(schema, depth)
      })
    } catch (error) {
      if (!(error instanceof SchemaFault)) throw error
      const { message, isImpossible, isInvalid, path } = error
      const cause = tool !== null && isImpossible ? `no arguments fit \`${toolName}\`: ` : ''
      const text = `${cause}${message}, at \`${path}\``
      throw new SchemaFault(text, { isImpossible, isInvalid, path, tool })
    }
  }

  define(name: string, text: string): void {
    this.#length += text.length
    if (this.#length > maxGrammarChars) {
      throw new SchemaFault(`the schema needs a grammar of more than ${maxGrammarChars} characters`)
    }
    this.rules.push(`${name} ::= ${text}`)
  }

  spend(steps: number): void {
    this.#steps += steps
    if (this.#steps > maxSteps) throw new SchemaFault('the schema has too many parts')
  }

  find(reference: string): unknown {
    const [head, ...path] = reference.split('/')
    let found: unknown = head === '#' ? this.#document : undefined
    for (const part of path) {
      found = namedPart(found, part) ?? namedPart(found, decodedPart(part))
    }
    if (found !== undefined) return found
    // Only references within the document are supported.
    const isInvalid = head === '#'
    throw new SchemaFault(`\`${reference}\` is not defined in the schema`, { isInvalid })
  }

  expression(schema: unknown, depth: number): string {
    if (depth > maxDepth) throw new SchemaFault(`the schema is nested deeper than ${maxDepth}`)
    this.spend(1)
    const given = keywordsOf(schema)
    const [key = '', ...others] = keysOf(given)
    if (key === '$ref' && others.length === 0) return this.#reference(String(given[key]), depth)
    if ((key === 'anyOf' || key === 'oneOf') && others.length === 0) {
      return this.anyOf(given[key] as readonly unknown[], (choice, at) =>
        this.#part(`/${key}/${at}`, choice, depth),
      )
    }
    const choices = choicesOf(schema, this)
    if (choices.length === 0) throw nothingFits()
    return this.anyOf(choices, (choice) => this.#plain(choice, depth))
  }

  #part(place: string, schema: unknown, depth: number): string {
    return located(place, () => this.expression(schema, depth + 1))
  }

  #reference(reference: string, depth: number): string {
    const known = this.#names.get(reference)
    if (known !== undefined) return known
    const name = `d${this.#definitions++}`
    const found = this.find(reference)
    this.#names.set(reference, name)
    const text = this.#part(reference, found, depth)
    if (text === name) throw invalidSchema(`\`${reference}\` is defined by itself alone`)
    this.define(name, text)
    return name
  }

  /** Omits choices that no value can match, unless that applies to all choices. */
  anyOf<T>(choices: readonly T[], write: (choice: T, at: number) => string): string {
    if (choices.length === 0) throw impossible('an empty choice allows nothing')
    const texts: string[] = []
    let fault: unknown = null
    for (const [at, choice] of choices.entries()) {
      const [rules, names] = [this.rules.length, this.#names.size]
      try {
        texts.push(write(choice, at))
      } catch (error) {
        if (!(error instanceof SchemaFault && error.isImpossible)) throw error
        fault = error
        this.rules.length = rules
        for (const name of [...this.#names.keys()].slice(names)) this.#names.delete(name)
      }
    }
    if (texts.length === 0) throw fault
    return anyOf([...new Set(texts)])
  }

  /** The expression of a schema without `$ref`, `allOf`, `anyOf` and `oneOf`. */
  #plain(schema: Schema, depth: number): string {
    const listed = listedIn(schema)
    if (listed !== null) return anyText(listed.map((value) => JSON.stringify(value)))
    return this.anyOf(typesOf(schema), (type) => this.#ofType(type, schema, depth))
  }

  /**
   * Creates a rule for an expression that is used or repeated more than once. If such expressions
   * were inlined, they would double at every level, and llama.cpp refuses to repeat long
   * expressions.
   */
  #named(text: string): string {
    if (/^\w+$/.test(text)) return text
    const name = `r${this.rules.length}`
    this.define(name, text)
    return name
  }

  #ofType(type: string, schema: Schema, depth: number): string {
    if (type === 'object') return this.#object(this.#withNames(schema), depth)
    if (type === 'array') return this.#array(schema, depth)
    if (type === 'string') return stringGrammar(schema)
    if (type === 'integer') return integerGrammar(boundsOf(schema))
    if (type === 'number') return numberGrammar(boundsOf(schema))
    if (['boolean', 'null', 'value'].includes(type)) return type
    throw invalidSchema(`there is no type \`${type}\``)
  }

  /** Members are in the order of the schema, but required members come first. */
  #object(schema: Schema, depth: number): string {
    const required = requiredOf(schema)
    const write = (name: string): string =>
      member(name, this.#part(`/properties/${name}`, valueOf(schema, name), depth))
    const named = namesOf(schema)
    const inOrder = named.filter((name) => required.has(name))
    const always = [...new Set([...inOrder, ...required])].map(write)
    const sometimes = named.filter(
      (name) => !required.has(name) && memberOf(schema, name) !== false,
    )
    const others = this.#otherMember(schema, depth)
    const { min, max } = countsOf(schema, sometimes.length, others !== null)
    let rest = others === null || max === 0 ? '' : ` ( "," ws ${others} )${atMost(max)}`
    const heads =
      others === null || max === 0 ? [] : [`${others} ( "," ws ${others} )${atMost(max - 1)}`]
    for (const text of sometimes.map(write).toReversed()) {
      const name = this.#named(text)
      heads.unshift(name + rest)
      rest = ` ${this.#named(`( "," ws ${name} )?${rest}`)}`
    }
    const last = spaceBeforeEnd(depth)
    if (always.length > 0) return braces(`${always.join(' "," ws ')}${rest} ${last}`)
    if (heads.length === 0) return braces('')
    return braces(`( ${this.#named(heads.join(' | '))} ${last} )${min > 0 ? '' : '?'}`)
  }

  /** Without `additionalProperties`, a schema with named members allows no others. */
  #otherMember(schema: Schema, depth: number): string | null {
    const others = othersOf(schema)
    if (others === false) return null
    const { propertyNames: names } = schema
    const taken = [...namesOf(schema), ...requiredOf(schema)]
    const name =
      names === undefined
        ? taken.length === 0
          ? 'string'
          : otherKey(taken)
        : this.#part('/propertyNames', { allOf: [{ type: 'string' }, names] }, depth)
    return this.#named(`${name} ":" sp ${this.#part('/additionalProperties', others, depth)}`)
  }

  /**
   * `propertyNames` applies to all names. Listed names become named members. Otherwise the keyword
   * is kept, which is possible only without named members.
   */
  #withNames(schema: Schema): Schema {
    const { propertyNames, ...rest } = schema
    if (propertyNames === undefined) return rest
    const choices = located('/propertyNames', () =>
      choicesOf({ allOf: [{ type: 'string' }, propertyNames] }, this),
    )
    if (choices.some((choice) => keysOf(choice).join('') === 'type')) return rest
    const lists = choices.map(listedIn)
    const given = [...namesOf(schema), ...requiredOf(schema)]
    if (lists.includes(null)) {
      if (given.length === 0) return schema
      throw unenforceable('propertyNames', 'properties')
    }
    const allowed = lists.flatMap((list) => list ?? []).map(String)
    const isOpen = othersOf(schema) !== false
    const names = [...new Set([...namesOf(schema), ...(isOpen ? allowed : [])])]
    return {
      ...rest,
      properties: Object.fromEntries(
        names.map((name) => [name, allowed.includes(name) ? memberOf(schema, name) : false]),
      ),
      additionalProperties: false,
    }
  }

  #array(schema: Schema, depth: number): string {
    const last = spaceBeforeEnd(depth)
    const { minItems = 0, maxItems = Infinity, items, uniqueItems, prefixItems } = schema
    const [min, max] = [Number(minItems), Number(maxItems)]
    if (min > max) throw impossible('no list has both lengths')
    const prefix = Array.isArray(prefixItems) ? prefixItems.slice(0, max) : null
    if (uniqueItems === true && max > 1) {
      if (prefix !== null) throw unenforceable('uniqueItems', 'prefixItems')
      return this.#uniqueArray(items, { min, max }, last)
    }
    const first = (prefix ?? []).map((item, at) => this.#part(`/prefixItems/${at}`, item, depth))
    const [fewest, further] = [Math.max(0, min - first.length), max - first.length]
    const isClosed = items === false || (prefix !== null && items === undefined && fewest === 0)
    if (isClosed || further === 0) {
      if (fewest > 0) throw impossible('`minItems` is more than the `items` allow')
      return first.length === 0 ? emptyArray : `"[" ws ${first.join(' "," ws ')} ${last} "]"`
    }
    const item = this.#named(this.#part('/items', items ?? true, depth))
    if (first.length > 0) {
      const more = `( "," ws ${item} ){${fewest},${further === Infinity ? '' : further}}`
      return `"[" ws ${first.join(' "," ws ')} ${more} ${last} "]"`
    }
    const range = `{${Math.max(0, fewest - 1)},${further === Infinity ? '' : further - 1}}`
    const written = `${item} ( "," ws ${item} )${range} ${last}`
    return `"[" ws ${fewest === 0 ? `( ${written} )?` : written} "]"`
  }

  /** Expands all lists of distinct values, which is possible only for a few values. */
  #uniqueArray(items: unknown, { min, max }: { min: number; max: number }, last: string): string {
    const values = this.#valuesOf(items)
    const longest = Math.min(max, values.length)
    const lists: string[] = []
    const extend = (chosen: readonly string[]): void => {
      if (chosen.length >= min) lists.push(chosen.join(' "," ws '))
      if (lists.length > maxUniqueLists) throw unenforceable('uniqueItems')
      if (chosen.length >= longest) return
      for (const value of values) if (!chosen.includes(value)) extend([...chosen, value])
    }
    extend([])
    return `"[" ws ${anyOf(lists.map((list) => (list === '' ? '""' : `${list} ${last}`)))} "]"`
  }

  /** The literals of a schema that allows only a few values. */
  #valuesOf(items: unknown): readonly string[] {
    const values = choicesOf(items ?? true, this).flatMap((choice): readonly unknown[] => {
      const listed = listedIn(choice)
      if (listed !== null) return listed
      if (typesOf(choice).join('') === 'boolean') return [true, false]
      throw unenforceable('uniqueItems')
    })
    return [...new Set(values.map(literal))]
  }
}

interface DocumentPlace {
  readonly depth: number
  /** The index of the tool whose parameters the schema describes. */
  readonly tool?: number | null
  readonly toolName?: string
}

const emptyArray = '"[" ws "]"'
/** The maximum number of lists to expand for `uniqueItems`. */
const maxUniqueLists = 400

/** The last bracket of an answer is not indented. */
const spaceBeforeEnd = (depth: number): string => (depth === 0 ? 'end' : 'ws')

const atMost = (count: number): string => (count === Infinity ? '*' : `{0,${count}}`)

const member = (name: string, value: string): string => `${literal(name)} ":" sp ${value}`

const braces = (members: string): string => `"{" ws ${members} "}"`

function anyOf(choices: readonly string[]): string {
  if (choices.length === 0) throw new Error('an empty choice allows nothing')
  return choices.length === 1 ? choices.join('') : `( ${choices.join(' | ')} )`
}

const anyText = (texts: readonly string[]): string =>
  texts.length === 1 ? textChoice(texts) : `( ${textChoice(texts)} )`

const literal = (value: unknown): string => quoted(JSON.stringify(value))
