/** Operators, members, slices and tests of values, such as `is defined`. */

import { findMethod } from './methods.ts'
import { spendChars, spendItems, spendSearch, TemplateError, TemplateLimitError } from './limits.ts'
import {
  Callable,
  compareValues,
  expectDefined,
  Dict,
  Float,
  isEqual,
  isFloat,
  iterate,
  Markup,
  Namespace,
  asNumber,
  asText,
  toFloat,
  toKey,
  toMarkup,
  toRepr,
  toText,
  Tuple,
  typeName,
  Undefined,
  type Value,
  valueOr,
} from './values.ts'

const maxRepeatedLength = 1_000_000

export function applyOperator(sign: string, left: Value, right: Value): Value {
  if (sign === '~') return toText(left) + toText(right)
  const [one, other] = [expectDefined(left), expectDefined(right)]
  if (sign === '+') return addValues(one, other)
  if (sign === '*' && (isSequence(one) || isSequence(other))) return repeatSequence(one, other)
  const [a, b] = [asNumber(one), asNumber(other)]
  if (a === null || b === null) throw unsupportedOperands(sign, one, other)
  return calculate(sign, a, b, isFloat(one) || isFloat(other))
}

const isSequence = (value: Value): boolean => Array.isArray(value) || asText(value) !== null

function concatenate(left: Value, right: Value): Value {
  if (left instanceof Markup || right instanceof Markup) {
    return new Markup(toMarkup(left).text + toMarkup(right).text)
  }
  return toText(left) + toText(right)
}

function addValues(one: Value, other: Value): Value {
  const [text, otherText] = [asText(one), asText(other)]
  if (text !== null && otherText !== null) return concatenate(one, other)
  if (text !== null) {
    throw new TemplateError(`can only concatenate str (not "${typeName(other)}") to str`)
  }
  if (Array.isArray(one) && Array.isArray(other)) {
    return one instanceof Tuple ? Tuple.from([...one, ...other]) : [...one, ...other]
  }
  const [a, b] = [asNumber(one), asNumber(other)]
  if (a === null || b === null) throw unsupportedOperands('+', one, other)
  return calculate('+', a, b, isFloat(one) || isFloat(other))
}

function repeatSequence(one: Value, other: Value): Value {
  const [items, count] = isSequence(one) ? [one, asNumber(other)] : [other, asNumber(one)]
  const text = asText(items)
  const length = text === null ? iterate(items).length : text.length
  if (count === null || !Number.isInteger(count)) throw unsupportedOperands('*', one, other)
  const times = Math.max(0, count)
  if (times * length > maxRepeatedLength)
    throw new TemplateLimitError('a value is repeated too often')
  if (text !== null) return text.repeat(times)
  return Array.from({ length: times }, () => iterate(items)).flat()
}

function calculate(sign: string, a: number, b: number, hasFloat: boolean): Value {
  if (b === 0 && ['/', '//', '%'].includes(sign)) throw new TemplateError('division by zero')
  if (sign === '/') return toFloat(a / b)
  const result = sign === '**' && b < 0 ? toFloat(a ** b) : calculateNumber(sign, a, b)
  return hasFloat && typeof result === 'number' ? toFloat(result) : result
}

function calculateNumber(sign: string, a: number, b: number): number {
  if (sign === '+') return a + b
  if (sign === '-') return a - b
  if (sign === '*') return a * b
  if (sign === '//') return Math.floor(a / b)
  // In Python, the remainder has the sign of the divisor.
  return sign === '%' ? a - b * Math.floor(a / b) : a ** b
}

const unsupportedOperands = (sign: string, one: Value, other: Value): TemplateError =>
  new TemplateError(
    `unsupported operand type(s) for ${sign}: '${typeName(one)}' and '${typeName(other)}'`,
  )

function isContained(item: Value, container: Value): boolean {
  const whole = asText(container)
  if (whole !== null) {
    const part = asText(item)
    if (part === null) {
      throw new TemplateError(
        `'in <string>' requires string as left operand, not ${typeName(item)}`,
      )
    }
    spendSearch(whole, part)
    return whole.includes(part)
  }
  if (container instanceof Dict) return container.has(toKey(item))
  return iterate(container).some((other) => isEqual(item, other))
}

export function compareBy(sign: string, left: Value, right: Value): boolean {
  if (sign === '==') return isEqual(left, right)
  if (sign === '!=') return !isEqual(left, right)
  if (sign === 'in') return isContained(left, right)
  if (sign === 'not in') return !isContained(left, right)
  const order = compareValues(left, right)
  if (sign === '<') return order < 0
  if (sign === '>') return order > 0
  return sign === '<=' ? order <= 0 : order >= 0
}

/** Evaluates `of.name`, which is a method or an attribute if there is one, else an item. */
export function getAttribute(of: Value, name: string): Value {
  if (of instanceof Undefined) throw new TemplateError(of.message)
  const own = getOwnAttribute(of, name)
  if (own !== undefined) return own
  if (of instanceof Dict) return valueOr(of.get(name), missingMember(of, name))
  return missingMember(of, name)
}

