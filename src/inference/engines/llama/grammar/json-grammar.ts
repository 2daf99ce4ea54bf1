/**
 * Converts a JSON schema to a GBNF grammar for llama.cpp. Rejects schemas that no such grammar can
 * enforce.
 */

import { tryRead } from '../../../../foundation/errors.ts'
import type { ToolDefinition } from '../../../generation/inference-engine.ts'
import { emptyParameters } from '../templates/template-messages.ts'
import { integerGrammar, numberGrammar } from './number-grammar.ts'
import { joinChoices } from './pattern-grammar.ts'
import {
  definedKeys,
  readKeywords,
  withPath,
  type Schema,
  SchemaError,
  impossibleSchema,
  invalidSchema,
  unenforceable,
} from './schema-keywords.ts'
import { expandSchema, type SchemaReader } from './schema-merge.ts'
import {
  numberBounds,
  readMemberLimits,
  enumValues,
  memberSchema,
  memberAt,
  memberNames,
  noMatchError,
  additionalSchema,
  requiredNames,
  schemaTypes,
  requiredMember,
  expectSchemaSize,
} from './schema-parts.ts'
import { otherKeyGrammar, quoteLiteral, stringGrammar, textChoice } from './string-grammar.ts'

const maxDepth = 64
/** The length of a grammar is limited, because all other requests wait while it is compiled. */
const maxGrammarChars = 262_144
/** The maximum number of schema parts. Combined schemas multiply their alternatives. */
const maxSteps = 5_000

