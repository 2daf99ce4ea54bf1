/** GBNF expressions for JSON numbers between bounds. Pure. */

import { impossible } from './schema-keywords.ts'

export interface NumberBounds {
  readonly min: number | null
  readonly max: number | null
  readonly isMinExclusive: boolean
  readonly isMaxExclusive: boolean
}

const maxDigits = 15
const digits = (min: number, max: number): string =>
  max <= 0 ? '' : min === max ? `[0-9]{${max}}` : `[0-9]{${min},${max}}`

/** An expression for integers between the bounds. Throws if there are none. */
export function integerGrammar(bounds: NumberBounds): string {
  const min = lowest(bounds)
  const max = highest(bounds)
  if (min === null && max === null) return 'integer'
  if ((min ?? -Infinity) > (max ?? Infinity)) throw impossible('no integer is between the bounds')
  const choices: string[] = []
  if (min === null || min < 0) {
    const far = min === null ? null : -min
    const near = max === null || max >= 0 ? 1 : -max
    choices.push(`"-" ( ${between(near, far)} )`)
  }
  if (max === null || max >= 0) choices.push(between(Math.max(0, min ?? 0), max))
  return alternatives(choices)
}

function lowest({ min, isMinExclusive }: NumberBounds): number | null {
  if (min === null) return null
  return isMinExclusive && Number.isInteger(min) ? min + 1 : Math.ceil(min)
}

function highest({ max, isMaxExclusive }: NumberBounds): number | null {
  if (max === null) return null
  return isMaxExclusive && Number.isInteger(max) ? max - 1 : Math.floor(max)
}

/** Non-negative integers; `null` means no upper bound. */
function between(from: number, to: number | null): string {
  const low = String(from)
  if (low.length > maxDigits || String(to ?? 0).length > maxDigits) {
    throw new Error(`bounds of numbers may have ${maxDigits} digits`)
  }
  const choices: string[] = []
  const longest = to === null ? maxDigits : String(to).length
  for (let length = low.length; length <= longest; length++) {
    const first = length === low.length ? low : `1${'0'.repeat(length - 1)}`
    const isLast = to !== null && length === longest
    choices.push(sameLength(first, isLast ? String(to) : '9'.repeat(length)))
    if (to === null && length === low.length) {
      if (length < maxDigits) choices.push(`[1-9] ${digits(length, maxDigits - 1)}`)
      break
    }
  }
  return alternatives(choices)
}

/** Digit strings of equal length from `low` to `high`. */
function sameLength(low: string, high: string): string {
  if (low === high) return `"${low}"`
  let same = 0
  while (low[same] === high[same]) same++
  const prefix = low.slice(0, same)
  const [a, b] = [Number(low[same]), Number(high[same])]
  const rest = low.length - same - 1
  const [lowRest, highRest] = [low.slice(same + 1), high.slice(same + 1)]
  const isAll = /^0*$/.test(lowRest) && /^9*$/.test(highRest)
  const head = prefix === '' ? '' : `"${prefix}" `
  if (isAll) return `${head}[${a}-${b}] ${digits(rest, rest)}`.trim()
  const choices = [`"${a}" ${sameLength(lowRest, '9'.repeat(rest))}`]
  if (b - a > 1) choices.push(`[${a + 1}-${b - 1}] ${digits(rest, rest)}`)
  choices.push(`"${b}" ${sameLength('0'.repeat(rest), highRest)}`)
  return head + alternatives(choices)
}

/** An expression for numbers between the bounds, without exponents. Throws if there are none. */
export function numberGrammar(bounds: NumberBounds): string {
  const { min, max, isMinExclusive, isMaxExclusive } = bounds
  if (min === null && max === null) return 'number'
  if ((min ?? -Infinity) > (max ?? Infinity)) throw impossible('no number is between the bounds')
  const choices: string[] = []
  if (min === null || min < 0) {
    const far = { value: min === null ? null : -min, isExclusive: isMinExclusive }
    const near = {
      value: Math.max(0, -(max ?? 0)),
      isExclusive: max === null || max >= 0 || isMaxExclusive,
    }
    choices.push(`"-" ( ${sizes(near, far)} )`)
  }
  if (max === null || max >= 0) {
    const near = {
      value: Math.max(0, min ?? 0),
      isExclusive: min !== null && min >= 0 && isMinExclusive,
    }
    const far = { value: max, isExclusive: isMaxExclusive }
    if (max === null || max > near.value || !(near.isExclusive || isMaxExclusive)) {
      choices.push(sizes(near, far))
    }
  }
  if (choices.length === 0) throw impossible('no number is between the bounds')
  return alternatives(choices)
}

