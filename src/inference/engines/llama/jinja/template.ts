/**
 * Jinja chat templates. They render exactly as in Python, including spaces and quotes, because
 * models were trained with that output. Pure, except that a template may read the time.
 */

import { spendItems, TemplateError, TemplateLimitError, withLimits } from './limits.ts'
import { Scope, TemplateNames } from './scope.ts'
import { compileTemplate } from './statements.ts'
import {
  Callable,
  Dict,
  type NamedArguments,
  Namespace,
  asNumber,
  toText,
  toValue,
  type Value,
} from './values.ts'

/** The maximum number of characters, ten times more than the longest templates in use have. */
const maxSourceChars = 1 << 20
/** The maximum length of a range, as in Jinja's sandbox. */
const maxRangeLength = 100_000

export class JinjaTemplate {
  readonly names: TemplateNames
  readonly #render: (scope: Scope) => string
  readonly #globals: ReadonlyMap<string, Value>

  /** Throws a `TemplateError` for a wrong source. Unknown filters throw only when they are used. */
  constructor(source: string, now: () => Date) {
    if (source.length > maxSourceChars) throw new TemplateLimitError('the template is too long')
    const strftimeNow: Value = new Callable('strftime_now', ([format = '']) =>
      strftime(toText(format), now()),
    )
    this.#globals = new Map([...globals, ['strftime_now', strftimeNow]])
    this.names = new TemplateNames(this.#globals.keys())
    this.#render = withLimits(() => compileTemplate(source, this.names))
  }

  render(variables: object): string {
    const scope = new Scope()
    for (const [name, value] of this.#globals) scope.set(name, value)
    for (const [name, value] of Object.entries(variables)) {
      if (value !== undefined) scope.set(name, toValue(value))
    }
    return withLimits(() => this.#render(scope))
  }
}

function raiseException(message: Value): never {
  throw new TemplateError(toText(message), true)
}

function createRange(args: readonly Value[]): Value {
  const [first = 0, second, step = 1] = args.map((arg) => asNumber(arg) ?? 0)
  const [from, to] = second === undefined ? [0, first] : [first, second]
  if (step === 0) throw new TemplateError('range() arg 3 must not be zero')
  const length = Math.max(0, Math.ceil((to - from) / step))
  if (!(length <= maxRangeLength)) throw new TemplateLimitError('a range is too long')
  spendItems(length)
  return Array.from({ length }, (_, at) => from + at * step)
}

function createNamespace(args: readonly Value[], named: NamedArguments): Value {
  const [given] = args
  const entries = given instanceof Dict ? [...given] : []
  return new Namespace([...entries.map(([key, value]) => [String(key), value] as const), ...named])
}

function createDict(args: readonly Value[], named: NamedArguments): Value {
  const [given] = args
  return new Dict([...(given instanceof Dict ? given : []), ...named])
}

const globals: ReadonlyMap<string, Value> = new Map<string, Value>([
  ['raise_exception', new Callable('raise_exception', ([message = '']) => raiseException(message))],
  ['range', new Callable('range', createRange)],
  ['namespace', new Callable('namespace', createNamespace)],
  ['dict', new Callable('dict', createDict)],
])

const days = ['Sunday', 'Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday', 'Saturday']
const months =
  'January February March April May June July August September October November December'.split(' ')

const twoDigits = (value: number): string => String(value).padStart(2, '0')

const formatCodes: Readonly<Record<string, (date: Date) => string>> = {
  Y: (date) => String(date.getFullYear()),
  y: (date) => twoDigits(date.getFullYear() % 100),
  m: (date) => twoDigits(date.getMonth() + 1),
  d: (date) => twoDigits(date.getDate()),
  e: (date) => String(date.getDate()).padStart(2, ' '),
  H: (date) => twoDigits(date.getHours()),
  I: (date) => twoDigits(date.getHours() % 12 || 12),
  M: (date) => twoDigits(date.getMinutes()),
  S: (date) => twoDigits(date.getSeconds()),
  p: (date) => (date.getHours() < 12 ? 'AM' : 'PM'),
  A: (date) => days[date.getDay()] ?? '',
  a: (date) => (days[date.getDay()] ?? '').slice(0, 3),
  B: (date) => months[date.getMonth()] ?? '',
  b: (date) => (months[date.getMonth()] ?? '').slice(0, 3),
  j: (date) => String(dayOfYear(date)).padStart(3, '0'),
  F: (date) =>
    `${date.getFullYear()}-${twoDigits(date.getMonth() + 1)}-${twoDigits(date.getDate())}`,
  T: (date) =>
    `${twoDigits(date.getHours())}:${twoDigits(date.getMinutes())}:${twoDigits(date.getSeconds())}`,
  '%': () => '%',
}

/** Formats a date in English, as Python does. As on Linux, `%-d` omits padding. */
export const strftime = (format: string, date: Date): string =>
  format.replaceAll(/%(-?)([a-zA-Z%])/g, (whole: string, mark: string, code: string) => {
    const write = formatCodes[code]
    if (write === undefined) return whole
    return mark === '-' ? write(date).replace(/^[0 ]+(?=.)/, '') : write(date)
  })

function dayOfYear(date: Date): number {
  const start = Date.UTC(date.getFullYear(), 0, 1)
  const now = Date.UTC(date.getFullYear(), date.getMonth(), date.getDate())
  return (now - start) / 86_400_000 + 1
}
