/** The filters of Jinja templates. */

import { capitalize, intOf, joined, replace, strip, titleWords } from './methods.ts'
import { attributeOf, itemOf, runTest } from './operations.ts'
import { formatPercent, toJson } from './text-format.ts'
import { spend, spendChars, spendItems, TemplateError } from './limits.ts'
import {
  compare,
  defined,
  Dict,
  isEqual,
  isFloat,
  isTrue,
  iterate,
  Lazy,
  lengthOf,
  Markup,
  type Named,
  numberOf,
  spaces,
  spendFor,
  textOf,
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

type Filter = (value: Value, args: readonly Value[], named: Named) => Value

export function runFilter(name: string, value: Value, args: readonly Value[], named: Named): Value {
  const filter = Object.hasOwn(filters, name) ? filters[name] : undefined
  if (filter === undefined) throw new TemplateError(`No filter named '${name}'.`)
  spendFor(value)
  for (const arg of args) spendFor(arg)
  const result = filter(value, args, named)
  spendFor(result)
  return result
}

/** The argument at a position, or with a name. */
const arg = (args: readonly Value[], at: number, named: Named, name: string): Value | undefined =>
  at < args.length ? args[at] : named.get(name)

const isOn = (value: Value | undefined): boolean => value !== undefined && isTrue(value)

/** Follows a path such as `a.b.0`. */
function follow(value: Value, path: Value | undefined): Value {
  if (path === undefined || path === null) return value
  const parts = typeof path === 'string' ? path.split('.') : [path]
  spend(parts.length / 4)
  return parts.reduce<Value>((of, part) => {
    const isIndex = typeof part === 'string' && /^\d+$/.test(part)
    return itemOf(of, isIndex ? Number(part) : part)
  }, value)
}

const ignoreCase = (value: Value, isExact: boolean): Value => {
  const text = textOf(value)
  if (text === null || isExact) return value
  spendChars(text.length)
  return text.toLowerCase()
}

function sort(items: readonly Value[], args: readonly Value[], named: Named): Value[] {
  const isExact = isOn(arg(args, 1, named, 'case_sensitive'))
  const attribute = arg(args, 2, named, 'attribute')
  const keyOf = (item: Value): Value => ignoreCase(follow(item, attribute), isExact)
  return sortBy(items, keyOf, arg(args, 0, named, 'reverse'))
}

function sortBy(
  items: readonly Value[],
  keyOf: (item: Value) => Value,
  reverse: Value | undefined,
): Value[] {
  const keyed = items.map((item) => ({ item, key: keyOf(item) }))
  const sorted = keyed.toSorted((one, other) => compare(one.key, other.key)).map(({ item }) => item)
  return isOn(reverse) ? sorted.toReversed() : sorted
}

function dictsort(value: Value, args: readonly Value[], named: Named): Value {
  if (!(value instanceof Dict)) throw new TemplateError('dictsort needs a dict')
  const isExact = isOn(arg(args, 0, named, 'case_sensitive'))
  const at = arg(args, 1, named, 'by') === 'value' ? 1 : 0
  const keyOf = (entry: Value): Value => ignoreCase(iterate(entry)[at] ?? null, isExact)
  return sortBy([...iterate(itemsOf(value))], keyOf, arg(args, 2, named, 'reverse'))
}

/** Some filters treat every falsy value as empty, including `none`. */
const iterateTrue = (value: Value): readonly Value[] => (isTrue(value) ? iterate(value) : [])

/** Creates `select`, `reject` and, with an attribute, `selectattr` and `rejectattr`. */
function choose(isWanted: boolean, hasAttribute: boolean): Filter {
  return (value, args) => {
    const [attribute, rest] = hasAttribute ? [args[0], args.slice(1)] : [undefined, args]
    const [test, ...others] = rest
    return Lazy.from(
      iterateTrue(value).filter((item) => {
        const tested = follow(item, attribute)
        const name = test === undefined ? null : toText(test)
        return (name === null ? isTrue(tested) : runTest(name, tested, others)) === isWanted
      }),
    )
  }
}

function map(value: Value, args: readonly Value[], named: Named): Value {
  const [first, ...rest] = args
  const attribute = named.get('attribute')
  const otherwise = named.get('default')
  return Lazy.from(
    iterateTrue(value).map((item) => {
      if (attribute === undefined) return runFilter(toText(first ?? null), item, rest, named)
      const found = follow(item, attribute)
      return found instanceof Undefined && otherwise !== undefined ? otherwise : found
    }),
  )
}

function indent(value: Value, args: readonly Value[], named: Named): Value {
  const width = arg(args, 0, named, 'width') ?? 4
  const space = textOf(width) ?? spaces(intOf(width, 4))
  const isFirst = isOn(arg(args, 1, named, 'first'))
  const isBlank = isOn(arg(args, 2, named, 'blank'))
  const [head = '', ...rest] = `${toText(value)}\n`.split('\n').slice(0, -1)
  spendChars(space.length * rest.length)
  const lines = rest.map((line) => (line === '' && !isBlank ? line : space + line))
  return [isFirst ? space + head : head, ...lines].join('\n')
}

function round(value: Value, args: readonly Value[], named: Named): Value {
  const number = numberOf(value) ?? 0
  const factor = 10 ** intOf(arg(args, 0, named, 'precision'), 0)
  const how = arg(args, 1, named, 'method')
  const scaled = number * factor
  if (how === 'ceil') return toFloat(Math.ceil(scaled) / factor)
  if (how === 'floor') return toFloat(Math.floor(scaled) / factor)
  const near = Math.round(scaled)
  // Halves are rounded to the nearest even number, as in Python.
  const isHalf = Math.abs(scaled - Math.trunc(scaled)) === 0.5
  return toFloat((isHalf && near % 2 !== 0 ? near - 1 : near) / factor)
}

function toInt(value: Value, args: readonly Value[], named: Named): Value {
  const number = parsedNumber(value)
  if (Number.isFinite(number)) return Math.trunc(number)
  return valueOr(arg(args, 0, named, 'default'), 0)
}

function toNumber(value: Value, args: readonly Value[], named: Named): Value {
  const number = parsedNumber(value)
  return Number.isNaN(number)
    ? valueOr(arg(args, 0, named, 'default'), toFloat(0))
    : toFloat(number)
}

/** NaN for a value that is not a number. */
function parsedNumber(value: Value): number {
  const text = textOf(value)
  if (text === null) return numberOf(value) ?? NaN
  return text.trim() === '' ? NaN : Number(text)
}

function unique(value: Value, args: readonly Value[], named: Named): Value {
  const isExact = isOn(arg(args, 0, named, 'case_sensitive'))
  const seen = new Set<unknown>()
  return Lazy.from(
    iterate(value).filter((item) => {
      const key = hashOf(ignoreCase(follow(item, arg(args, 1, named, 'attribute')), isExact))
      const isNew = !seen.has(key)
      seen.add(key)
      return isNew
    }),
  )
}

/** Equal values have equal hashes. */
function hashOf(value: Value): unknown {
  const text = textOf(value)
  if (text !== null) return text
  if (value instanceof Undefined) return undefined
  const number = numberOf(value)
  if (number !== null || value === null) return number
  if (value instanceof Tuple) return toRepr(value)
  if (Array.isArray(value) || value instanceof Dict) {
    throw new TemplateError(`unhashable type: '${typeName(value)}'`)
  }
  return value
}

function groupBy(value: Value, args: readonly Value[], named: Named): Value {
  const attribute = arg(args, 0, named, 'attribute')
  const groups: Value[] = []
  const sorted = sort(iterate(value), [], new Map([['attribute', attribute ?? null]]))
  let last: Tuple | undefined
  for (const item of sorted) {
    const key = follow(item, attribute)
    if (last === undefined || !isEqual(last[0] ?? null, key)) {
      last = Tuple.from([key, []])
      groups.push(last)
    }
    const list = last[1]
    if (Array.isArray(list)) list.push(item)
  }
  return groups
}

const extreme =
  (sign: number): Filter =>
  (value, args, named) => {
    const items = iterate(value)
    const attribute = arg(args, 1, named, 'attribute')
    const isExact = isOn(arg(args, 0, named, 'case_sensitive'))
    const keyed = items.map((item) => ({ item, key: ignoreCase(follow(item, attribute), isExact) }))
    const [first, ...rest] = keyed
    if (first === undefined) return new Undefined('No aggregated item, sequence was empty.')
    const isBetter = (one: Value, other: Value): boolean => compare(one, other) * sign > 0
    return rest.reduce((best, one) => (isBetter(one.key, best.key) ? one : best), first).item
  }

function batch(value: Value, args: readonly Value[], named: Named): Value {
  const size = Math.max(1, Math.trunc(intOf(arg(args, 0, named, 'linecount'), 1)))
  const fill = arg(args, 1, named, 'fill_with') ?? null
  const items = iterate(value)
  return Array.from({ length: Math.ceil(items.length / size) }, (_, at) => {
    const group = items.slice(at * size, (at + 1) * size)
    if (fill === null) return group
    spendItems(size - group.length)
    return [...group, ...Array<Value>(size - group.length).fill(fill)]
  })
}

function joinItems(value: Value, args: readonly Value[], named: Named): Value {
  const attribute = arg(args, 1, named, 'attribute')
  const by = arg(args, 0, named, 'd')
  return joined(
    iterate(value).map((item) => toText(follow(item, attribute))),
    by === undefined ? '' : toText(by),
  )
}

function sum(value: Value, args: readonly Value[], named: Named): Value {
  const attribute = arg(args, 0, named, 'attribute')
  const numbers = [
    arg(args, 1, named, 'start') ?? 0,
    ...iterate(value).map((item) => follow(item, attribute)),
  ]
  const total = numbers.reduce<number>((all, item) => all + (numberOf(defined(item)) ?? 0), 0)
  return numbers.some(isFloat) ? toFloat(total) : total
}

function byDefault(value: Value, args: readonly Value[], named: Named): Value {
  const isMissing = isOn(arg(args, 1, named, 'boolean'))
    ? !isTrue(value)
    : value instanceof Undefined
  return isMissing ? valueOr(arg(args, 0, named, 'default_value'), '') : value
}

function reversed(value: Value): Value {
  const items = iterate(value).toReversed()
  return textOf(value) === null ? Lazy.from(items) : items.join('')
}

function itemsOf(value: Value): Value {
  if (value instanceof Undefined) return Lazy.from([])
  if (!(value instanceof Dict)) throw new TemplateError('Can only get item pairs from a mapping.')
  return Lazy.from(Array.from(value, (entry) => Tuple.from(entry)))
}

function fromJson(value: Value): Value {
  let parsed: unknown
  try {
    parsed = JSON.parse(toText(value))
  } catch {
    throw new TemplateError('from_json: the text is no JSON')
  }
  return toValue(parsed)
}

function truncate(value: Value, args: readonly Value[], named: Named): Value {
  const text = toText(value)
  const length = intOf(arg(args, 0, named, 'length'), 255)
  const end = toText(arg(args, 2, named, 'end') ?? '...')
  if (text.length <= length + intOf(arg(args, 3, named, 'leeway'), 5)) return text
  const cut = text.slice(0, length - end.length)
  if (isOn(arg(args, 1, named, 'killwords'))) return cut + end
  const at = cut.lastIndexOf(' ')
  return (at === -1 ? cut : cut.slice(0, at)) + end
}

function absolute(value: Value): Value {
  const number = numberOf(defined(value))
  if (number === null) {
    throw new TemplateError(`bad operand type for abs(): '${typeName(value)}'`)
  }
  return isFloat(value) ? toFloat(Math.abs(number)) : Math.abs(number)
}

const filters: Readonly<Record<string, Filter>> = {
  abs: absolute,
  attr: (value, [name = null]) => attributeOf(value, toText(name)),
  batch,
  capitalize: (value) => capitalize(toText(value)),
  count: (value) => lengthOf(value),
  d: byDefault,
  default: byDefault,
  dictsort,
  e: (value) => toMarkup(value),
  escape: (value) => toMarkup(value),
  first: (value) => valueOr(iterate(value)[0], new Undefined('No first item, sequence was empty.')),
  float: toNumber,
  forceescape: (value) => toMarkup(toText(value)),
  from_json: fromJson,
  format: (value, args, named) => formatPercent(toText(value), Tuple.from(args), named),
  groupby: groupBy,
  indent,
  int: toInt,
  items: itemsOf,
  join: joinItems,
  last: (value) =>
    valueOr(iterate(value).at(-1), new Undefined('No last item, sequence was empty.')),
  length: (value) => lengthOf(value),
  list: (value) => [...iterate(value)],
  lower: (value) => toText(value).toLowerCase(),
  map,
  max: extreme(1),
  min: extreme(-1),
  pprint: (value) => toRepr(value),
  reject: choose(false, false),
  rejectattr: choose(false, true),
  replace: (value, [from = null, to = null, max]) =>
    replace(toText(value), toText(from), toText(to), intOf(max, -1)),
  reverse: reversed,
  round,
  safe: (value) => new Markup(toText(value)),
  select: choose(true, false),
  selectattr: choose(true, true),
  sort: (value, args, named) => sort(iterate(value), args, named),
  string: (value) => toText(value),
  sum,
  title: (value) => titleWords(toText(value)),
  tojson: toJson,
  trim: (value, [letters]) =>
    strip(toText(value), letters === undefined ? null : textOf(letters), 'both'),
  truncate,
  unique,
  upper: (value) => toText(value).toUpperCase(),
  urlencode: (value) => encodeURIComponent(toText(value).toWellFormed()),
  wordcount: (value) => (toText(value).match(/[\p{L}\p{N}_]+/gu) ?? []).length,
}