/** White space is limited, because a model may write as much as is allowed. */
const baseRules = [
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

export const objectGrammar: string = ['root ::= object', ...baseRules].join('\n')

/** Throws an `Error` that names the part that cannot be enforced, and its path. */
export function toJsonGrammar(schema: object): string {
  const writer = new GrammarWriter()
  writer.defineRule('root', writer.document(schema, { depth: 0 }))
  return writer.text
}

/** Throws if no arguments fit a tool, because clients would not notice if the tool were omitted. */
export function toCallGrammar(tools: readonly ToolDefinition[]): string {
  const writer = new GrammarWriter()
  const calls = tools.map(({ name, parameters = noParameters }, tool) => {
    const given = writer.document(parameters, { depth: 1, tool, toolName: name })
    const members = [writeMember('name', toLiteral(name)), writeMember('arguments', given)]
    return inBraces(`${members.join(' "," ws ')} ${closingSpace(0)}`)
  })
  writer.defineRule('root', joinChoices([...new Set(calls)]))
  return writer.text
}

/** A tool without `parameters` accepts only an empty object. */
const noParameters = { ...emptyParameters, additionalProperties: false }

class GrammarWriter implements SchemaReader {
  /** Rules in the order of their definition. Each rule follows the rules that it uses. */
  readonly rules: string[] = []
  #documentSchema: unknown = null
  #length = 0
  #steps = 0
  #definitions = 0
  /** The names of the rules of definitions, by reference. A recursive definition uses the name. */
  readonly #ruleNames = new Map<string, string>()

  get text(): string {
    return [...this.rules.toReversed(), ...baseRules].join('\n')
  }

  /** Writes a whole schema. References are relative to this schema. */
  document(schema: object, { depth, tool = null, toolName = '' }: DocumentOptions): string {
    this.#documentSchema = schema
    this.#ruleNames.clear()
    try {
      return withPath('#', () => {
        expectSchemaSize(schema)
        return this.writeSchema(schema, depth)
      })
    } catch (error) {
      if (!(error instanceof SchemaError)) throw error
      const { message, isImpossible, isInvalid, path } = error
      const cause = tool !== null && isImpossible ? `no arguments fit \`${toolName}\`: ` : ''
      const text = `${cause}${message}, at \`${path}\``
      throw new SchemaError(text, { isImpossible, isInvalid, path, tool })
    }
  }

  defineRule(name: string, text: string): void {
    this.#length += text.length
    if (this.#length > maxGrammarChars) {
      throw new SchemaError(`the schema needs a grammar of more than ${maxGrammarChars} characters`)
    }
    this.rules.push(`${name} ::= ${text}`)
  }

  spend(steps: number): void {
    this.#steps += steps
    if (this.#steps > maxSteps) throw new SchemaError('the schema has too many parts')
  }

  resolveReference(reference: string): unknown {
    const [head, ...path] = reference.split('/')
    let found: unknown = head === '#' ? this.#documentSchema : undefined
    for (const part of path) {
      // References are URIs, so characters may be percent-encoded.
      const decoded = tryRead(() => decodeURIComponent(part)) ?? part
      found = memberAt(found, part) ?? memberAt(found, decoded)
    }
    if (found !== undefined) return found
    const isInvalid = head === '#'
    throw new SchemaError(`\`${reference}\` is not defined in the schema`, { isInvalid })
  }

  writeSchema(schema: unknown, depth: number): string {
    if (depth > maxDepth) throw new SchemaError(`the schema is nested deeper than ${maxDepth}`)
    this.spend(1)
    const given = readKeywords(schema)
    const [key = '', ...others] = definedKeys(given)
    if (key === '$ref' && others.length === 0)
      return this.#writeReference(String(given[key]), depth)
    if ((key === 'anyOf' || key === 'oneOf') && others.length === 0) {
      return this.writeAnyOf(given[key] as readonly unknown[], (choice, at) =>
        this.#writePart(`/${key}/${at}`, choice, depth),
      )
    }
    const choices = expandSchema(schema, this)
    if (choices.length === 0) throw noMatchError()
    return this.writeAnyOf(choices, (choice) => this.#writePlain(choice, depth))
  }

  #writePart(place: string, schema: unknown, depth: number): string {
    return withPath(place, () => this.writeSchema(schema, depth + 1))
  }

  #writeReference(reference: string, depth: number): string {
    const known = this.#ruleNames.get(reference)
    if (known !== undefined) return known
    const name = `d${this.#definitions++}`
    const found = this.resolveReference(reference)
    this.#ruleNames.set(reference, name)
    const text = this.#writePart(reference, found, depth)
    if (text === name) throw invalidSchema(`\`${reference}\` is defined by itself alone`)
    this.defineRule(name, text)
    return name
  }

  /** Writes a choice. Omits choices that no value can match, and throws if none remains. */
  writeAnyOf<T>(choices: readonly T[], write: (choice: T, at: number) => string): string {
    if (choices.length === 0) throw impossibleSchema('an empty choice allows nothing')
    const texts: string[] = []
    let fault: unknown = null
    for (const [at, choice] of choices.entries()) {
      const [rules, names] = [this.rules.length, this.#ruleNames.size]
      try {
        texts.push(write(choice, at))
      } catch (error) {
        if (!(error instanceof SchemaError && error.isImpossible)) throw error
        fault = error
        this.rules.length = rules
        for (const name of [...this.#ruleNames.keys()].slice(names)) this.#ruleNames.delete(name)
      }
    }
    if (texts.length === 0) throw fault
    return joinChoices([...new Set(texts)])
  }

  #writePlain(schema: Schema, depth: number): string {
    const listed = enumValues(schema)
    if (listed !== null) {
      const text = textChoice(listed.map((value) => JSON.stringify(value)))
      return listed.length === 1 ? text : `( ${text} )`
    }
    return this.writeAnyOf(schemaTypes(schema), (type) => this.#writeType(type, schema, depth))
  }

  /**
   * Defines a rule for an expression and returns the rule's name. If repeated expressions were
   * written inline, their length would double at every level.
   */
  #toRuleName(text: string): string {
    if (/^\w+$/.test(text)) return text
    const name = `r${this.rules.length}`
    this.defineRule(name, text)
    return name
  }

  #writeType(type: string, schema: Schema, depth: number): string {
    if (type === 'object') return this.#writeObject(this.#applyPropertyNames(schema), depth)
    if (type === 'array') return this.#writeArray(schema, depth)
    if (type === 'string') return stringGrammar(schema)
    if (type === 'integer') return integerGrammar(numberBounds(schema))
    if (type === 'number') return numberGrammar(numberBounds(schema))
    if (['boolean', 'null', 'value'].includes(type)) return type
    throw invalidSchema(`there is no type \`${type}\``)
  }

  /** Members follow the order of the schema, but required members come first. */
  #writeObject(schema: Schema, depth: number): string {
    const required = requiredNames(schema)
    const write = (name: string): string =>
      writeMember(name, this.#writePart(`/properties/${name}`, requiredMember(schema, name), depth))
    const named = memberNames(schema)
    const inOrder = named.filter((name) => required.has(name))
    const firstMembers = [...new Set([...inOrder, ...required])].map(write)
    const sometimes = named.filter(
      (name) => !required.has(name) && memberSchema(schema, name) !== false,
    )
    const others = this.#writeOtherMember(schema, depth)
    const { min, max } = readMemberLimits(schema, sometimes.length, others !== null)
    let rest = others === null || max === 0 ? '' : ` ( "," ws ${others} )${repeatAtMost(max)}`
    const heads =
      others === null || max === 0 ? [] : [`${others} ( "," ws ${others} )${repeatAtMost(max - 1)}`]
    for (const text of sometimes.map(write).toReversed()) {
      const name = this.#toRuleName(text)
      heads.unshift(name + rest)
      rest = ` ${this.#toRuleName(`( "," ws ${name} )?${rest}`)}`
    }
    const last = closingSpace(depth)
    if (firstMembers.length > 0) return inBraces(`${firstMembers.join(' "," ws ')}${rest} ${last}`)
    if (heads.length === 0) return inBraces('')
    return inBraces(`( ${this.#toRuleName(heads.join(' | '))} ${last} )${min > 0 ? '' : '?'}`)
  }

  /**
   * Writes a member that the schema does not name; `null` if only named members are allowed, as
   * without `additionalProperties` if the schema names any.
   */
  #writeOtherMember(schema: Schema, depth: number): string | null {
    const others = additionalSchema(schema)
    if (others === false) return null
    const { propertyNames: names } = schema
    const takenNames = [...memberNames(schema), ...requiredNames(schema)]
    const name =
      names === undefined
        ? takenNames.length === 0
          ? 'string'
          : otherKeyGrammar(takenNames)
        : this.#writePart('/propertyNames', { allOf: [{ type: 'string' }, names] }, depth)
    return this.#toRuleName(
      `${name} ":" sp ${this.#writePart('/additionalProperties', others, depth)}`,
    )
  }

  /**
   * Converts `propertyNames` that list all names to `properties`. Keeps other `propertyNames` only
   * if the schema itself names no members.
   */
  #applyPropertyNames(schema: Schema): Schema {
    const { propertyNames, ...rest } = schema
    if (propertyNames === undefined) return rest
    const choices = withPath('/propertyNames', () =>
      expandSchema({ allOf: [{ type: 'string' }, propertyNames] }, this),
    )
    if (choices.some((choice) => definedKeys(choice).join('') === 'type')) return rest
    const lists = choices.map(enumValues)
    const given = [...memberNames(schema), ...requiredNames(schema)]
    if (lists.includes(null)) {
      if (given.length === 0) return schema
      throw unenforceable('propertyNames', 'properties')
    }
    const allowed = lists.flatMap((list) => list ?? []).map(String)
    const isOpen = additionalSchema(schema) !== false
    const names = [...new Set([...memberNames(schema), ...(isOpen ? allowed : [])])]
    return {
      ...rest,
      properties: Object.fromEntries(
        names.map((name) => [name, allowed.includes(name) ? memberSchema(schema, name) : false]),
      ),
      additionalProperties: false,
    }
  }

  #writeArray(schema: Schema, depth: number): string {
    const last = closingSpace(depth)
    const { minItems = 0, maxItems = Infinity, items, uniqueItems, prefixItems } = schema
    const [min, max] = [Number(minItems), Number(maxItems)]
    if (min > max) throw impossibleSchema('no list has both lengths')
    const prefix = Array.isArray(prefixItems) ? prefixItems.slice(0, max) : null
    if (uniqueItems === true && max > 1) {
      if (prefix !== null) throw unenforceable('uniqueItems', 'prefixItems')
      return this.#writeUniqueArray(items, { min, max }, last)
    }
    const first = (prefix ?? []).map((item, at) =>
      this.#writePart(`/prefixItems/${at}`, item, depth),
    )
    const [fewest, further] = [Math.max(0, min - first.length), max - first.length]
    const isClosed = items === false || (prefix !== null && items === undefined && fewest === 0)
    if (isClosed || further === 0) {
      if (fewest > 0) throw impossibleSchema('`minItems` is more than the `items` allow')
      return first.length === 0 ? emptyArray : `"[" ws ${first.join(' "," ws ')} ${last} "]"`
    }
    const item = this.#toRuleName(this.#writePart('/items', items ?? true, depth))
    if (first.length > 0) {
      const more = `( "," ws ${item} ){${fewest},${further === Infinity ? '' : further}}`
      return `"[" ws ${first.join(' "," ws ')} ${more} ${last} "]"`
    }
    const range = `{${Math.max(0, fewest - 1)},${further === Infinity ? '' : further - 1}}`
    const written = `${item} ( "," ws ${item} )${range} ${last}`
    return `"[" ws ${fewest === 0 ? `( ${written} )?` : written} "]"`
  }

  #writeUniqueArray(
    items: unknown,
    { min, max }: { min: number; max: number },
    last: string,
  ): string {
    const values = this.#listLiterals(items)
    const longest = Math.min(max, values.length)
    const lists: string[] = []
    const extend = (chosen: readonly string[]): void => {
      if (chosen.length >= min) lists.push(chosen.join(' "," ws '))
      if (lists.length > maxUniqueLists) throw unenforceable('uniqueItems')
      if (chosen.length >= longest) return
      for (const value of values) if (!chosen.includes(value)) extend([...chosen, value])
    }
    extend([])
    const choices = lists.map((list) => (list === '' ? '""' : `${list} ${last}`))
    return `"[" ws ${joinChoices(choices)} "]"`
  }

  #listLiterals(items: unknown): readonly string[] {
    const values = expandSchema(items ?? true, this).flatMap((choice): readonly unknown[] => {
      const listed = enumValues(choice)
      if (listed !== null) return listed
      if (schemaTypes(choice).join('') === 'boolean') return [true, false]
      throw unenforceable('uniqueItems')
    })
    return [...new Set(values.map(toLiteral))]
  }
}

interface DocumentOptions {
  readonly depth: number
  readonly tool?: number | null
  readonly toolName?: string
}

const emptyArray = '"[" ws "]"'
const maxUniqueLists = 400

/** The last bracket of an answer is not indented. */
const closingSpace = (depth: number): string => (depth === 0 ? 'end' : 'ws')

const repeatAtMost = (count: number): string => (count === Infinity ? '*' : `{0,${count}}`)

const writeMember = (name: string, value: string): string => `${toLiteral(name)} ":" sp ${value}`

const inBraces = (members: string): string => `"{" ws ${members} "}"`

const toLiteral = (value: unknown): string => quoteLiteral(JSON.stringify(value))
