/**
 * Templates of lines. A template is cut from a line that the formatter of the record has made for
 * sample values, so that templates and other lines have one format.
 */

import { newUuid } from '../../foundation/ids.ts'

/**
 * The kinds of holes. A hole is the place of a value in a template. The first three kinds have a
 * fixed width.
 */
export const holeKinds = { eventId: 0, spanId: 1, time: 2, uid: 3, number: 4, text: 5 } as const
type HoleKind = (typeof holeKinds)[keyof typeof holeKinds]

/** A sample value in a line, and the index of the frame's value that replaces it. */
export interface Sample {
  readonly text: string
  readonly kind: HoleKind
  readonly value: number
}

/** Text with holes of fixed width, followed by a hole of variable width or by the line's end. */
export interface Segment {
  readonly text: string
  readonly holes: readonly {
    readonly at: number
    readonly kind: HoleKind
    readonly value: number
  }[]
  readonly next: { readonly kind: HoleKind; readonly value: number } | null
}

/**
 * Times in this range have ten digits before the point. Seven digits after the point identify them
 * exactly, because neighboring numbers differ by more than 0.0000001.
 */
export const isTemplateTime = (time: number): boolean => time >= 1e9 && time < 2 ** 32
export const timeDigits = 18

/** Returns distinct times whose JSON text has the width of a hole. */
function createSampleTimes(count: number): number[] {
  const times: number[] = []
  for (let time = 1_500_000_000.123_456_7; times.length < count; time += 1.000_123_4) {
    if (String(time).length === timeDigits) times.push(time)
  }
  return times
}

const maxTimes = 4
const sampleId = newUuid()
/** Values for the line that a template is cut from. No application data contains them. */
export const samples = {
  times: createSampleTimes(maxTimes),
  eventId: newUuid(),
  spanId: newUuid().slice(16),
  uid: `uid-${sampleId}`,
  /**
   * The name of a placeholder attribute, the last one in the sample line. A hole replaces the whole
   * attribute and the comma before it.
   */
  ownName: `own-${sampleId}`,
  seconds: 0.123_456_789_012_345,
}

/** Cuts a template from a line. Returns `null` if a sample does not occur exactly once. */
export function cutTemplate(line: string, expected: readonly Sample[]): Segment[] | null {
  const found = expected.map((sample) => ({ ...sample, from: line.indexOf(sample.text) }))
  const isOnce = found.every(({ from, text }) => from !== -1 && line.indexOf(text, from + 1) === -1)
  if (!isOnce) return null
  const segments: Segment[] = []
  let holes: { at: number; kind: HoleKind; value: number }[] = []
  let start = 0
  for (const { from, text, kind, value } of found.toSorted((a, b) => a.from - b.from)) {
    if (kind <= holeKinds.time) {
      holes.push({ at: Buffer.byteLength(line.slice(start, from)), kind, value })
      continue
    }
    segments.push({ text: line.slice(start, from), holes, next: { kind, value } })
    holes = []
    start = from + text.length
  }
  segments.push({ text: line.slice(start), holes, next: null })
  return segments
}
