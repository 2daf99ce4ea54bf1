/** The methods of strings, lists and dicts that templates call. */

import {
  Callable,
  Dict,
  isEqual,
  iterate,
  type Named,
  numberOf,
  TemplateError,
  textOf,
  toKey,
  toRepr,
  toText,
  Tuple,
  Undefined,
  type Value,
  valueOr,
} from './values.ts'

type Method<T> = (of: T, args: readonly Value[], named: Named) => Value

/** The method of a value; `undefined` if it has no method of that name. */
export function methodOf(of: Value, name: string): Callable | undefined {
  const text = textOf(of)
  if (text !== null) return bind(textMethods, name, text)
  if (Array.isArray(of)) return bind(listMethods, name, of)
  return of instanceof Dict ? bind(dictMethods, name, of) : undefined
}

function bind<T>(
  methods: Readonly<Record<string, Method<T>>>,
  name: string,
  of: T,
): Callable | undefined {
  const method = Object.hasOwn(methods, name) ? methods[name] : undefined
  if (method === undefined) return undefined
  return new Callable(name, (args, named) => method(of, args, named))
}

const optionalText = (value: Value | undefined): string | null =>
  value === undefined || value === null ? null : textOf(value)

function expectText(value: Value | undefined, what: string): string {
  const text = value === undefined ? null : textOf(value)
  if (text === null) throw new TemplateError(`${what} must be a text`)
  return text
}

const intOf = (value: Value | undefined, otherwise: number): number =>
  value === undefined || value === null ? otherwise : (numberOf(value) ?? otherwise)

/** White space in Python but not in JavaScript. */
const moreSpaces: ReadonlySet<string> = new Set('\u001C\u001D\u001E\u001F\u0085')
const isSpace = (letter: string): boolean =>
  letter !== '\uFEFF' && (/\s/.test(letter) || moreSpaces.has(letter))

export function strip(
  text: string,
  letters: string | null,
  sides: 'both' | 'left' | 'right',
): string {
  const all = Array.from(text)
  const removed = letters === null ? isSpace : (letter: string) => letters.includes(letter)
  let from = 0
  let to = all.length
  if (sides !== 'right') while (from < to && removed(all[from] ?? '')) from++
  if (sides !== 'left') while (to > from && removed(all[to - 1] ?? '')) to--
  return from === 0 && to === all.length ? text : all.slice(from, to).join('')
}

function split(text: string, separator: string | null, most: number): string[] {
  if (separator === '') throw new TemplateError('empty separator')
  if (separator !== null) {
    const parts = text.split(separator)
    if (most < 0 || parts.length <= most + 1) return parts
    return [...parts.slice(0, most), parts.slice(most).join(separator)]
  }
  const parts: string[] = []
  let rest = strip(text, null, 'left')
  const limit = most < 0 ? Infinity : most
  while (rest !== '' && parts.length < limit) {
    const end = Array.from(rest).findIndex(isSpace)
    if (end === -1) break
    const letters = Array.from(rest)
    parts.push(letters.slice(0, end).join(''))
    rest = strip(letters.slice(end).join(''), null, 'left')
  }
  if (rest !== '') parts.push(most < 0 ? strip(rest, null, 'right') : rest)
  return parts
}

function splitFromRight(text: string, separator: string | null, most: number): string[] {
  if (separator === null || most < 0) return split(text, separator, most < 0 ? -1 : most)
  const parts = text.split(separator)
  const cut = parts.length - most
  return cut <= 1 ? parts : [parts.slice(0, cut).join(separator), ...parts.slice(cut)]
}

function startsOrEnds(text: string, given: Value | undefined, how: 'startsWith' | 'endsWith') {
  const choices = given instanceof Tuple ? [...given] : [given]
  return choices.some((choice) => text[how](expectText(choice, 'what a text is compared with')))
}

const capitalize = (text: string): string => {
  const [head = '', ...rest] = Array.from(text)
  return head.toUpperCase() + rest.join('').toLowerCase()
}

export const title = (text: string): string =>
  text.replaceAll(/\p{L}+/gu, (word) => capitalize(word))

/** `'{} and {name}'.format(…)`; members in braces and format specifications are ignored. */
function format(text: string, args: readonly Value[], named: Named): string {
  let next = 0
  return text.replaceAll(
    /\{\{|\}\}|\{(\w*)((?:\.\w+|\[\w+\])*)(![sr])?(?::([^{}]*))?\}/g,
    (whole: string, key?: string, _path?: string, how?: string) => {
      if (whole === '{{' || whole === '}}') return whole.slice(1)
      const isIndex = key === undefined || key === '' || /^\d+$/.test(key)
      const at = key === undefined || key === '' ? next++ : Number(key)
      const value = isIndex ? args[at] : named.get(key)
      if (value === undefined) throw new TemplateError(`format has no value for {${key ?? ''}}`)
      return how === '!r' ? toRepr(value) : toText(value)
    },
  )
}

