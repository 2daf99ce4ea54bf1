/** GBNF expressions for JSON numbers between bounds. Pure. */

import { joinChoices } from './pattern-grammar.ts'
import { impossibleSchema } from './schema-keywords.ts'

export interface NumberBounds {
  readonly min: number | null
  readonly max: number | null
  readonly isMinExclusive: boolean
  readonly isMaxExclusive: boolean
}

const maxDigits = 15
const repeatDigits = (min: number, max: number): string =>
  max <= 0 ? '' : min === max ? `[0-9]{${max}}` : `[0-9]{${min},${max}}`

export function integerGrammar(bounds: NumberBounds): string {
  const min = lowestInteger(bounds)
  const max = highestInteger(bounds)
  if (min === null && max === null) return 'integer'
  if ((min ?? -Infinity) > (max ?? Infinity))
    throw impossibleSchema('no integer is between the bounds')
  const choices: string[] = []
  if (min === null || min < 0) {
    const far = min === null ? null : -min
    const near = max === null || max >= 0 ? 1 : -max
    choices.push(`"-" ( ${integersBetween(near, far)} )`)
  }
  if (max === null || max >= 0) choices.push(integersBetween(Math.max(0, min ?? 0), max))
  return joinChoices(choices)
}

function lowestInteger({ min, isMinExclusive }: NumberBounds): number | null {
  if (min === null) return null
  return isMinExclusive && Number.isInteger(min) ? min + 1 : Math.ceil(min)
}

function highestInteger({ max, isMaxExclusive }: NumberBounds): number | null {
  if (max === null) return null
  return isMaxExclusive && Number.isInteger(max) ? max - 1 : Math.floor(max)
}

/** Matches non-negative integers. `to` is `null` if there is no upper bound. */
function integersBetween(from: number, to: number | null): string {
  const low = String(from)
  if (low.length > maxDigits || String(to ?? 0).length > maxDigits) {
    throw new Error(`bounds of numbers may have ${maxDigits} digits`)
  }
  const choices: string[] = []
  const longest = to === null ? maxDigits : String(to).length
  for (let length = low.length; length <= longest; length++) {
    const first = length === low.length ? low : `1${'0'.repeat(length - 1)}`
    const isLast = to !== null && length === longest
    choices.push(digitsBetween(first, isLast ? String(to) : '9'.repeat(length)))
    if (to === null && length === low.length) {
      if (length < maxDigits) choices.push(`[1-9] ${repeatDigits(length, maxDigits - 1)}`)
      break
    }
  }
  return joinChoices(choices)
}

function digitsBetween(low: string, high: string): string {
  if (low === high) return `"${low}"`
  let sharedLength = 0
  while (low[sharedLength] === high[sharedLength]) sharedLength++
  const prefix = low.slice(0, sharedLength)
  const [a, b] = [Number(low[sharedLength]), Number(high[sharedLength])]
  const rest = low.length - sharedLength - 1
  const [lowRest, highRest] = [low.slice(sharedLength + 1), high.slice(sharedLength + 1)]
  const isAll = /^0*$/.test(lowRest) && /^9*$/.test(highRest)
  const head = prefix === '' ? '' : `"${prefix}" `
  if (isAll) return `${head}[${a}-${b}] ${repeatDigits(rest, rest)}`.trim()
  const choices = [`"${a}" ${digitsBetween(lowRest, '9'.repeat(rest))}`]
  if (b - a > 1) choices.push(`[${a + 1}-${b - 1}] ${repeatDigits(rest, rest)}`)
  choices.push(`"${b}" ${digitsBetween('0'.repeat(rest), highRest)}`)
  return head + joinChoices(choices)
}

/** With a bound, generated numbers have no exponent. Throws if no number is between the bounds. */
export function numberGrammar(bounds: NumberBounds): string {
  const { min, max, isMinExclusive, isMaxExclusive } = bounds
  if (min === null && max === null) return 'number'
  if ((min ?? -Infinity) > (max ?? Infinity))
    throw impossibleSchema('no number is between the bounds')
  const choices: string[] = []
  if (min === null || min < 0) {
    const far = { value: min === null ? null : -min, isExclusive: isMinExclusive }
    const near = {
      value: Math.max(0, -(max ?? 0)),
      isExclusive: max === null || max >= 0 || isMaxExclusive,
    }
    choices.push(`"-" ( ${unsignedNumbers(near, far)} )`)
  }
  if (max === null || max >= 0) {
    const near = {
      value: Math.max(0, min ?? 0),
      isExclusive: min !== null && min >= 0 && isMinExclusive,
    }
    const far = { value: max, isExclusive: isMaxExclusive }
    if (max === null || max > near.value || !(near.isExclusive || isMaxExclusive)) {
      choices.push(unsignedNumbers(near, far))
    }
  }
  if (choices.length === 0) throw impossibleSchema('no number is between the bounds')
  return joinChoices(choices)
}

