/**
 * Jinja chat templates, rendered exactly as Jinja does in Python: models were trained with that
 * output, including spaces and quotes. Pure, except that a template may read the time.
 */

import { Scope } from './evaluator.ts'
import { Interpreter } from './interpreter.ts'
import type { Body } from './syntax/nodes.ts'
import { parseTemplate } from './syntax/parser.ts'
import { namesIn, type TemplateNames } from './syntax/template-names.ts'
import { spendItems, TemplateError, TooCostly, withinLimits } from './limits.ts'
import {
  Callable,
  Dict,
  type Named,
  Namespace,
  numberOf,
  toText,
  toValue,
  type Value,
  valueOr,
} from './values.ts'

/** The maximum length of a source in characters, ten times that of the longest templates in use. */
const maxSource = 1 << 20
/** The same limit as in Jinja's sandbox. */
const maxRange = 100_000

export class JinjaTemplate {
  readonly #body: Body
  readonly #now: () => Date

  /**
   * Throws a `TemplateError` if the source cannot be parsed. Unknown filters fail only when used.
   */
  constructor(source: string, now: () => Date) {
    if (source.length > maxSource) throw new TooCostly('the template is too long')
    this.#body = withinLimits(() => parseTemplate(source))
    this.#now = now
  }

  names(): TemplateNames {
    return withinLimits(() => namesIn(this.#body, this.#globals().keys()))
  }

  /** Throws a `TemplateError`. Its `isRaised` is true if the template itself raised the error. */
  render(variables: object): string {
    const scope = new Scope()
    for (const [name, value] of this.#globals()) scope.set(name, value)
    for (const [name, value] of Object.entries(variables)) {
      if (value !== undefined) scope.set(name, toValue(value))
    }
    return withinLimits(() => new Interpreter().render(this.#body, scope.open()))
  }

  #globals(): ReadonlyMap<string, Value> {
    const now: Value = new Callable('strftime_now', ([format = '']) =>
      strftime(toText(format), this.#now()),
    )
    return new Map([...globals, ['strftime_now', now]])
  }
}

function raise(message: Value): never {
  throw new TemplateError(toText(message), true)
}

function range(args: readonly Value[]): Value {
  const [first = 0, second, step = 1] = args.map((arg) => numberOf(arg) ?? 0)
  const [from, to] = second === undefined ? [0, first] : [first, second]
  if (step === 0) throw new TemplateError('range() arg 3 must not be zero')
  const length = Math.max(0, Math.ceil((to - from) / step))
  if (!(length <= maxRange)) throw new TooCostly('a range is too long')
  spendItems(length)
  return Array.from({ length }, (_, at) => from + at * step)
}

function namespace(args: readonly Value[], named: Named): Value {
  const [given] = args
  const entries = given instanceof Dict ? [...given] : []
  return new Namespace([...entries.map(([key, value]) => [String(key), value] as const), ...named])
}

function dict(args: readonly Value[], named: Named): Value {
  const [given] = args
  return new Dict([...(given instanceof Dict ? given : []), ...named])
}

function joiner(args: readonly Value[]): Value {
  let isFirst = true
  return new Callable('joiner', () => {
    const text = isFirst ? '' : valueOr(args[0], ', ')
    isFirst = false
    return text
  })
}

const globals: ReadonlyMap<string, Value> = new Map<string, Value>([
  ['raise_exception', new Callable('raise_exception', ([message = '']) => raise(message))],
  ['range', new Callable('range', range)],
  ['namespace', new Callable('namespace', namespace)],
  ['dict', new Callable('dict', dict)],
  ['joiner', new Callable('joiner', joiner)],
])

const days = ['Sunday', 'Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday', 'Saturday']
const months =
  'January February March April May June July August September October November December'.split(' ')

const two = (value: number): string => String(value).padStart(2, '0')

const codes: Readonly<Record<string, (date: Date) => string>> = {
  Y: (date) => String(date.getFullYear()),
  y: (date) => two(date.getFullYear() % 100),
  m: (date) => two(date.getMonth() + 1),
  d: (date) => two(date.getDate()),
  e: (date) => String(date.getDate()).padStart(2, ' '),
  H: (date) => two(date.getHours()),
  I: (date) => two(date.getHours() % 12 || 12),
  M: (date) => two(date.getMinutes()),
  S: (date) => two(date.getSeconds()),
  p: (date) => (date.getHours() < 12 ? 'AM' : 'PM'),
  A: (date) => days[date.getDay()] ?? '',
  a: (date) => (days[date.getDay()] ?? '').slice(0, 3),
  B: (date) => months[date.getMonth()] ?? '',
  b: (date) => (months[date.getMonth()] ?? '').slice(0, 3),
  j: (date) => String(dayOfYear(date)).padStart(3, '0'),
  F: (date) => `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`,
  T: (date) => `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`,
  '%': () => '%',
}

/** Formats a date as Python does, in English. `%-d` omits padding, as on Linux. */
export const strftime = (format: string, date: Date): string =>
  format.replaceAll(/%(-?)([a-zA-Z%])/g, (whole: string, mark: string, code: string) => {
    const write = codes[code]
    if (write === undefined) return whole
    return mark === '-' ? write(date).replace(/^[0 ]+(?=.)/, '') : write(date)
  })

function dayOfYear(date: Date): number {
  const start = Date.UTC(date.getFullYear(), 0, 1)
  const now = Date.UTC(date.getFullYear(), date.getMonth(), date.getDate())
  return (now - start) / 86_400_000 + 1
}
