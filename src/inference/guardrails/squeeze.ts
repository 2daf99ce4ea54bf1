/** A text as its letters alone, so that no spelling trick hides a phrase. */

export interface Squeezed {
  /** Small Latin letters where there is one, other letters as they are, and nothing else. */
  readonly text: string
  /** For each letter where it comes from in the text that was squeezed. */
  readonly origins: Readonly<Uint32Array>
}

/** Signs and digits that stand for letters inside a word, with those letters. */
const lookAlikes = '0o1i3e4a5s7t@a$s!i|l'

/** The small letter of an ASCII code: as it is, or as it looks; 0 where there is none. */
const letters = new Uint8Array(128)
const looks = new Uint8Array(128)
for (const letter of 'abcdefghijklmnopqrstuvwxyz') {
  letters[letter.charCodeAt(0)] = letter.charCodeAt(0)
  letters[letter.toUpperCase().charCodeAt(0)] = letter.charCodeAt(0)
}
for (let at = 0; at < lookAlikes.length; at += 2) {
  looks[lookAlikes.charCodeAt(at)] = lookAlikes.charCodeAt(at + 1)
}

/** Cyrillic and Greek letters that look Latin. */
const latinTwins = new Map(
  'аa вb еe кk мm нh оo рp сc тt уy хx іi ѕs јj ԁd ԛq ԝw һh αa βb εe ιi κk νv οo ρp τt υu χx ηn ωw'
    .split(' ')
    .map((pair) => [pair.charAt(0), pair.charAt(1)]),
)

/**
 * Compatibility forms, case, accents, invisible signs, blanks, dots and digits for letters go.
 * Megabytes come here from anybody, and nothing else runs meanwhile: a letter costs a look into a
 * table, and what is found goes into flat arrays.
 */
export function squeeze(text: string): Squeezed {
  let room = text.length
  let codes = new Uint16Array(room)
  let origins = new Uint32Array(room)
  let length = 0
  let isLatin = true
  for (let at = 0; at < text.length; at++) {
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
      // What still has to come needs room too: one letter for each character.
      if (length + found.length + text.length - at > room) {
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

/** A text of small letters alone takes half the room, and is searched faster. */
function toText(codes: Uint16Array, isLatin: boolean): string {
  if (isLatin) return Buffer.from(new Uint8Array(codes).buffer).toString('latin1')
  return Buffer.from(codes.buffer, codes.byteOffset, codes.byteLength).toString('utf16le')
}

/** A digit beside a letter is one in disguise; a sign that ends sentences must be between two. */
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
const mostInARow = 3

/** Whether a letter stands beside it, or behind a few that are in disguise too. */
function hasLetter(text: string, at: number, direction: 1 | -1): boolean {
  for (let distance = 1; distance <= mostInARow; distance++) {
    const code = text.charCodeAt(at + direction * distance)
    if ((letters[code] ?? 0) > 0) return true
    if ((looks[code] ?? 0) === 0) return false
  }
  return false
}

/** The letter that each code point stands for, once it was seen; or one of these. */
const known = new Uint16Array(0x11_00_00)
const none = 1
const several = 2
/** For those that stand for several letters: Hangul, ligatures, and what lies beyond 16 bits. */
const expansions = new Map<number, Uint16Array>()
const nothing = new Uint16Array()
/**
 * One sign (U+FDFA) spells a whole sentence of 15 letters: the first ones do. No phrase has any of
 * them, nor a gap as long.
 */
const longest = 8

/** From here on there are tags and private signs, and no letter. */
const firstEmptyPlane = 0x4_00_00
/** An invisible copy of ASCII, for tags. */
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
  const shown = isTag(code) ? code - 0xe_00_00 : code
  const plain = String.fromCodePoint(shown)
    .normalize('NFKD')
    .toLowerCase()
    .replaceAll(/[^\p{L}]/gu, '')
  return latinTwins.get(plain) ?? plain
}