interface Bound<T> {
  readonly value: T
  readonly isExclusive: boolean
}

function unsignedNumbers(near: Bound<number>, far: Bound<number | null>): string {
  const [low, lowFraction] = splitFraction(near.value)
  const choices: string[] = []
  if (far.value === null) {
    choices.push(`"${low}" ${fractionFrom(lowFraction, near.isExclusive)}`)
    choices.push(`( ${integersBetween(low + 1, null)} ) ${anyFraction}`)
    return joinChoices(choices)
  }
  const [high, highFraction] = splitFraction(far.value)
  if (low === high) {
    const whole = fractionBetween(lowFraction, highFraction, near, far)
    return `"${low}" ${whole}`
  }
  choices.push(`"${low}" ${fractionFrom(lowFraction, near.isExclusive)}`)
  if (high - low > 1) choices.push(`( ${integersBetween(low + 1, high - 1)} ) ${anyFraction}`)
  const last = fractionTo(highFraction, far.isExclusive)
  if (last !== null) choices.push(`"${high}" ${last}`)
  return joinChoices(choices)
}

const anyFraction = '( "." [0-9]{1,15} )?'

function splitFraction(value: number): readonly [number, string] {
  const text = /e/.test(String(value)) ? value.toFixed(maxDigits) : String(value)
  const [whole = '0', fraction = ''] = text.split('.')
  return [Number(whole), fraction.replace(/0+$/, '')]
}

function fractionFrom(fraction: string, isExclusive: boolean): string {
  if (fraction === '') return isExclusive ? '"." [0-9]{0,14} [1-9]' : anyFraction
  const choices = [isExclusive ? `"${fraction}" [0-9]{0,8} [1-9]` : `"${fraction}" [0-9]{0,8}`]
  for (const [at, digit] of Array.from(fraction, Number).entries()) {
    if (digit < 9) choices.push(`"${fraction.slice(0, at)}" [${digit + 1}-9] [0-9]{0,8}`)
  }
  return `"." ${joinChoices(choices)}`
}

function fractionTo(fraction: string, isExclusive: boolean): string | null {
  if (fraction === '') return isExclusive ? null : '( "." "0"{1,8} )?'
  const choices = isExclusive ? [] : [`"${fraction}" "0"{0,8}`]
  for (const [at, digit] of Array.from(fraction, Number).entries()) {
    if (digit > 0) choices.push(`"${fraction.slice(0, at)}" [0-${digit - 1}] [0-9]{0,8}`)
  }
  return `( "." ${joinChoices(choices)} )?`
}

function fractionBetween(
  low: string,
  high: string,
  near: { readonly isExclusive: boolean },
  far: { readonly isExclusive: boolean },
): string {
  if (low === high && (near.isExclusive || far.isExclusive)) {
    throw impossibleSchema('no number is between the bounds')
  }
  const longest = Math.max(low.length, high.length) + 2
  if (longest > 9) throw new Error('the bounds of a number are too close')
  const choices: string[] = []
  for (let length = 1; length <= longest; length++) {
    const from = leadingDigits(low, length)
    const to = leadingDigits(high, length)
    const first = from.isExact && !near.isExclusive ? from.value : from.value + 1
    const last = to.isExact && far.isExclusive ? to.value - 1 : to.value
    const pad = (value: number): string => String(value).padStart(length, '0')
    if (first <= last) choices.push(digitsBetween(pad(first), pad(last)))
  }
  const fractions = `"." ${joinChoices(choices)}`
  return low === '' && !near.isExclusive ? `( ${fractions} )?` : fractions
}

function leadingDigits(fraction: string, length: number) {
  const value = Number(fraction.slice(0, length).padEnd(length, '0'))
  return { value, isExact: fraction.length <= length }
}
