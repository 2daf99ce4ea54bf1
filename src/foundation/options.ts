/** Validators of options. Their errors name the field, the expected value and the given value. */

import { messageOf, TuttiError, ValueError } from './errors.ts'

/** Creates the error ``Expected `field` to be …, got `0` (number)``. */
export function invalid(field: string, expected: string, got: unknown, hint?: string): ValueError {
  const text = `Expected \`${fieldText(field)}\` to be ${expected}, got ${describe(got)}`
  return new ValueError(text, {
    field,
    expected,
    got,
    ...(hint === undefined ? {} : { hint }),
  })
}

/** Creates the error for a value that is not an array. `example` shows what to write instead. */
export const notAnArray = (
  field: string,
  what: string,
  got: unknown,
  example: string,
): ValueError =>
  invalid(field, `an array of ${what}`, got, `Write \`${example}\`, even for a single one.`)

/** Describes a value and its type in a short text. For an instance, the text is its class. */
export function describe(value: unknown): string {
  if (value === null || value === undefined) return `\`${String(value)}\``
  const kind = typeName(value)
  const isInstance = typeof value === 'object' && kind !== 'object' && kind !== 'array'
  return isInstance ? `an instance of ${shorten(kind)}` : `\`${shorten(toText(value))}\` (${kind})`
}

function typeName(value: {}): string {
  if (typeof value !== 'object') return typeof value
  try {
    if (Array.isArray(value)) return 'array'
    const { name } = value.constructor
    return typeof name === 'string' && name !== '' && name !== 'Object' ? name : 'object'
  } catch {
    return 'object'
  }
}

function toText(value: unknown): string {
  try {
    if (typeof value === 'function') return value.name === '' ? 'function' : value.name
    if (typeof value === 'object') return JSON.stringify(value) ?? String(value)
    return String(value)
  } catch {
    return 'unprintable'
  }
}

const shorten = (text: string): string =>
  escapeText(text.length > 80 ? `${text.slice(0, 77)}...` : text)

/** Shortens a long path in the middle, because its last part names the wrong field. */
const fieldText = (field: string): string =>
  escapeText(field.length > 160 ? `${field.slice(0, 77)}...${field.slice(-40)}` : field)

const escapeText = (text: string): string =>
  text.replaceAll(
    /\p{Cc}/gu,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
  )

export function expectObject(field: string, value: unknown): Record<string, unknown> {
  if (typeof value !== 'object' || value === null || isUnreadableOrArray(value)) {
    throw invalid(field, 'an object', value)
  }
  return value as Record<string, unknown>
}

/** Whether the value is an array, or a revoked proxy, for which `Array.isArray` throws. */
function isUnreadableOrArray(value: object): boolean {
  try {
    return Array.isArray(value)
  } catch {
    return true
  }
}

/** Returns the result of `read`. If `read` throws, throws an error that names the field. */
export function expectReadable<T>(field: string, value: unknown, read: () => T): T {
  try {
    return read()
  } catch (error) {
    if (error instanceof TuttiError) throw error
    const expected = 'a value that can be read'
    const start = `Expected \`${fieldText(field)}\` to be ${expected}`
    const text = `${start}, but it threw: ${messageOf(error)}`
    throw new ValueError(text, { field, expected, got: value, cause: error })
  }
}

export function expectString(field: string, value: unknown): string {
  if (typeof value !== 'string' || value === '') throw invalid(field, 'a non-empty string', value)
  return value
}

/** Like `expectString`, but the value appears neither in the message nor in the error. */
export function expectSecret(field: string, value: unknown): string {
  if (typeof value === 'string' && value !== '') return value
  const expected = 'a non-empty string'
  const kind = value === null || value === undefined ? String(value) : typeName(value)
  const text = `Expected \`${field}\` to be ${expected}, got [masked] (${kind})`
  throw new ValueError(text, { field, expected })
}

interface NumberRange {
  readonly min?: number
  readonly max?: number
  readonly above?: number
  /** Whether `Infinity` is allowed, which means "no limit". Default `false`. */
  readonly mayBeInfinite?: boolean
}

