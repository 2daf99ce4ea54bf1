/** The filters of Jinja templates. */

import { tryRead } from '../../../../foundation/errors.ts'
import {
  capitalize,
  toInteger,
  joinTexts,
  replaceText,
  stripText,
  titleCaseWords,
} from './methods.ts'
import { getAttribute, getItem, runTest } from './operations.ts'
import { toJson } from './text-format.ts'
import { spend, spendChars, TemplateError } from './limits.ts'
import {
  compareValues,
  expectDefined,
  Dict,
  isFloat,
  isTrue,
  iterate,
  LazyList,
  getLength,
  Markup,
  type NamedArguments,
  asNumber,
  repeatSpace,
  spendFor,
  asText,
  toFloat,
  toMarkup,
  toRepr,
  toText,
  Tuple,
  toValue,
  typeName,
  Undefined,
  type Value,
  valueOr,
} from './values.ts'

type Filter = (value: Value, args: readonly Value[], named: NamedArguments) => Value
type Argument = Value | undefined

export function runFilter(
  name: string,
  value: Value,
  args: readonly Value[],
  named: NamedArguments,
): Value {
  const filter = Object.hasOwn(filters, name) ? filters[name] : undefined
  if (filter === undefined) throw new TemplateError(`No filter named '${name}'.`)
  spendFor(value)
  for (const arg of args) spendFor(arg)
  const result = filter(value, args, named)
  spendFor(result)
  return result
}

/** Creates a filter whose arguments may be given by position or by name. */
const withParameters =
  (names: string, run: (value: Value, ...args: readonly Argument[]) => Value): Filter =>
  (value, args, named) =>
    run(
      value,
      ...names.split(' ').map((name, at) => (at < args.length ? args[at] : named.get(name))),
    )

const isTruthy = (value: Argument): boolean => value !== undefined && isTrue(value)

function followPath(value: Value, path: Argument): Value {
  if (path === undefined || path === null) return value
  const parts = typeof path === 'string' ? path.split('.') : [path]
  spend(parts.length / 4)
  return parts.reduce<Value>((of, part) => {
    const isIndex = typeof part === 'string' && /^\d+$/.test(part)
    return getItem(of, isIndex ? Number(part) : part)
  }, value)
}

/** The value by which an item is compared: the item or its attribute, usually in lower case. */
function sortKey(item: Value, caseSensitive: Argument, attribute?: Value): Value {
  const value = followPath(item, attribute)
  const text = asText(value)
  if (text === null || isTruthy(caseSensitive)) return value
  spendChars(text.length)
  return text.toLowerCase()
}

function sortBy(
  items: readonly Value[],
  keyOf: (item: Value) => Value,
  reverse: Argument,
): Value[] {
  const sorted = items
    .map((item) => ({ item, key: keyOf(item) }))
    .toSorted((one, other) => compareValues(one.key, other.key))
    .map(({ item }) => item)
  return isTruthy(reverse) ? sorted.toReversed() : sorted
}

function dictsort(value: Value, caseSensitive: Argument, by: Argument, reverse: Argument): Value {
  if (!(value instanceof Dict)) throw new TemplateError('dictsort needs a dict')
  const at = by === 'value' ? 1 : 0
  const keyOf = (entry: Value): Value => sortKey(iterate(entry)[at] ?? null, caseSensitive)
  return sortBy(iterate(toItemPairs(value)), keyOf, reverse)
}

/** Some filters treat all falsy values as empty, including `none`. */
const iterateOrEmpty = (value: Value): readonly Value[] => (isTrue(value) ? iterate(value) : [])

function createSelect(isWanted: boolean, hasAttribute: boolean): Filter {
  return (value, args) => {
    const [attribute, rest] = hasAttribute ? [args[0], args.slice(1)] : [undefined, args]
    const [test, ...others] = rest
    return LazyList.from(
      iterateOrEmpty(value).filter((item) => {
        const testedValue = followPath(item, attribute)
        const isMatch =
          test === undefined ? isTrue(testedValue) : runTest(toText(test), testedValue, others)
        return isMatch === isWanted
      }),
    )
  }
}

function map(value: Value, [first, ...rest]: readonly Value[], named: NamedArguments): Value {
  const attribute = named.get('attribute')
  const otherwise = named.get('default')
  return LazyList.from(
    iterateOrEmpty(value).map((item) => {
      if (attribute === undefined) return runFilter(toText(first ?? null), item, rest, named)
      const found = followPath(item, attribute)
      return found instanceof Undefined && otherwise !== undefined ? otherwise : found
    }),
  )
}

function indent(value: Value, width: Argument = 4, first: Argument, blank: Argument): Value {
  const space = asText(width) ?? repeatSpace(toInteger(width, 4))
  const [head = '', ...rest] = `${toText(value)}\n`.split('\n').slice(0, -1)
  spendChars(space.length * rest.length)
  const lines = rest.map((line) => (line === '' && !isTruthy(blank) ? line : space + line))
  return [isTruthy(first) ? space + head : head, ...lines].join('\n')
}

