/** Formats numbers, times and names as human-readable text. Pure functions. */

import { displayWidth, firstColumns, lastColumns } from '../foundation/text/display-width.ts'

/**
 * Formats seconds: `1.2 ms`, `3.4 s`, `2 m 05 s`, `1 h 02 m`; `-` for `null`. The function must not
 * refer to anything outside it, because report pages contain its source.
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

/** Formats the local time of day with milliseconds, after the date unless it is `today`. */
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

/** Formats the counts above 0, such as `2 failed` and `1 worker lost`. */
export const listCounts = (
  counts: readonly (readonly [count: number, one: string, many?: string])[],
): string[] =>
  counts.flatMap(([count, one, many = one]) => (count > 0 ? [countText(count, one, many)] : []))

/**
 * Formats a number with thousands separators. The first call of `toLocaleString` would take 40 ms.
 */
export const numberText = (count: number): string =>
  String(count).replaceAll(/\B(?=(?:\d{3})+$)/g, ',')

/** Formats a rate per second: `0.25`, `41.3`, `12,300`. */
export function rateText(rate: number): string {
  if (rate === 0) return '0'
  if (rate < 99.95) return rate.toFixed(rate < 9.995 ? 2 : 1)
  return numberText(Math.round(rate))
}

/** Formats a fraction from 0 to 1 as a whole percentage: `42 %`. */
export const percentText = (share: number): string => `${Math.round(100 * share)} %`

/** Truncates text to `max` terminal columns. Truncated text ends with `…`. */
export const cutText = (text: string, max: number): string =>
  isWithin(text, max) ? text : `${firstColumns(text, max - 1)}…`

/** Whether the text fits into `max` columns. Stops early if the text is far too long. */
const isWithin = (text: string, max: number): boolean =>
  max === Infinity || firstColumns(text, max).length === text.length

/** Truncates text in the middle, because names often differ at the end. */
export function cutMiddle(text: string, max: number): string {
  if (isWithin(text, max)) return text
  const tail = lastColumns(text, Math.floor((max - 1) / 2))
  return `${cutText(text, max - displayWidth(tail))}${tail}`
}

/** Formats the progress that a task reports, from 0 to 1, with its text: `80 % (step 7)`. */
export function progressText(fraction: number, text: string, max = 40): string {
  const shown = firstLine(text, max)
  return `${percentText(fraction)}${shown === '' ? '' : ` (${shown})`}`
}

/**
 * Escapes characters of untrusted text that are invisible or change how other text is shown, as in
 * `\u001b` or `\u{e0041}`. These are control and format characters (text direction, zero width),
 * fillers and line separators, except those in `kept`. The function must not refer to anything
 * outside it, because report pages contain its source.
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

/** Returns the first line of a message, truncated to `max` terminal columns. */
export function firstLine(text: string, max = 100): string {
  const [line = ''] = text.split('\n', 1)
  return cutText(line, max)
}

/**
 * Returns the last part of a path such as `/opt/sim` or `./sim`, which is the name of a program in
 * records of earlier versions. Keeps other names with a slash, such as `train/step`. The function
 * must not refer to anything outside it, because report pages contain its source.
 */
export function shortName(name: string): string {
  const isPath = /^(?:\.{0,2}|~)\/[^ ]*$/.test(name)
  return (isPath ? name.split('/').at(-1) : name) || name || '(no name)'
}

/** Returns a function that shortens paths to their last part, unless two would become equal. */
export function shortNames(names: Iterable<string>): (name: string) => string {
  const byShort = Map.groupBy(new Set(names), shortName)
  return (name) => ((byShort.get(shortName(name)) ?? []).length > 1 ? name : shortName(name))
}

/** Returns the name of a task, with the program in parentheses if it has a different name. */
export function nameAndProgram(name: string, program: string): string {
  const [own, other] = [shortName(name), shortName(program)]
  const isNamed = own === other || own.startsWith(`${other} `) || program === ''
  return isNamed ? own : `${own} (${other})`
}

/** Formats the first and the last time, or only one time if both have the same text. */
export function timeRangeText(from: number, to: number, today?: number): string {
  const first = timeText(from, today)
  const isOne = timeText(from, from) === timeText(to, from)
  return isOne ? first : `${first} to ${timeText(to, today ?? from)}`
}

/** Quotes a word for a POSIX shell. */
export const quoteArgument = (text: string): string =>
  /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`

/** Formats a program with its arguments in one line of at most `max` columns. */
export const commandText = (name: string, args: readonly string[], max = 500): string =>
  firstLine([name, ...args].map(quoteArgument).join(' ').replaceAll('\n', '⏎'), max)

/**
 * Matches the stack frames in which tutti calls the user's functions and closures. All later frames
 * are inside tutti. In the package, the files are bundled into chunks.
 */
const tuttiFrame = new RegExp(
  String.raw`\n\s+at [^\n]*/(?:backends/local/(?:functions/job-runner|closures)\.[jt]s|` +
    String.raw`dist/chunks/(?:worker|session|pipeline|cluster|hpc|workflow)[\w-]*\.js):\d`,
)

const frame = /\n\s+at [^\n]*/g
/** Matches stack frames of the installed package and of Node.js, and frames without a file. */
const foreignFrame = /[/\\]node_modules[/\\]tutti[/\\]|\bnode:|\(<anonymous>\)$/

/**
 * Returns the stack of a failed function up to the user's last frame, without the frames of tutti
 * below it. If there is no user frame, as in an error that tutti created, removes all frames.
 */
export function userFrames(stack: string): string {
  const { index } = tuttiFrame.exec(stack) ?? { index: stack.length }
  const userPart = stack.slice(0, index)
  const frames = userPart.match(frame) ?? []
  const last = frames.findLast((one) => !foreignFrame.test(one))
  if (last === undefined) return userPart.replaceAll(frame, '')
  return userPart.slice(0, userPart.lastIndexOf(last) + last.length)
}
