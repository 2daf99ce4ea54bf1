/** Formats numbers, times and names for people. Pure functions. */

import { displayWidth, firstColumns, lastColumns } from '../foundation/text/display-width.ts'

/**
 * `1.2 ms`, `3.4 s`, `2 m 05 s`, `1 h 02 m`; `-` for `null`. Refers to nothing outside, because the
 * page of a report contains its source.
 */
export function secondsText(seconds: number | null): string {
  if (seconds === null || !Number.isFinite(seconds)) return '-'
  if (seconds === 0) return '0 s'
  if (seconds < 0.9995) return `${(seconds * 1000).toFixed(seconds < 0.00995 ? 2 : 0)} ms`
  if (seconds < 59.95) return `${seconds.toFixed(seconds < 9.995 ? 2 : 1)} s`
  const whole = Math.round(seconds)
  const [hours, minutes] = [Math.floor(whole / 3600), Math.floor((whole % 3600) / 60)]
  const two = (value: number): string => String(value).padStart(2, '0')
  return hours > 0 ? `${hours} h ${two(minutes)} m` : `${minutes} m ${two(whole % 60)} s`
}

/** The local time of day with milliseconds; with the date unless it is the day of `today`. */
export function timeText(seconds: number | null, today?: number): string {
  if (seconds === null || !Number.isFinite(seconds)) return '-'
  const [date, time] = localTime(seconds)
  const isSameDay = today !== undefined && localTime(today)[0] === date
  return isSameDay ? time : `${date} ${time}`
}

function localTime(seconds: number): readonly [date: string, time: string] {
  const at = new Date(seconds * 1000)
  if (Number.isNaN(at.getTime())) return ['', String(seconds)]
  const two = (value: number): string => String(value).padStart(2, '0')
  const date = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`
  const milliseconds = String(at.getMilliseconds()).padStart(3, '0')
  const time = [at.getHours(), at.getMinutes(), at.getSeconds()].map(two).join(':')
  return [date, `${time}.${milliseconds}`]
}

export const countText = (count: number, one: string, many = `${one}s`): string =>
  `${numberText(count)} ${count === 1 ? one : many}`

/** With a comma between thousands. The first call of `toLocaleString` would take 40 ms. */
export const numberText = (count: number): string =>
  String(count).replaceAll(/\B(?=(?:\d{3})+$)/g, ',')

/** A rate per second: `0.25`, `41.3`, `12,300`. */
export function rateText(rate: number): string {
  if (rate === 0) return '0'
  if (rate < 99.95) return rate.toFixed(rate < 9.995 ? 2 : 1)
  return numberText(Math.round(rate))
}

/** A share of 1 in whole percent: `42 %`. */
export const percentText = (share: number): string => `${Math.round(100 * share)} %`

/** Cuts text to `max` columns of a terminal and marks the cut with `…`. */
export const cutText = (text: string, max: number): string =>
  isWithin(text, max) ? text : `${firstColumns(text, max - 1)}…`

/** Does not read text that is far too long to its end. */
const isWithin = (text: string, max: number): boolean =>
  max === Infinity || firstColumns(text, max).length === text.length

/** Cuts text in the middle, because names often differ at their ends. */
export function cutMiddle(text: string, max: number): string {
  if (isWithin(text, max)) return text
  const tail = lastColumns(text, Math.floor((max - 1) / 2))
  return `${cutText(text, max - displayWidth(tail))}${tail}`
}

/** The progress that a task reports, from 0 to 1, with its text: `80 % (step 7)`. */
export function progressText(fraction: number, text: string, max = 40): string {
  const shown = firstLine(text, max)
  return `${percentText(fraction)}${shown === '' ? '' : ` (${shown})`}`
}

/**
 * Untrusted text with all characters that are invisible, or that change how others are shown, as
 * escapes such as `\u001b` or `\u{e0041}`: control and format characters (text directions, zero
 * width), fillers and line separators; those in `kept` stay. The page of a report contains the
 * source of this function, so it must not refer to anything outside.
 */
export function escapeControls(text: string, kept = ''): string {
  return text.replaceAll(
    /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}]/gu,
    (character) => {
      if (kept.includes(character)) return character
      const code = (character.codePointAt(0) ?? 0).toString(16)
      return code.length > 4 ? `\\u{${code}}` : `\\u${code.padStart(4, '0')}`
    },
  )
}

/** Like `escapeControls`, but keeps line breaks. */
export const escapeLines = (text: string): string => escapeControls(text, '\n')

/** The first line of a message, cut to `max` columns of a terminal. */
export function firstLine(text: string, max = 100): string {
  const [line = ''] = text.split('\n', 1)
  return cutText(line, max)
}

/**
 * The last part of a path such as `/opt/sim` or `./sim`, which is the name of a program in records
 * of earlier versions. Other names with a slash, such as `train/step`, were given by people and
 * stay as they are. The page of a report contains the source of this function.
 */
export function shortName(name: string): string {
  const isPath = /^(?:\.{0,2}|~)\/[^ ]*$/.test(name)
  return (isPath ? name.split('/').at(-1) : name) || name || '(no name)'
}

/** Shortens paths to their last part, except those that would have the same text as another. */
export function shortNames(names: Iterable<string>): (name: string) => string {
  const byShort = Map.groupBy(new Set(names), shortName)
  return (name) => ((byShort.get(shortName(name)) ?? []).length > 1 ? name : shortName(name))
}

/** A task's name, with the program in parentheses if it is different. */
export function nameAndProgram(name: string, program: string): string {
  const [own, other] = [shortName(name), shortName(program)]
  const isNamed = own === other || own.startsWith(`${other} `) || program === ''
  return isNamed ? own : `${own} (${other})`
}

/** From the first to the last time; a single time if both have the same text. */
export function spanText(from: number, to: number, today?: number): string {
  const first = timeText(from, today)
  const isOne = timeText(from, from) === timeText(to, from)
  return isOne ? first : `${first} to ${timeText(to, today ?? from)}`
}

/** Quotes a word for a POSIX shell. */
export const quoteWord = (text: string): string =>
  /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`

/** A program with its arguments in one line of at most `max` columns. */
export const commandText = (name: string, args: readonly string[], max = 500): string =>
  firstLine([name, ...args].map(quoteWord).join(' ').replaceAll('\n', '⏎'), max)

/**
 * Frames that call functions and closures: from there on, a stack is inside tutti. In the package
 * these files are bundled into chunks.
 */
const callerFrame = new RegExp(
  String.raw`\n\s+at [^\n]*/(?:backends/local/(?:functions/job-runner|closures)\.[jt]s|` +
    String.raw`dist/chunks/(?:worker|session|pipeline|cluster|hpc|workflow)[\w-]*\.js):\d`,
)

const frame = /\n\s+at [^\n]*/g
/** Frames of the installed package, of Node.js, and without a file. */
const foreignFrame = /[/\\]node_modules[/\\]tutti[/\\]|\bnode:|\(<anonymous>\)$/

/**
 * The stack of a failed function down to the user's last frame, without tutti's own frames below
 * it. Without any frame of the user, as in an error that tutti created, all frames are removed.
 */
export function ownFrames(stack: string): string {
  const { index } = callerFrame.exec(stack) ?? { index: stack.length }
  const own = stack.slice(0, index)
  const frames = own.match(frame) ?? []
  const last = frames.findLast((one) => !foreignFrame.test(one))
  if (last === undefined) return own.replaceAll(frame, '')
  return own.slice(0, own.lastIndexOf(last) + last.length)
}