const isAll = (text: string, pattern: RegExp): boolean => text !== '' && pattern.test(text)

const partition = (text: string, separator: string, at: number): Value =>
  Tuple.from(
    at === -1 ? [text, '', ''] : [text.slice(0, at), separator, text.slice(at + separator.length)],
  )

const textMethods: Readonly<Record<string, Method<string>>> = {
  upper: (text) => text.toUpperCase(),
  lower: (text) => text.toLowerCase(),
  title: (text) => title(text),
  capitalize: (text) => capitalize(text),
  strip: (text, [letters]) => strip(text, optionalText(letters), 'both'),
  lstrip: (text, [letters]) => strip(text, optionalText(letters), 'left'),
  rstrip: (text, [letters]) => strip(text, optionalText(letters), 'right'),
  split: (text, [by, most], named) =>
    split(text, optionalText(by ?? named.get('sep')), intOf(most ?? named.get('maxsplit'), -1)),
  rsplit: (text, [by, most], named) =>
    splitFromRight(
      text,
      optionalText(by ?? named.get('sep')),
      intOf(most ?? named.get('maxsplit'), -1),
    ),
  splitlines: (text) => (text === '' ? [] : text.replace(/\r\n?|\n$/, '').split(/\r\n?|\n/)),
  startswith: (text, [given]) => startsOrEnds(text, given, 'startsWith'),
  endswith: (text, [given]) => startsOrEnds(text, given, 'endsWith'),
  replace: (text, [from, to, count]) =>
    replace(text, expectText(from, 'from'), expectText(to, 'to'), intOf(count, -1)),
  join: (text, [items]) =>
    iterate(items ?? null)
      .map((item) => expectText(item, 'an item that is joined'))
      .join(text),
  find: (text, [part]) => text.indexOf(expectText(part, 'what is searched')),
  rfind: (text, [part]) => text.lastIndexOf(expectText(part, 'what is searched')),
  count: (text, [part]) => text.split(expectText(part, 'what is counted')).length - 1,
  format,
  isdigit: (text) => isAll(text, /^\d+$/),
  isnumeric: (text) => isAll(text, /^\p{N}+$/u),
  isalpha: (text) => isAll(text, /^\p{L}+$/u),
  isalnum: (text) => isAll(text, /^[\p{L}\p{N}]+$/u),
  isspace: (text) => isAll(text, /^\s+$/),
  isupper: (text) => text !== text.toLowerCase() && text === text.toUpperCase(),
  islower: (text) => text !== text.toUpperCase() && text === text.toLowerCase(),
  removeprefix: (text, [part]) => {
    const prefix = expectText(part, 'a prefix')
    return text.startsWith(prefix) ? text.slice(prefix.length) : text
  },
  removesuffix: (text, [part]) => {
    const suffix = expectText(part, 'a suffix')
    return suffix !== '' && text.endsWith(suffix) ? text.slice(0, -suffix.length) : text
  },
  partition: (text, [by]) => {
    const separator = expectText(by, 'a separator')
    return partition(text, separator, text.indexOf(separator))
  },
  rpartition: (text, [by]) => {
    const separator = expectText(by, 'a separator')
    const at = text.lastIndexOf(separator)
    return at === -1 ? Tuple.from(['', '', text]) : partition(text, separator, at)
  },
  zfill: (text, [width]) => text.padStart(intOf(width, 0), '0'),
  ljust: (text, [width, by]) => text.padEnd(intOf(width, 0), optionalText(by) ?? ' '),
  rjust: (text, [width, by]) => text.padStart(intOf(width, 0), optionalText(by) ?? ' '),
}

export function replace(text: string, from: string, to: string, count: number): string {
  if (count < 0) return text.replaceAll(from, () => to)
  let rest = text
  let done = ''
  for (let left = count; left > 0; left--) {
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
    list.push(...iterate(items))
    return null
  },
  insert: (list, [at, item = null]) => {
    list.splice(intOf(at, 0), 0, item)
    return null
  },
  pop: (list, [at]) => {
    const [item] = list.splice(intOf(at, -1), 1)
    return item === undefined ? fail('pop from empty list') : item
  },
  remove: (list, [item = null]) => {
    const at = list.findIndex((other) => isEqual(item, other))
    if (at === -1) fail('list.remove(x): x not in list')
    list.splice(at, 1)
    return null
  },
  reverse: (list) => {
    list.reverse()
    return null
  },
  copy: (list) => [...list],
  index: (list, [item = null]) => {
    const at = list.findIndex((other) => isEqual(item, other))
    return at === -1 ? fail('the value is not in the list') : at
  },
  count: (list, [item = null]) => list.filter((other) => isEqual(item, other)).length,
}

function fail(message: string): never {
  throw new TemplateError(message)
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