interface Bound<T> {
  readonly value: T
  readonly isExclusive: boolean
}

/** Non-negative numbers. */
function sizes(near: Bound<number>, far: Bound<number | null>): string {
  const [low, lowFraction] = split(near.value)
  const choices: string[] = []
  if (far.value === null) {
    choices.push(`"${low}" ${fractionFrom(lowFraction, near.isExclusive)}`)
    choices.push(`( ${between(low + 1, null)} ) ${anyFraction}`)
    return alternatives(choices)
  }
  const [high, highFraction] = split(far.value)
  if (low === high) {
    const whole = fractionBetween(lowFraction, highFraction, near, far)
    return `"${low}" ${whole}`
  }
  choices.push(`"${low}" ${fractionFrom(lowFraction, near.isExclusive)}`)
  if (high - low > 1) choices.push(`( ${between(low + 1, high - 1)} ) ${anyFraction}`)
  const last = fractionTo(highFraction, far.isExclusive)
  if (last !== null) choices.push(`"${high}" ${last}`)
  return alternatives(choices)
}

const anyFraction = '( "." [0-9]{1,15} )?'

function split(value: number): readonly [number, string] {
  const text = /e/.test(String(value)) ? value.toFixed(maxDigits) : String(value)
  const [whole = '0', fraction = ''] = text.split('.')
  return [Number(whole), fraction.replace(/0+$/, '')]
}

/** Fractions from this fraction up to, but not including, the next integer. */
function fractionFrom(fraction: string, isExclusive: boolean): string {
  if (fraction === '') return isExclusive ? '"." [0-9]{0,14} [1-9]' : anyFraction
  const choices = [isExclusive ? `"${fraction}" [0-9]{0,8} [1-9]` : `"${fraction}" [0-9]{0,8}`]
  for (const [at, digit] of Array.from(fraction, Number).entries()) {
    if (digit < 9) choices.push(`"${fraction.slice(0, at)}" [${digit + 1}-9] [0-9]{0,8}`)
  }
  return `"." ${alternatives(choices)}`
}

/** Fractions up to this fraction; `null` if there are none. */
function fractionTo(fraction: string, isExclusive: boolean): string | null {
  if (fraction === '') return isExclusive ? null : '( "." "0"{1,8} )?'
  const choices = isExclusive ? [] : [`"${fraction}" "0"{0,8}`]
  for (const [at, digit] of Array.from(fraction, Number).entries()) {
    if (digit > 0) choices.push(`"${fraction.slice(0, at)}" [0-${digit - 1}] [0-9]{0,8}`)
  }
  return `( "." ${alternatives(choices)} )?`
}

/** Fractions between two bounds that have the same integer part. */
function fractionBetween(
  low: string,
  high: string,
  near: { readonly isExclusive: boolean },
  far: { readonly isExclusive: boolean },
): string {
  if (low === high && (near.isExclusive || far.isExclusive)) {
    throw impossible('no number is between the bounds')
  }
  const longest = Math.max(low.length, high.length) + 2
  if (longest > 9) throw new Error('the bounds of a number are too close')
  const choices: string[] = []
  for (let length = 1; length <= longest; length++) {
    const from = scaled(low, length)
    const to = scaled(high, length)
    const first = from.isExact && !near.isExclusive ? from.value : from.value + 1
    const last = to.isExact && far.isExclusive ? to.value - 1 : to.value
    const pad = (value: number): string => String(value).padStart(length, '0')
    if (first <= last) choices.push(sameLength(pad(first), pad(last)))
  }
  const fractions = `"." ${alternatives(choices)}`
  return low === '' && !near.isExclusive ? `( ${fractions} )?` : fractions
}

/** The first digits of a fraction as an integer, and whether there are no further digits. */
function scaled(fraction: string, length: number) {
  const value = Number(fraction.slice(0, length).padEnd(length, '0'))
  return { value, isExact: fraction.length <= length }
}

const alternatives = (choices: readonly string[]): string =>
  choices.length === 1 ? choices.join('') : `( ${choices.join(' | ')} )`