export function expectNumber(field: string, value: unknown, range: NumberRange = {}): number {
  const { min = -Infinity, max = Infinity, above = -Infinity, mayBeInfinite = false } = range
  if (typeof value === 'number' && value >= min && value <= max && value > above) {
    if (mayBeInfinite || Number.isFinite(value)) return value
  }
  // "finite" is mentioned only if the text of the range does not imply it.
  const mustBeFinite = !mayBeInfinite && (value === min || value === max)
  throw invalid(field, `a ${mustBeFinite ? 'finite ' : ''}number${rangeText(range)}`, value)
}

export function expectInteger(
  field: string,
  value: unknown,
  range: { readonly min?: number; readonly max?: number } = {},
): number {
  const { min = -Infinity, max = Infinity } = range
  if (typeof value === 'number' && Number.isInteger(value) && value >= min && value <= max) {
    return value
  }
  throw invalid(field, `an integer${rangeText(range)}`, value)
}

function rangeText(range: { min?: number; max?: number; above?: number }): string {
  const { min, max, above } = range
  if (above !== undefined) return ` above ${above}${max === undefined ? '' : ` and at most ${max}`}`
  return `${min === undefined ? '' : ` from ${min}`}${max === undefined ? '' : ` to ${max}`}`
}

export function expectBoolean(field: string, value: unknown): boolean {
  if (typeof value === 'boolean') return value
  throw invalid(field, 'a boolean', value)
}

export function expectFunction(field: string, value: unknown): void {
  if (typeof value !== 'function') throw invalid(field, 'a function', value)
}

export function expectMethods<T extends object>(
  field: string,
  value: T,
  methods: readonly (keyof T & string)[],
): T {
  // `value` may be anything, because callers may not be type-checked.
  if (methods.every((name) => typeof (value as T | null)?.[name] === 'function')) return value
  throw invalid(field, `an object with ${methods.map((name) => `${name}()`).join(', ')}`, value)
}

export function expectOneOf<T extends string>(
  field: string,
  value: unknown,
  allowed: readonly T[],
): T {
  const found = allowed.find((one) => one === value)
  if (found !== undefined) return found
  throw invalid(field, `one of ${allowed.map((one) => `"${one}"`).join(', ')}`, value)
}

/** Rejects unknown keys. The error suggests the nearest known key, or lists all known keys. */
export function expectKnownKeys(
  what: string,
  value: object,
  known: readonly string[],
  prefix = '',
): void {
  for (const key of Object.keys(value)) {
    if (known.includes(key)) continue
    const text = `${fieldText(what)} has no \`${fieldText(`${prefix}${key}`)}\``
    throw new ValueError(`${text}${suggestName(key, known)}`, {
      field: `${prefix}${key}`,
      expected: `one of ${known.join(', ')}`,
      got: key,
    })
  }
}

/** Option names of other libraries, with the names of this library. */
const synonyms: ReadonlyMap<string, string> = new Map([
  ['cpu', 'cores'],
  ['cpus', 'cores'],
  ['threads', 'cores'],
  ['gpu', 'gpus'],
  ['mem', 'memoryMb'],
  ['memory', 'memoryMb'],
  ['memorymb', 'memoryMb'],
  ['walltime', 'seconds'],
  ['argv', 'arguments'],
  ['command', 'executable'],
  ['cmd', 'executable'],
  ['environment', 'env'],
  ['retry', 'retries'],
  ['maxretries', 'retries'],
  ['fn', 'function'],
  ['func', 'function'],
])

const resourceOptions = new Set(['cores', 'gpus', 'memoryMb', 'ranks', 'ranksPerNode', 'labels'])

/** Unlike `findNearest`, also finds synonyms and abbreviated keys, such as `timeout`. */
function suggestName(key: string, known: readonly string[]): string {
  const usual = synonyms.get(key.toLowerCase()) ?? key
  const isKnown = known.includes(usual)
  if (!isKnown && known.includes('resources') && resourceOptions.has(usual)) {
    return `; did you mean \`resources: { ${usual} }\`?`
  }
  const near = isKnown
    ? usual
    : (findNearest(key, known) ?? known.find((it) => isAbbreviation(key, it)))
  return near === undefined ? `; known: ${known.join(', ')}` : didYouMean(near, known)
}

