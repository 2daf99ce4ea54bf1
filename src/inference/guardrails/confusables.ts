/** Reduces a text to plain letters, so that unusual spellings cannot hide a phrase. */

import { lookAlikeRows } from './look-alikes.ts'

export interface NormalizedText {
  /**
   * Only letters. Each character that resembles a Latin letter is replaced by that letter in lower
   * case, folded by `foldLatin`.
   */
  readonly text: string
  /** For each letter of `text`, the index of its character in the original text. */
  readonly origins: Readonly<Uint32Array>
}

/** Replaces `l` by `i`, because I, l, 1 and | look alike. */
export const foldLatin = (letters: string): string => letters.replaceAll('l', 'i')

/** Digits and punctuation that are used as letters, each followed by the letter it resembles. */
const lookAlikes = '0o1i3e4a5s7t@a$s!i|i'

/**
 * Tables by ASCII code. `letters` has the lower-case letter, `looks` the letter that a digit or
 * punctuation mark resembles; 0 if there is none.
 */
const letters = new Uint8Array(128)
const looks = new Uint8Array(128)
for (const letter of 'abcdefghijklmnopqrstuvwxyz') {
  const folded = foldLatin(letter).charCodeAt(0)
  letters[letter.charCodeAt(0)] = folded
  letters[letter.toUpperCase().charCodeAt(0)] = folded
}
for (let at = 0; at < lookAlikes.length; at += 2) {
  looks[lookAlikes.charCodeAt(at)] = lookAlikes.charCodeAt(at + 1)
}

/** The Latin letters that other characters resemble. */
const latinTwins = new Map(
  lookAlikeRows.split('\n').flatMap((row) => {
    const [latin = '', ...codes] = row.split(' ')
    return codes.map((code) => [String.fromCodePoint(parseInt(code, 16)), latin])
  }),
)

/**
 * Removes compatibility forms, case, accents, invisible characters, white space and punctuation,
 * and replaces digits that are used as letters. Processes the characters from `from` to before
 * `to`; neighbours outside only decide whether a digit counts as a letter. Texts may have megabytes
 * and block the event loop, so each character takes one table look-up, and the result is written to
 * flat arrays.
 */
export function normalizeConfusables(text: string, from = 0, to = text.length): NormalizedText {
  let room = to - from
  let codes = new Uint16Array(room)
  let origins = new Uint32Array(room)
  let length = 0
  let isLatin = true
  for (let at = from; at < to; at++) {
    const code = text.charCodeAt(at)
    if (code < 128) {
      const letter = letters[code] || (looks[code] && lookOf(text, at, code))
      if (letter) {
        codes[length] = letter
        origins[length++] = at
      }
      continue
    }
    const whole = text.codePointAt(at) ?? code
    const letter = known[whole] || learn(whole)
    if (letter > several) {
      isLatin &&= letter < 128
      codes[length] = letter
      origins[length++] = at
    } else if (letter === several) {
      const found = expansions.get(whole) ?? nothing
      isLatin = false
      // The arrays must have room for one letter per remaining character.
      if (length + found.length + to - at > room) {
        room += room + longest
        codes = grown(codes, new Uint16Array(room))
        origins = grown(origins, new Uint32Array(room))
      }
      for (let index = 0; index < found.length; index++) {
        codes[length] = found[index] ?? 0
        origins[length++] = at
      }
    }
    if (whole > 0xff_ff) at += 1
  }
  return { text: toText(codes.subarray(0, length), isLatin), origins: origins.subarray(0, length) }
}

function grown<T extends Uint16Array | Uint32Array>(from: T, into: T): T {
  into.set(from)
  return into
}

/** Uses Latin-1 if possible: such a string takes half the memory and is searched faster. */
function toText(codes: Uint16Array, isLatin: boolean): string {
  if (isLatin) return Buffer.from(new Uint8Array(codes).buffer).toString('latin1')
  return Buffer.from(codes.buffer, codes.byteOffset, codes.byteLength).toString('utf16le')
}

/** The letter that a character stands for, or 0. `!` and `|` must be between two letters. */
function lookOf(text: string, at: number, code: number): number {
  const look = looks[code] ?? 0
  if (look === 0) return 0
  const isAfter = hasLetter(text, at, -1)
  const isBefore = hasLetter(text, at, 1)
  const endsSentences = code === exclamationMark || code === bar
  return (endsSentences ? isAfter && isBefore : isAfter || isBefore) ? look : 0
}

const exclamationMark = 33
const bar = 124
const maxInARow = 3

/**
 * Whether a letter is next to the position, possibly after a few characters that resemble letters.
 */
function hasLetter(text: string, at: number, direction: 1 | -1): boolean {
  for (let distance = 1; distance <= maxInARow; distance++) {
    const code = text.charCodeAt(at + direction * distance)
    if ((letters[code] ?? 0) > 0) return true
    if ((looks[code] ?? 0) === 0) return false
  }
  return false
}

/** A cache of the letter for each code point, or `none` or `several`; 0 if not computed yet. */
const known = new Uint16Array(0x11_00_00)
const none = 1
const several = 2
/** The letters of code points marked `several`: Hangul, ligatures, and letters beyond 16 bits. */
const expansions = new Map<number, Uint16Array>()
const nothing = new Uint16Array()
/**
 * The maximum number of letters kept per character. U+FDFA expands to 15 letters; none of them
 * occurs in a phrase, and no phrase allows a gap of this length.
 */
const longest = 8

/** From this code point on, there are no letters, only tags and private-use characters. */
const firstEmptyPlane = 0x4_00_00
/** Whether a code point is a tag: an invisible copy of an ASCII character. */
const isTag = (code: number): boolean => code >= 0xe_00_20 && code <= 0xe_00_7e

function learn(code: number): number {
  const found = code < firstEmptyPlane || isTag(code) ? foreignLetters(code) : ''
  if (found.length < 2) return (known[code] = found === '' ? none : found.charCodeAt(0))
  const units = found.slice(0, longest).split('')
  expansions.set(
    code,
    Uint16Array.from(units, (unit) => unit.charCodeAt(0)),
  )
  return (known[code] = several)
}

function foreignLetters(code: number): string {
  const shown = String.fromCodePoint(isTag(code) ? code - 0xe_00_00 : code)
  const own = latinTwins.get(shown)
  if (own !== undefined) return foldLatin(own)
  const plain = shown.normalize('NFKD').replaceAll(/[^\p{L}]/gu, '')
  return foldLatin(Array.from(plain, latinOf).join(''))
}

/** Tries the capital letter first: Ν looks like N, but its lower case ν looks like v. */
function latinOf(letter: string): string {
  const lower = letter.toLowerCase()
  return latinTwins.get(letter) ?? latinTwins.get(lower) ?? lower
}
