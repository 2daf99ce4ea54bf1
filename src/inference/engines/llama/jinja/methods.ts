/** The methods of strings, lists and dicts that templates call. */

import { fail, spend, spendChars, spendItems, spendSearch } from './limits.ts'
import { formatText } from './text-format.ts'
import {
  Callable,
  Dict,
  isEqual,
  iterate,
  type NamedArguments,
  asNumber,
  spendFor,
  asText,
  toKey,
  toRepr,
  Tuple,
  Undefined,
  type Value,
  valueOr,
} from './values.ts'

type Method<T> = (of: T, args: readonly Value[], named: NamedArguments) => Value

export function findMethod(of: Value, name: string): Callable | undefined {
  const text = asText(of)
  if (text !== null) return bindMethod(textMethods, name, text, of)
  if (Array.isArray(of))
    return bindMethod(listMethods, name, of, constantTimeMethods.has(name) ? null : of)
  return of instanceof Dict
    ? bindMethod(dictMethods, name, of, constantTimeMethods.has(name) ? null : of)
    : undefined
}

const constantTimeMethods = new Set('append extend get setdefault update'.split(' '))

/** Each call is charged for `read`, the value that it iterates over. */
function bindMethod<T>(
  methods: Readonly<Record<string, Method<T>>>,
  name: string,
  of: T,
  read: Value,
): Callable | undefined {
  const method = Object.hasOwn(methods, name) ? methods[name] : undefined
  if (method === undefined) return undefined
  return new Callable(name, (args, named) => {
    spendFor(read)
    return method(of, args, named)
  })
}

const optionalText = (value: Value | undefined): string | null =>
  value === undefined || value === null ? null : asText(value)

function expectText(value: Value | undefined, what: string): string {
  const text = value === undefined ? null : asText(value)
  return text ?? fail(`${what} must be a text`)
}

/** Returns `otherwise` if the value is not a number. */
export const toInteger = (value: Value | undefined, otherwise: number): number =>
  value === undefined || value === null ? otherwise : (asNumber(value) ?? otherwise)

/** Characters that are white space in Python but not in JavaScript. */
const pythonSpaces: ReadonlySet<string> = new Set('\u001C\u001D\u001E\u001F\u0085')
const isSpace = (letter: string): boolean =>
  letter !== '\uFEFF' && (/\s/.test(letter) || pythonSpaces.has(letter))

const letterAt = (text: string, at: number): string =>
  String.fromCodePoint(text.codePointAt(at) ?? 0)

function letterBefore(text: string, end: number): string {
  const pair = letterAt(text, end - 2)
  return end > 1 && pair.length === 2 ? pair : (text[end - 1] ?? '')
}

export function stripText(
  text: string,
  letters: string | null,
  sides: 'both' | 'left' | 'right',
): string {
  const set = letters === null ? null : new Set(letters)
  const isRemoved = (letter: string): boolean => set?.has(letter) ?? isSpace(letter)
  let from = 0
  let to = text.length
  const first = (): string => letterAt(text, from)
  const last = (): string => letterBefore(text, to)
  if (sides !== 'right') while (from < to && isRemoved(first())) from += first().length
  if (sides !== 'left') while (to > from && isRemoved(last())) to -= last().length
  spendItems(from + text.length - to)
  return text.slice(from, to)
}

function splitText(text: string, separator: string | null, max: number): string[] {
  if (separator === '') fail('empty separator')
  if (separator !== null) {
    const parts = text.split(separator)
    if (max < 0 || parts.length <= max + 1) return parts
    return [...parts.slice(0, max), parts.slice(max).join(separator)]
  }
  const parts: string[] = []
  let from = text.length - stripText(text, null, 'left').length
  const limit = max < 0 ? Infinity : max
  for (let at = from; at < text.length && parts.length < limit; at++) {
    if (!isSpace(text[at] ?? '')) continue
    parts.push(text.slice(from, at))
    while (at < text.length && isSpace(text[at] ?? '')) at++
    from = at
  }
  const rest = text.slice(from)
  if (rest !== '') parts.push(rest)
  return parts
}

const splitOptions = (args: readonly Value[], named: NamedArguments): [string | null, number] => [
  optionalText(args[0] ?? named.get('sep')),
  toInteger(args[1] ?? named.get('maxsplit'), -1),
]

function hasAffix(text: string, given: Value | undefined, how: 'startsWith' | 'endsWith') {
  const choices = given instanceof Tuple ? [...given] : [given]
  return choices.some((choice) => text[how](expectText(choice, 'what a text is compared with')))
}

export const capitalize = (text: string): string => {
  const [head = '', ...rest] = Array.from(text)
  return head.toUpperCase() + rest.join('').toLowerCase()
}

function capitalizeWord(text: string): string {
  spend(1)
  return capitalize(text)
}