function parseNumber(value: Value): number {
  const text = asText(value)
  if (text === null) return asNumber(value) ?? NaN
  return text.trim() === '' ? NaN : Number(text)
}

function unique(value: Value, caseSensitive: Argument, attribute: Argument): Value {
  const seen = new Set<unknown>()
  return LazyList.from(
    iterate(value).filter((item) => {
      const key = toHashKey(sortKey(item, caseSensitive, attribute))
      const isNew = !seen.has(key)
      seen.add(key)
      return isNew
    }),
  )
}

function toHashKey(value: Value): unknown {
  const key = asText(value) ?? asNumber(value)
  if (key !== null) return key
  if (value instanceof Undefined) return undefined
  if (value instanceof Tuple) return toRepr(value)
  if (Array.isArray(value) || value instanceof Dict) {
    throw new TemplateError(`unhashable type: '${typeName(value)}'`)
  }
  return value
}

const createExtreme = (sign: number): Filter =>
  withParameters('case_sensitive attribute', (value, caseSensitive, attribute) => {
    const [first, ...rest] = iterate(value).map((item) => ({
      item,
      key: sortKey(item, caseSensitive, attribute),
    }))
    if (first === undefined) return new Undefined('No aggregated item, sequence was empty.')
    const isBetter = (one: Value, other: Value): boolean => compareValues(one, other) * sign > 0
    return rest.reduce((best, one) => (isBetter(one.key, best.key) ? one : best), first).item
  })

const defaultFilter = withParameters('default_value boolean', (value, otherwise = '', boolean) => {
  const isMissing = isTruthy(boolean) ? !isTrue(value) : value instanceof Undefined
  return isMissing ? otherwise : value
})

function reverseItems(value: Value): Value {
  const items = iterate(value).toReversed()
  return asText(value) === null ? LazyList.from(items) : items.join('')
}

function toItemPairs(value: Value): Value {
  if (value instanceof Undefined) return LazyList.from([])
  if (!(value instanceof Dict)) throw new TemplateError('Can only get item pairs from a mapping.')
  return LazyList.from(Array.from(value, (entry) => Tuple.from(entry)))
}

function fromJson(value: Value): Value {
  const text = toText(value)
  const parsed = tryRead(() => JSON.parse(text) as unknown)
  if (parsed === undefined) throw new TemplateError('from_json: the text is no JSON')
  return toValue(parsed)
}

function absoluteValue(value: Value): Value {
  const number = asNumber(expectDefined(value))
  if (number === null) {
    throw new TemplateError(`bad operand type for abs(): '${typeName(value)}'`)
  }
  return isFloat(value) ? toFloat(Math.abs(number)) : Math.abs(number)
}

const filters: Readonly<Record<string, Filter>> = {
  abs: absoluteValue,
  attr: (value, [name = null]) => getAttribute(value, toText(name)),
  capitalize: (value) => capitalize(toText(value)),
  count: (value) => getLength(value),
  d: defaultFilter,
  default: defaultFilter,
  dictsort: withParameters('case_sensitive by reverse', dictsort),
  e: (value) => toMarkup(value),
  escape: (value) => toMarkup(value),
  first: (value) => valueOr(iterate(value)[0], new Undefined('No first item, sequence was empty.')),
  float: withParameters('default', (value, otherwise = toFloat(0)) => {
    const number = parseNumber(value)
    return Number.isNaN(number) ? otherwise : toFloat(number)
  }),
  from_json: fromJson,
  indent: withParameters('width first blank', indent),
  int: withParameters('default', (value, otherwise = 0) => {
    const number = parseNumber(value)
    return Number.isFinite(number) ? Math.trunc(number) : otherwise
  }),
  items: toItemPairs,
  join: withParameters('d attribute', (value, separator = '', attribute) =>
    joinTexts(
      iterate(value).map((item) => toText(followPath(item, attribute))),
      toText(separator),
    ),
  ),
  last: (value) =>
    valueOr(iterate(value).at(-1), new Undefined('No last item, sequence was empty.')),
  length: (value) => getLength(value),
  list: (value) => [...iterate(value)],
  lower: (value) => toText(value).toLowerCase(),
  map,
  max: createExtreme(1),
  min: createExtreme(-1),
  reject: createSelect(false, false),
  rejectattr: createSelect(false, true),
  replace: (value, [from = null, to = null, max]) =>
    replaceText(toText(value), toText(from), toText(to), toInteger(max, -1)),
  reverse: reverseItems,
  safe: (value) => new Markup(toText(value)),
  select: createSelect(true, false),
  selectattr: createSelect(true, true),
  sort: withParameters('reverse case_sensitive attribute', (value, reverse, caseSensitive, path) =>
    sortBy(iterate(value), (item) => sortKey(item, caseSensitive, path), reverse),
  ),
  string: (value) => toText(value),
  title: (value) => titleCaseWords(toText(value)),
  tojson: withParameters('ensure_ascii indent separators sort_keys', toJson),
  trim: (value, [letters]) =>
    stripText(toText(value), letters === undefined ? null : asText(letters), 'both'),
  unique: withParameters('case_sensitive attribute', unique),
  upper: (value) => toText(value).toUpperCase(),
}
