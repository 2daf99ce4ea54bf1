/** The tests of Jinja templates, such as `is defined`. */

import { isIn, isOrdered } from './operations.ts'
import { spendChars, TemplateError } from './limits.ts'
import {
  Callable,
  Dict,
  Float,
  isEqual,
  isFloat,
  Markup,
  Namespace,
  numberOf,
  textOf,
  toText,
  Undefined,
  type Value,
} from './values.ts'

type Test = (value: Value, args: readonly Value[]) => boolean

export function runTest(name: string, value: Value, args: readonly Value[]): boolean {
  const test = Object.hasOwn(tests, name) ? tests[name] : undefined
  if (test === undefined) throw new TemplateError(`No test named '${name}'.`)
  return test(value, args)
}

const ordered =
  (sign: string): Test =>
  (value, [other = null]) =>
    isOrdered(sign, value, other)

const isInteger = (value: Value): boolean => typeof value === 'number' && Number.isInteger(value)

const remainder = (value: Value, by: number): number => {
  const rest = (numberOf(value) ?? NaN) % by
  return rest < 0 ? rest + by : rest
}

const isCased =
  (toCase: (text: string) => string): Test =>
  (value) => {
    const text = toText(value)
    spendChars(text.length)
    return text !== '' && text === toCase(text)
  }

const isSequence = (value: Value): boolean =>
  Array.isArray(value) ||
  textOf(value) !== null ||
  value instanceof Dict ||
  value instanceof Undefined

const tests: Readonly<Record<string, Test>> = {
  '==': ordered('=='),
  '!=': ordered('!='),
  '<': ordered('<'),
  '<=': ordered('<='),
  '>': ordered('>'),
  '>=': ordered('>='),
  boolean: (value) => typeof value === 'boolean',
  callable: (value) => value instanceof Callable,
  defined: (value) => !(value instanceof Undefined),
  divisibleby: (value, [by = 1]) => remainder(value, numberOf(by) ?? 1) === 0,
  eq: ordered('=='),
  equalto: ordered('=='),
  escaped: (value) => value instanceof Markup,
  even: (value) => remainder(value, 2) === 0,
  false: (value) => value === false,
  float: (value) => isFloat(value),
  ge: ordered('>='),
  greaterthan: ordered('>'),
  gt: ordered('>'),
  in: (value, [container = null]) => isIn(value, container),
  integer: isInteger,
  iterable: isSequence,
  le: ordered('<='),
  lessthan: ordered('<'),
  lower: isCased((text) => text.toLowerCase()),
  lt: ordered('<'),
  mapping: (value) => value instanceof Dict || value instanceof Namespace,
  ne: ordered('!='),
  none: (value) => value === null,
  number: (value) => numberOf(value) !== null || value instanceof Float,
  odd: (value) => remainder(value, 2) === 1,
  sameas: (value, [other = null]) => value === other || (isInteger(value) && isEqual(value, other)),
  sequence: isSequence,
  string: (value) => textOf(value) !== null,
  true: (value) => value === true,
  undefined: (value) => value instanceof Undefined,
  upper: isCased((text) => text.toUpperCase()),
}
