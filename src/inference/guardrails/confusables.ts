/** Reduces a text to plain letters, so that unusual spellings cannot hide a phrase. */

import { lookAlikeRows } from './look-alikes.ts'

export interface NormalizedText {
  /** Only letters. A character that resembles a Latin letter is replaced by that letter. */
  readonly text: string
  /** For each letter of `text`, the index of its character in the original text. */
  readonly origins: Readonly<Uint32Array>
}

/** Replaces `l` by `i`, because I, l, 1 and | look alike. */
export const foldLatin = (letters: string): string => letters.replaceAll('l', 'i')

/** Digits and punctuation that are used as letters, each followed by the letter it resembles. */
const lookAlikePairs = '0o1i3e4a5s7t@a$s!i|i'

/** Two tables by ASCII code: folded letters, and the letters that other characters resemble. */
const letters = new Uint8Array(128)
const lookAlikeLetters = new Uint8Array(128)
for (const letter of 'abcdefghijklmnopqrstuvwxyz') {
  const folded = foldLatin(letter).charCodeAt(0)
  letters[letter.charCodeAt(0)] = folded
  letters[letter.toUpperCase().charCodeAt(0)] = folded
}
for (let at = 0; at < lookAlikePairs.length; at += 2) {
  lookAlikeLetters[lookAlikePairs.charCodeAt(at)] = lookAlikePairs.charCodeAt(at + 1)
}

/** The Latin letters that a character looks like. */
export const latinLookAlikes: ReadonlyMap<string, string> = new Map(
  lookAlikeRows.split('=').flatMap((part) => {
    const [latin = '', ...steps] = part.trim().split(/\s/)
    let code = 0
    return steps.map((step) => [String.fromCodePoint((code += parseInt(step, 36))), latin] as const)
  }),
)

/** Uses one table look-up per character, so that a long text does not block the event loop. */
export function normalizeConfusables(text: string, from = 0, to = text.length): NormalizedText {
  let room = to - from
  let codes = new Uint16Array(room)
  let origins = new Uint32Array(room)
  let length = 0
  let isLatin = true
  for (let at = from; at < to; at++) {
    const code = text.charCodeAt(at)
    if (code < 128) {
      const letter = letters[code] || (lookAlikeLetters[code] && resolveLookAlike(text, at, code))
      if (letter) {
        codes[length] = letter
        origins[length++] = at
      }
      continue
    }
    const whole = text.codePointAt(at) ?? code
    const letter = letterCache[whole] || cacheLetter(whole)
    if (letter > multipleLetters) {
      isLatin &&= letter < 128
      codes[length] = letter
      origins[length++] = at
    } else if (letter === multipleLetters) {
      const found = expansions.get(whole) ?? nothing
      isLatin = false
      // The arrays must have room for one letter per remaining character.
      if (length + found.length + to - at > room) {
        room += room + maxExpansion
        codes = copyInto(codes, new Uint16Array(room))
        origins = copyInto(origins, new Uint32Array(room))
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

function copyInto<T extends Uint16Array | Uint32Array>(from: T, into: T): T {
  into.set(from)
  return into
}

/** Latin-1 takes half the memory and is searched faster. */
function toText(codes: Uint16Array, isLatin: boolean): string {
  if (isLatin) return Buffer.from(new Uint8Array(codes).buffer).toString('latin1')
  return Buffer.from(codes.buffer, codes.byteOffset, codes.byteLength).toString('utf16le')
}

/**
 * Returns the letter that a character resembles; 0 if there is no letter next to the character. `!`
 * and `|` need letters on both sides.
 */
function resolveLookAlike(text: string, at: number, code: number): number {
  const resembled = lookAlikeLetters[code] ?? 0
  if (resembled === 0) return 0
  const isAfter = hasLetterNear(text, at, -1)
  const isBefore = hasLetterNear(text, at, 1)
  const endsSentences = code === exclamationMark || code === verticalBar
  return (endsSentences ? isAfter && isBefore : isAfter || isBefore) ? resembled : 0
}

const exclamationMark = 33
const verticalBar = 124
const maxLookAlikeRun = 3

function hasLetterNear(text: string, at: number, direction: 1 | -1): boolean {
  for (let distance = 1; distance <= maxLookAlikeRun; distance++) {
    const code = text.charCodeAt(at + direction * distance)
    if ((letters[code] ?? 0) > 0) return true
    if ((lookAlikeLetters[code] ?? 0) === 0) return false
  }
  return false
}

/** The letter of each code point, `noLetter` or `multipleLetters`; 0 if it is not computed yet. */
const letterCache = new Uint16Array(0x11_00_00)
const noLetter = 1
const multipleLetters = 2
/** Code points that become several letters (Hangul, ligatures) or one beyond 16 bits. */
const expansions = new Map<number, Uint16Array>()
const nothing = new Uint16Array()
/** Longer expansions occur in no phrase: U+FDFA, for example, expands to 15 letters. */
const maxExpansion = 8

/** From this code point on, there are no letters, but only tags and private-use characters. */
const firstEmptyPlane = 0x4_00_00
/** Whether a code point is a tag: an invisible copy of an ASCII character. */
const isTag = (code: number): boolean => code >= 0xe_00_20 && code <= 0xe_00_7e

function cacheLetter(code: number): number {
  const found = code < firstEmptyPlane || isTag(code) ? toLatinLetters(code) : ''
  if (found.length < 2) return (letterCache[code] = found === '' ? noLetter : found.charCodeAt(0))
  const units = found.slice(0, maxExpansion).split('')
  expansions.set(
    code,
    Uint16Array.from(units, (unit) => unit.charCodeAt(0)),
  )
  return (letterCache[code] = multipleLetters)
}

function toLatinLetters(code: number): string {
  const character = String.fromCodePoint(isTag(code) ? code - 0xe_00_00 : code)
  const lookAlike = latinLookAlikes.get(character)
  if (lookAlike !== undefined) return foldLatin(lookAlike)
  const plain = character.normalize('NFKD').replaceAll(/[^\p{L}]/gu, '')
  return foldLatin(Array.from(plain, toLatinLetter).join(''))
}

/** Tries the capital letter first, because Ν looks like N, but its lower case ν looks like v. */
function toLatinLetter(letter: string): string {
  const lower = letter.toLowerCase()
  return latinLookAlikes.get(letter) ?? latinLookAlikes.get(lower) ?? lower
}