/** Like Jinja's filter `title`. A word begins only after spaces, hyphens and opening brackets. */
export const titleCaseWords = (text: string): string =>
  // oxlint-disable-next-line no-control-regex -- these are white space in Python
  text.replaceAll(/[^-\p{White_Space}\u001C-\u001F({[<]+/gu, capitalizeWord)

const matchesAll = (text: string, pattern: RegExp): boolean => text !== '' && pattern.test(text)

function expectSearchText(text: string, given: Value | undefined): string {
  const part = expectText(given, 'what is searched')
  spendSearch(text, part)
  return part
}

export function joinTexts(texts: readonly string[], by: string): string {
  spendChars(texts.reduce((sum, { length }) => sum + length + by.length, 0))
  return texts.join(by)
}

const textMethods: Readonly<Record<string, Method<string>>> = {
  upper: (text) => text.toUpperCase(),
  lower: (text) => text.toLowerCase(),
  capitalize: (text) => capitalize(text),
  strip: (text, [letters]) => stripText(text, optionalText(letters), 'both'),
  lstrip: (text, [letters]) => stripText(text, optionalText(letters), 'left'),
  rstrip: (text, [letters]) => stripText(text, optionalText(letters), 'right'),
  split: (text, args, named) => splitText(text, ...splitOptions(args, named)),
  startswith: (text, [given]) => hasAffix(text, given, 'startsWith'),
  endswith: (text, [given]) => hasAffix(text, given, 'endsWith'),
  replace: (text, [from, to, count]) =>
    replaceText(text, expectText(from, 'from'), expectText(to, 'to'), toInteger(count, -1)),
  join: (text, [items]) =>
    joinTexts(
      iterate(items ?? null).map((item) => expectText(item, 'an item that is joined')),
      text,
    ),
  find: (text, [part]) => text.indexOf(expectSearchText(text, part)),
  rfind: (text, [part]) => text.lastIndexOf(expectSearchText(text, part)),
  count: (text, [part]) => {
    const { length } = text.split(expectSearchText(text, part))
    spendItems(length)
    return length - 1
  },
  format: formatText,
  isdigit: (text) => matchesAll(text, /^\d+$/),
  isnumeric: (text) => matchesAll(text, /^\p{N}+$/u),
  isalpha: (text) => matchesAll(text, /^\p{L}+$/u),
  isalnum: (text) => matchesAll(text, /^[\p{L}\p{N}]+$/u),
  isspace: (text) => matchesAll(text, /^\s+$/),
  isupper: (text) => text !== text.toLowerCase() && text === text.toUpperCase(),
  islower: (text) => text !== text.toUpperCase() && text === text.toLowerCase(),
  removeprefix: (text, [part]) => {
    const prefix = expectText(part, 'a prefix')
    return text.startsWith(prefix) ? text.slice(prefix.length) : text
  },
  removesuffix: (text, [part]) => {
    const suffix = expectText(part, 'a suffix')
    return text.endsWith(suffix) ? text.slice(0, text.length - suffix.length) : text
  },
}

export function replaceText(text: string, from: string, to: string, count: number): string {
  if (count < 0) {
    spendSearch(text, from)
    return joinTexts(from === '' ? ['', ...Array.from(text), ''] : text.split(from), to)
  }
  let rest = text
  let done = ''
  for (let left = count; left > 0; left--) {
    spend(1)
    const at = rest.indexOf(from)
    if (at === -1 || (from === '' && rest === '')) break
    done += rest.slice(0, at) + to
    rest = rest.slice(at + from.length)
  }
  return done + rest
}

const listMethods: Readonly<Record<string, Method<Value[]>>> = {
  append: (list, [item = null]) => {
    list.push(item)
    return null
  },
  extend: (list, [items = null]) => {
    // A list may be extended by itself, so the items are copied.
    const added = iterate(items).slice()
    for (const item of added) list.push(item)
    return null
  },
  insert: (list, [at, item = null]) => {
    list.splice(toInteger(at, 0), 0, item)
    return null
  },
  pop: (list, [at]) => {
    const [item] = list.splice(toInteger(at, -1), 1)
    return item === undefined ? fail('pop from empty list') : item
  },
  remove: (list, [item = null]) => {
    list.splice(findIndexOf(list, item, 'list.remove(x): x not in list'), 1)
    return null
  },
  reverse: (list) => {
    list.reverse()
    return null
  },
  copy: (list) => [...list],
  index: (list, [item = null]) => findIndexOf(list, item, 'the value is not in the list'),
  count: (list, [item = null]) => list.filter((other) => isEqual(item, other)).length,
}

function findIndexOf(list: readonly Value[], item: Value, message: string): number {
  const at = list.findIndex((other) => isEqual(item, other))
  return at === -1 ? fail(message) : at
}

const dictMethods: Readonly<Record<string, Method<Dict>>> = {
  items: (dict) => Array.from(dict, (entry) => Tuple.from(entry)),
  keys: (dict) => [...dict.keys()],
  values: (dict) => [...dict.values()],
  get: (dict, [key = null, otherwise = null], named) => {
    if (key instanceof Undefined) return otherwise
    return valueOr(dict.get(toKey(key)), valueOr(named.get('default'), otherwise))
  },
  pop: (dict, [key = null, otherwise]) => {
    const found = dict.has(toKey(key)) ? dict.get(toKey(key)) : otherwise
    dict.delete(toKey(key))
    return found === undefined ? fail(toRepr(key)) : found
  },
  update: (dict, [other], named) => {
    if (other instanceof Dict) for (const [key, value] of other) dict.set(key, value)
    for (const [key, value] of named) dict.set(key, value)
    return null
  },
  setdefault: (dict, [key = null, value = null]) => {
    const found = dict.get(toKey(key))
    if (found === undefined) dict.set(toKey(key), value)
    return valueOr(found, value)
  },
  copy: (dict) => new Dict(dict),
}
