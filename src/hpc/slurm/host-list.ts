/** Parses Slurm's host list expressions, such as `n[01-03,7],gpu4`. Pure. */

import { ValueError } from '../../foundation/errors.ts'

/** More than any machine has: a wrong expression must not exhaust the memory. */
const maxHosts = 65_536

/** The names in the order of the expression. Throws a `ValueError` if it is not a host list. */
export function parseHostList(text: string): string[] {
  const names = splitEntries(text).flatMap((entry) => expand(entry, text))
  if (names.length > maxHosts) throw notAHostList(text, `more than ${maxHosts} hosts`)
  return names
}

/** Splits at commas outside of brackets. */
function splitEntries(text: string): string[] {
  const entries = ['']
  let isInBrackets = false
  for (const character of text) {
    if (character === '[' || character === ']') {
      if (isInBrackets === (character === '['))
        throw notAHostList(text, 'its brackets do not match')
      isInBrackets = character === '['
    }
    if (character === ',' && !isInBrackets) entries.push('')
    else entries[entries.length - 1] += character
  }
  if (isInBrackets) throw notAHostList(text, 'its brackets do not match')
  return entries
}

/** A name may have several brackets: `rack[1-2]n[01-16]`. */
function expand(entry: string, text: string): string[] {
  const match = /^([^[]*)\[([^\]]*)\](.*)$/s.exec(entry)
  if (match === null) {
    if (!/^[\w.-]+$/.test(entry)) throw notAHostList(text, `"${entry}" is no name of a host`)
    return [entry]
  }
  const [, before = '', ranges = '', after = ''] = match
  const numbers = ranges.split(',').flatMap((range) => expandRange(range, text))
  const rest = after === '' ? [''] : expand(after, text)
  if (numbers.length * rest.length > maxHosts) {
    throw notAHostList(text, `more than ${maxHosts} hosts`)
  }
  if (!/^[\w.-]*$/.test(before)) throw notAHostList(text, `"${before}" is no name of a host`)
  return numbers.flatMap((number) => rest.map((end) => `${before}${number}${end}`))
}

/** Leading zeros are part of the name. */
function expandRange(range: string, text: string): string[] {
  const match = /^(\d{1,9})(?:-(\d{1,9}))?$/.exec(range)
  if (match === null) throw notAHostList(text, `"${range}" is no range of numbers`)
  const [, low = '', high = low] = match
  const count = Number(high) - Number(low) + 1
  if (count < 1) throw notAHostList(text, `"${range}" is no range of numbers`)
  if (count > maxHosts) throw notAHostList(text, `more than ${maxHosts} hosts`)
  return Array.from({ length: count }, (_, at) =>
    String(Number(low) + at).padStart(low.length, '0'),
  )
}

const notAHostList = (text: string, why: string): ValueError =>
  new ValueError(`a list of hosts cannot be read: ${why}: ${JSON.stringify(text)}`, {
    expected: 'a list such as n[01-03,7],gpu4',
    got: text,
  })
