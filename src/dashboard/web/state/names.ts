/** Formats names, colours and times like the commands and the report. */

import { computed } from '@preact/signals'
import { escapeControls, secondsText, shortNames, timeText } from '../../../views/readable.ts'
import { nameColours } from '../../../views/texts/palette.ts'
import { head, startTime } from './views.ts'

/** The maximum number of shown characters of a name. */
const maxShown = 200

/** Text of a record, safe to show: invisible characters are escaped, long text is cut. */
export function safeText(text: string, max = maxShown): string {
  const cut = text.length > max ? `${text.slice(0, max)}…` : text
  return escapeControls(cut, '\n\t')
}

const toShort = computed(() => shortNames(Object.keys(head.value?.colours ?? {})))

/** The short form of a task's name. */
export const nameText = (name: string): string => safeText(toShort.value(name)) || '(no name)'

/** The class that gives a name its colour. */
export const colourClass = (name: string): string => `c${colourIndex(name)}`

export function colourIndex(name: string): number {
  const colours = head.value?.colours ?? {}
  // The name of a task may be that of a property of every object, such as `constructor`.
  const own = Object.hasOwn(colours, name) ? colours[name] : undefined
  return (own ?? nameColours - 1) % nameColours
}

/** A time as seconds of the run, such as `12.3 s`. */
export function runTimeText(time: number): string {
  const start = startTime.value
  return start === null ? '' : secondsText(Math.max(0, time - start))
}

/** The moment of an event to the millisecond, such as `3 m 09.401 s`, as seconds of the run. */
export function momentText(time: number): string {
  const start = startTime.value
  if (start === null) return ''
  const ms = Math.max(0, Math.round((time - start) * 1000))
  const two = (value: number): string => String(value).padStart(2, '0')
  const [hours, minutes] = [Math.floor(ms / 3_600_000), Math.floor(ms / 60_000) % 60]
  const seconds = ((ms % 60_000) / 1000).toFixed(3)
  if (hours > 0) return `${hours} h ${two(minutes)} m ${seconds.padStart(6, '0')} s`
  return minutes > 0 ? `${minutes} m ${seconds.padStart(6, '0')} s` : `${seconds} s`
}

/** The time of day, with the date unless the run began on that day. */
export const clockText = (time: number): string => timeText(time, startTime.value ?? undefined)

const units = ['B', 'kB', 'MB', 'GB', 'TB'] as const

/** A size such as `2.8 GB`. */
export function bytesText(bytes: number): string {
  let [value, at] = [bytes, 0]
  while (value >= 999.5 && at < units.length - 1) {
    value /= 1000
    at++
  }
  return `${at === 0 || value >= 99.5 ? value.toFixed(0) : value.toFixed(1)} ${units[at]}`
}