const isAbbreviation = (key: string, name: string): boolean =>
  key.length >= 3 && name.toLowerCase().startsWith(key.toLowerCase())

/** Returns a text such as `; did you mean "local"?`, or `''` if no known name is similar. */
export function didYouMean(name: string, known: readonly string[]): string {
  const nearest = findNearest(name, known)
  return nearest === undefined ? '' : `; did you mean "${nearest}"?`
}

/**
 * The most similar known name. It differs in one character, or in at most a third of its
 * characters.
 */
export function findNearest(name: string, known: readonly string[]): string | undefined {
  let nearest: string | undefined
  let minEdits = Infinity
  for (const candidate of known) {
    const edits = editDistance(name.toLowerCase(), candidate.toLowerCase())
    if (edits < minEdits && edits <= Math.max(1, Math.floor(candidate.length / 3))) {
      nearest = candidate
      minEdits = edits
    }
  }
  return nearest
}

function editDistance(a: string, b: string): number {
  if (Math.abs(a.length - b.length) > 40) return Infinity
  let previous = Array.from({ length: b.length + 1 }, (_, at) => at)
  for (let i = 1; i <= a.length; i++) {
    const current = [i]
    for (let j = 1; j <= b.length; j++) {
      const change = (previous[j - 1] ?? 0) + (a[i - 1] === b[j - 1] ? 0 : 1)
      current[j] = Math.min((previous[j] ?? 0) + 1, (current[j - 1] ?? 0) + 1, change)
    }
    previous = current
  }
  return previous[b.length] ?? Infinity
}

const idPattern = /^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/
/** File names that Windows reserves, with any extension. */
const reservedName = /^(?:con|prn|aux|nul|com\d|lpt\d)(?:\.|$)/i

/** Checks that an id can be used in file names on every system (row 89 of `docs/faults.md`). */
export function expectId(field: string, value: unknown): string {
  if (typeof value === 'string' && idPattern.test(value) && !reservedName.test(value)) return value
  const isReserved = typeof value === 'string' && reservedName.test(value)
  if (isReserved) throw invalid(field, 'an id that Windows does not reserve as a file name', value)
  throw invalid(
    field,
    'an id of 1 to 128 letters, digits, ".", "_" or "-", beginning with a letter or digit',
    value,
  )
}

const loopback = /^(?:localhost|127(?:\.\d{1,3}){3}|::1|\[::1\])$/i

/** Whether a server that listens on this host can be reached only from this machine. */
export const isLoopbackHost = (host: string): boolean => loopback.test(host)

/** Checks an origin as browsers send it: scheme, host, and port unless it is the default. */
export function expectOrigin(field: string, value: unknown): string {
  if (typeof value === 'string' && value === parseOrigin(value)) return value
  throw invalid(field, 'an origin as browsers send it, such as https://app.example', value)
}

/**
 * Returns the origin in its normal form; `null` if it is invalid. For the schemes of browser
 * extensions, `URL.origin` is "null".
 */
function parseOrigin(text: string): string | null {
  const url = URL.parse(text)
  if (url === null || url.origin !== 'null') return url?.origin ?? null
  return /^[a-z][a-z\d+.-]*:\/\/[\w.-]+(?::\d+)?$/.test(text) ? text : null
}

/** Validates the first part of all paths, and removes a slash at its end. */
export function expectBasePath(field: string, value: unknown): string {
  const path = typeof value === 'string' ? value.replace(/\/$/, '') : value
  if (typeof path === 'string' && /^(?:\/[\w.~-]+)*$/.test(path)) return path
  throw invalid(field, 'a path such as /llm, of "/", letters, digits and ".-_~"', value)
}

/** Omits fields that are `undefined`, which `exactOptionalPropertyTypes` does not allow. */
export function definedFields<T extends object>(fields: T) {
  const defined: { [K in keyof T]?: T[K] } = {}
  for (const key in fields) if (fields[key] !== undefined) defined[key] = fields[key]
  return defined as { [K in keyof T]?: Exclude<T[K], undefined> }
}
