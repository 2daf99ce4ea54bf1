/** Reads the fields of a JSON body; complaints are in the API's vocabulary and name the path. */

import { HttpError } from '../http-error.ts'

interface Range {
  readonly min?: number
  readonly max?: number
  /** The value must be greater. */
  readonly above?: number
}

/** Beyond, neighbouring integers are the same number. */
const exactIntegers: Range = { min: Number.MIN_SAFE_INTEGER, max: Number.MAX_SAFE_INTEGER }

/** An object of a request's body. A field that is `null` counts as left out. */
export class FieldReader {
  readonly #fields: Readonly<Record<string, unknown>>
  readonly #path: string
  readonly #read: string[] = []

  constructor(value: unknown, path: string) {
    if (typeof value !== 'object' || value === null || Array.isArray(value)) {
      throw wrongType(path === '' ? 'body' : path, 'an object', value)
    }
    this.#fields = value as Record<string, unknown>
    this.#path = path
  }

  pathOf(name: string): string {
    return this.#path === '' ? name : `${this.#path}.${name}`
  }

  /** The field as it came; `undefined` when it is left out. */
  raw(name: string): unknown {
    this.#read.push(name)
    return this.#fields[name] ?? undefined
  }

  /** As `raw`, but it must be there: `null` is given back to be complained about. */
  required(name: string): unknown {
    this.#read.push(name)
    const value = this.#fields[name]
    if (value !== undefined) return value
    const path = this.pathOf(name)
    throw new HttpError(400, `Missing required parameter: '${path}'.`, {
      code: 'missing_required_parameter',
      param: path,
    })
  }

  integer(name: string, range: Range): number | undefined {
    const value = this.raw(name)
    if (value === undefined) return undefined
    const path = this.pathOf(name)
    if (typeof value !== 'number' || !Number.isInteger(value)) {
      throw wrongType(path, 'an integer', value)
    }
    return within('integer', path, value, { ...exactIntegers, ...range })
  }

  decimal(name: string, range: Range): number | undefined {
    const value = this.raw(name)
    if (value === undefined) return undefined
    const path = this.pathOf(name)
    if (typeof value !== 'number') throw wrongType(path, 'a decimal', value)
    return within('decimal', path, value, range)
  }

  boolean(name: string): boolean | undefined {
    const value = this.raw(name)
    if (value === undefined || typeof value === 'boolean') return value
    throw wrongType(this.pathOf(name), 'a boolean', value)
  }

  string(name: string, maxLength = Infinity): string | undefined {
    const value = this.raw(name)
    return value === undefined ? undefined : expectText(this.pathOf(name), value, maxLength)
  }

  requiredString(name: string, maxLength = Infinity): string {
    return expectText(this.pathOf(name), this.required(name), maxLength)
  }

  object(name: string): FieldReader | undefined {
    const value = this.raw(name)
    return value === undefined ? undefined : new FieldReader(value, this.pathOf(name))
  }

  /** Top-level fields that nobody has read. */
  unread(): string[] {
    return Object.keys(this.#fields).filter((name) => !this.#read.includes(name))
  }
}

export function expectText(path: string, value: unknown, maxLength = Infinity): string {
  if (typeof value !== 'string') throw wrongType(path, 'a string', value)
  if (value.length <= maxLength) return value
  throw new HttpError(
    400,
    `Invalid '${path}': string too long. Expected a string with maximum length ${maxLength}, ` +
      `but got a string with length ${value.length} instead.`,
    { code: 'string_above_max_length', param: path },
  )
}

export function expectList(
  path: string,
  value: unknown,
  bounds: { readonly min?: number; readonly max?: number } = {},
): readonly unknown[] {
  if (!Array.isArray(value)) throw wrongType(path, 'an array', value)
  const { min = 0, max = Infinity } = bounds
  if (value.length < min) {
    throw new HttpError(
      400,
      `Invalid '${path}': empty array. Expected an array with minimum length ${min}, ` +
        'but got an empty array instead.',
      { code: 'empty_array', param: path },
    )
  }
  if (value.length <= max) return value
  throw new HttpError(
    400,
    `Invalid '${path}': array too long. Expected an array with maximum length ${max}, ` +
      `but got an array with length ${value.length} instead.`,
    { code: 'array_above_max_length', param: path },
  )
}

export function expectChoice<const T extends string>(
  path: string,
  value: unknown,
  allowed: readonly T[],
): T {
  if (typeof value !== 'string') throw wrongType(path, `one of ${quoted(allowed)}`, value)
  const found = allowed.find((one) => one === value)
  if (found !== undefined) return found
  throw wrongValue(
    path,
    `Invalid value: '${shorten(value)}'. Supported values are: ${quoted(allowed)}.`,
  )
}

export function wrongType(path: string, expected: string, got: unknown): HttpError {
  return new HttpError(
    400,
    `Invalid type for '${path}': expected ${expected}, but got ${kindOf(got)} instead.`,
    { code: 'invalid_type', param: path },
  )
}

export function wrongValue(path: string, message: string): HttpError {
  return new HttpError(400, message, { code: 'invalid_value', param: path })
}

function within(kind: 'integer' | 'decimal', path: string, value: number, range: Range): number {
  const { min = -Infinity, max = Infinity, above = -Infinity } = range
  if (value >= min && value > above && value <= max) return value
  const isAbove = value > max
  const bound = isAbove ? `<= ${max}` : range.above === undefined ? `>= ${min}` : `> ${above}`
  throw new HttpError(
    400,
    `Invalid '${path}': ${kind} ${isAbove ? 'above maximum' : 'below minimum'} value. ` +
      `Expected a value ${bound}, but got ${value} instead.`,
    { code: `${kind}_${isAbove ? 'above_max' : 'below_min'}_value`, param: path },
  )
}

const quoted = (names: readonly string[]): string => names.map((name) => `'${name}'`).join(', ')
const shorten = (text: string): string => (text.length > 64 ? `${text.slice(0, 61)}...` : text)

function kindOf(value: unknown): string {
  if (value === null) return 'null'
  if (Array.isArray(value)) return 'an array'
  if (typeof value === 'number') return Number.isInteger(value) ? 'an integer' : 'a decimal'
  return typeof value === 'object' ? 'an object' : `a ${typeof value}`
}
