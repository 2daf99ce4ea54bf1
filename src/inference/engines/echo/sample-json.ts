/** Creates a small value that matches a JSON schema, for the echo engine. Not a validator. */

import { inferenceError } from '../../generation/inference-errors.ts'

type Schema = Readonly<Record<string, unknown>>

/** Deeper schemas are refused, because sampling a recursive schema would never end. */
const maxDepth = 32

/** The maximum size of a value. Each part costs one unit, and every 64 characters one more. */
const maxSize = 65_536

/**
 * A value that matches a schema with `type`, `properties`, `required`, `items`, `enum`, `const`,
 * `anyOf`, `oneOf` and simple limits. Unrestricted strings become `text`. Throws `unsupported` for
 * other schemas.
 */
export function sampleJson(schema: unknown, text: string): unknown {
  return new Sampler(text).sample(schema, 0)
}

/** Creates one value. The size of each part is counted before the part is created. */
class Sampler {
  readonly #text: string
  #left = maxSize

  constructor(text: string) {
    this.#text = text
  }

  sample(schema: unknown, depth: number): unknown {
    this.#spend(1)
    if (schema === undefined || schema === true) return this.#string({})
    if (!isSchema(schema) || depth > maxDepth) throw unsupported('the schema')
    for (const key of ['$ref', 'allOf', 'not', 'pattern', 'if']) {
      if (key in schema) throw unsupported(`a schema with "${key}"`)
    }
    const { enum: choices, anyOf, oneOf } = schema
    if ('const' in schema) return this.#given(schema['const'])
    if (Array.isArray(choices)) return this.#given(firstOf('enum', choices))
    if (Array.isArray(anyOf)) return this.sample(firstOf('anyOf', anyOf), depth + 1)
    if (Array.isArray(oneOf)) return this.sample(firstOf('oneOf', oneOf), depth + 1)
    return this.#typed(typeOf(schema), schema, depth)
  }

  #typed(type: unknown, schema: Schema, depth: number): unknown {
    switch (type) {
      case 'object':
        return this.#object(schema, depth)
      case 'array':
        return this.#array(schema, depth)
      case 'string':
        return this.#string(schema)
      case 'integer':
      case 'number':
        return sampleNumber(schema, type === 'integer')
      case 'boolean':
        return true
      case 'null':
        return null
      default:
        throw unsupported(`the type ${JSON.stringify(type)}`)
    }
  }

  #object(schema: Schema, depth: number): Record<string, unknown> {
    const { properties, required } = schema
    const known = isSchema(properties) ? properties : {}
    const names = new Set(Object.keys(known))
    if (Array.isArray(required)) for (const name of required) names.add(String(name))
    return Object.fromEntries(
      Array.from(names, (name) => {
        this.#spend(name.length / 64)
        return [name, this.sample(known[name], depth + 1)]
      }),
    )
  }

  #array(schema: Schema, depth: number): unknown[] {
    const length = limit(schema, 'minItems', 0)
    const items: unknown[] = []
    while (items.length < length) items.push(this.sample(schema['items'], depth + 1))
    return items
  }

  #string(schema: Schema): string {
    const min = limit(schema, 'minLength', 0)
    const text = this.#text.slice(0, limit(schema, 'maxLength', Infinity))
    this.#spend(Math.max(text.length, min) / 64)
    return text.padEnd(min, '.')
  }

  #given(value: unknown): unknown {
    this.#spend(JSON.stringify([value]).length / 64)
    return value
  }

  #spend(cost: number): void {
    this.#left -= cost
    if (this.#left < 0) throw unsupported('a schema with values this large')
  }
}

function firstOf(key: string, choices: readonly unknown[]): unknown {
  if (choices.length === 0) throw unsupported(`a schema with an empty "${key}"`)
  return choices[0]
}

/** The integer within the limits that is nearest to zero. Without one, a `number` is their mean. */
function sampleNumber(schema: Schema, isInteger: boolean): number {
  const [min, over] = [
    limit(schema, 'minimum', -Infinity),
    limit(schema, 'exclusiveMinimum', -Infinity),
  ]
  const [max, under] = [
    limit(schema, 'maximum', Infinity),
    limit(schema, 'exclusiveMaximum', Infinity),
  ]
  const low = Math.max(Math.ceil(min), Math.floor(over) + 1)
  const high = Math.min(Math.floor(max), Math.ceil(under) - 1)
  if (low <= high) return Math.min(Math.max(0, low), high)
  const between = (Math.max(min, over) + Math.min(max, under)) / 2
  const isWithin = between >= min && between > over && between <= max && between < under
  if (isInteger || !isWithin) throw unsupported('a schema that no number fits')
  return between
}

function typeOf(schema: Schema): unknown {
  const { type } = schema
  if (Array.isArray(type)) return type[0]
  if (type !== undefined) return type
  if ('properties' in schema || 'required' in schema) return 'object'
  return 'items' in schema ? 'array' : 'string'
}

function limit(schema: Schema, key: string, otherwise: number): number {
  const value = schema[key]
  return typeof value === 'number' ? value : otherwise
}

function isSchema(value: unknown): value is Schema {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

function unsupported(what: string): Error {
  return inferenceError('unsupported', `the echo engine does not support ${what}`)
}
