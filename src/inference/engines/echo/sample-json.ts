/** Creates a small value that matches a JSON schema, for the echo engine. Not a validator. */

import { inferenceError } from '../../generation/inference-errors.ts'
import { isPlainObject } from '../../../foundation/json-value.ts'
import type { WireFields as Schema } from '../../generation/pass-through.ts'

/** The depth is limited, because sampling a recursive schema would never end. */
const maxDepth = 32

/** The maximum size of a sample: one unit per value, and one more per 64 characters. */
const maxSize = 65_536

/** Supports common keywords and simple limits. Throws `unsupported` for other schemas. */
export function sampleJson(schema: unknown, text: string): unknown {
  return new Sampler(text).sample(schema, 0)
}

/** Counts the size of each part before it creates the part. */
class Sampler {
  readonly #text: string
  #budgetLeft = maxSize

  constructor(text: string) {
    this.#text = text
  }

  sample(schema: unknown, depth: number): unknown {
    this.#spend(1)
    if (schema === undefined || schema === true) return this.#sampleString({})
    if (!isPlainObject(schema) || depth > maxDepth) throw unsupported('the schema')
    for (const key of ['$ref', 'allOf', 'not', 'pattern', 'if']) {
      if (key in schema) throw unsupported(`a schema with "${key}"`)
    }
    const { enum: choices, anyOf, oneOf } = schema
    if ('const' in schema) return this.#chargeValue(schema['const'])
    if (Array.isArray(choices)) return this.#chargeValue(firstChoice('enum', choices))
    if (Array.isArray(anyOf)) return this.sample(firstChoice('anyOf', anyOf), depth + 1)
    if (Array.isArray(oneOf)) return this.sample(firstChoice('oneOf', oneOf), depth + 1)
    return this.#sampleType(inferType(schema), schema, depth)
  }

  #sampleType(type: unknown, schema: Schema, depth: number): unknown {
    switch (type) {
      case 'object':
        return this.#sampleObject(schema, depth)
      case 'array':
        return this.#sampleArray(schema, depth)
      case 'string':
        return this.#sampleString(schema)
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

  #sampleObject(schema: Schema, depth: number): Record<string, unknown> {
    const { properties, required } = schema
    const known = isPlainObject(properties) ? properties : {}
    const names = new Set(Object.keys(known))
    if (Array.isArray(required)) for (const name of required) names.add(String(name))
    return Object.fromEntries(
      Array.from(names, (name) => {
        this.#spend(name.length / 64)
        return [name, this.sample(known[name], depth + 1)]
      }),
    )
  }

  #sampleArray(schema: Schema, depth: number): unknown[] {
    const length = readLimit(schema, 'minItems', 0)
    const items: unknown[] = []
    while (items.length < length) items.push(this.sample(schema['items'], depth + 1))
    return items
  }

  #sampleString(schema: Schema): string {
    const min = readLimit(schema, 'minLength', 0)
    const text = this.#text.slice(0, readLimit(schema, 'maxLength', Infinity))
    this.#spend(Math.max(text.length, min) / 64)
    return text.padEnd(min, '.')
  }

  #chargeValue(value: unknown): unknown {
    this.#spend(JSON.stringify([value]).length / 64)
    return value
  }

  #spend(cost: number): void {
    this.#budgetLeft -= cost
    if (this.#budgetLeft < 0) throw unsupported('a schema with values this large')
  }
}

function firstChoice(key: string, choices: readonly unknown[]): unknown {
  if (choices.length === 0) throw unsupported(`a schema with an empty "${key}"`)
  return choices[0]
}

/**
 * Returns the allowed integer that is nearest to zero. If there is none, returns the mean of the
 * limits.
 */
function sampleNumber(schema: Schema, isInteger: boolean): number {
  const min = readLimit(schema, 'minimum', -Infinity)
  const over = readLimit(schema, 'exclusiveMinimum', -Infinity)
  const max = readLimit(schema, 'maximum', Infinity)
  const under = readLimit(schema, 'exclusiveMaximum', Infinity)
  const low = Math.max(Math.ceil(min), Math.floor(over) + 1)
  const high = Math.min(Math.floor(max), Math.ceil(under) - 1)
  if (low <= high) return Math.min(Math.max(0, low), high)
  const between = (Math.max(min, over) + Math.min(max, under)) / 2
  const isWithin = between >= min && between > over && between <= max && between < under
  if (isInteger || !isWithin) throw unsupported('a schema that no number fits')
  return between
}

function inferType(schema: Schema): unknown {
  const { type } = schema
  if (Array.isArray(type)) return type[0]
  if (type !== undefined) return type
  if ('properties' in schema || 'required' in schema) return 'object'
  return 'items' in schema ? 'array' : 'string'
}

function readLimit(schema: Schema, key: string, otherwise: number): number {
  const value = schema[key]
  return typeof value === 'number' ? value : otherwise
}

function unsupported(what: string): Error {
  return inferenceError('unsupported', `the echo engine does not support ${what}`)
}