/** Evaluates `of[key]`, which is an item if there is one, and an attribute otherwise. */
export function getItem(of: Value, key: Value): Value {
  if (of instanceof Undefined) throw new TemplateError(of.message)
  if (of instanceof Dict) {
    const found = Array.isArray(key) || key instanceof Undefined ? undefined : of.get(toKey(key))
    if (found !== undefined) return found
  }
  const at = asNumber(key)
  if (at !== null && isSequence(of)) {
    const items = toIndexable(of)
    return valueOr(items[at < 0 ? at + items.length : at], missingMember(of, key))
  }
  const name = asText(key)
  return valueOr(name === null ? undefined : getOwnAttribute(of, name), missingMember(of, key))
}

function getOwnAttribute(of: Value, name: string): Value | undefined {
  if (of instanceof Namespace) return of.get(name)
  if (of instanceof Callable) return of.attributes.get(name)
  return findMethod(of, name)
}

function missingMember(of: Value, key: Value): Undefined {
  const owner = of === null ? 'None' : `${typeName(of)} object`
  const isName = typeof key === 'string'
  return new Undefined(
    isName ? `'${owner}' has no attribute '${key}'` : `${owner} has no element ${toRepr(key)}`,
  )
}

/** Returns items or a text. A text with surrogate pairs is returned as a list of characters. */
function toIndexable(of: Value): string | readonly Value[] {
  const text = asText(of)
  if (text === null) return iterate(of)
  spendChars(text.length)
  return /[\uD800-\uDFFF]/.test(text) ? iterate(text) : text
}

export function getSlice(of: Value, bounds: readonly (Value | null)[]): Value {
  const items = toIndexable(expectDefined(of))
  const [from, to, by] = bounds.map((bound) => (bound === null ? null : asNumber(bound)))
  const step = by ?? 1
  if (step === 0) throw new TemplateError('slice step cannot be zero')
  const clip = (at: number, min: number, max: number): number =>
    Math.min(Math.max(at < 0 ? at + items.length : at, min), max)
  const chosen: Value[] = []
  if (step > 0) {
    const end = clip(to ?? items.length, 0, items.length)
    if (step === 1 && typeof items === 'string') {
      return items.slice(clip(from ?? 0, 0, items.length), end)
    }
    for (let at = clip(from ?? 0, 0, items.length); at < end; at += step) push(at)
  } else {
    const end = to === null || to === undefined ? -1 : clip(to, -1, items.length - 1)
    for (let at = clip(from ?? items.length - 1, -1, items.length - 1); at > end; at += step) {
      push(at)
    }
  }
  if (asText(of) !== null) return chosen.join('')
  return of instanceof Tuple ? Tuple.from(chosen) : chosen

  function push(at: number): void {
    const item = items[at]
    if (item === undefined) return
    spendItems(1)
    chosen.push(item)
  }
}

type Test = (value: Value, args: readonly Value[]) => boolean

export function runTest(name: string, value: Value, args: readonly Value[]): boolean {
  const test = Object.hasOwn(tests, name) ? tests[name] : undefined
  if (test === undefined) throw new TemplateError(`No test named '${name}'.`)
  return test(value, args)
}

const comparisonTest =
  (sign: string): Test =>
  (value, [other = null]) =>
    compareBy(sign, value, other)

const isInteger = (value: Value): boolean => typeof value === 'number' && Number.isInteger(value)

const positiveRemainder = (value: Value, by: number): number => {
  const rest = (asNumber(value) ?? NaN) % by
  return rest < 0 ? rest + by : rest
}

const casedTest =
  (toCase: (text: string) => string): Test =>
  (value) => {
    const text = toText(value)
    spendChars(text.length)
    return text !== '' && text === toCase(text)
  }

const isIterable = (value: Value): boolean =>
  isSequence(value) || value instanceof Dict || value instanceof Undefined

const tests: Readonly<Record<string, Test>> = {
  '==': comparisonTest('=='),
  '!=': comparisonTest('!='),
  '<': comparisonTest('<'),
  '<=': comparisonTest('<='),
  '>': comparisonTest('>'),
  '>=': comparisonTest('>='),
  boolean: (value) => typeof value === 'boolean',
  callable: (value) => value instanceof Callable,
  defined: (value) => !(value instanceof Undefined),
  divisibleby: (value, [by = 1]) => positiveRemainder(value, asNumber(by) ?? 1) === 0,
  eq: comparisonTest('=='),
  equalto: comparisonTest('=='),
  escaped: (value) => value instanceof Markup,
  even: (value) => positiveRemainder(value, 2) === 0,
  false: (value) => value === false,
  float: (value) => isFloat(value),
  ge: comparisonTest('>='),
  greaterthan: comparisonTest('>'),
  gt: comparisonTest('>'),
  in: (value, [container = null]) => isContained(value, container),
  integer: isInteger,
  iterable: isIterable,
  le: comparisonTest('<='),
  lessthan: comparisonTest('<'),
  lower: casedTest((text) => text.toLowerCase()),
  lt: comparisonTest('<'),
  mapping: (value) => value instanceof Dict || value instanceof Namespace,
  ne: comparisonTest('!='),
  none: (value) => value === null,
  number: (value) => asNumber(value) !== null || value instanceof Float,
  odd: (value) => positiveRemainder(value, 2) === 1,
  sameas: (value, [other = null]) => value === other || (isInteger(value) && isEqual(value, other)),
  sequence: isIterable,
  string: (value) => asText(value) !== null,
  true: (value) => value === true,
  undefined: (value) => value instanceof Undefined,
  upper: casedTest((text) => text.toUpperCase()),
}
