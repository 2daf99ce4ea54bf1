/** A text as its letters alone, so that no spelling trick hides a phrase. */

export interface Squeezed {
  /** Small Latin letters where there is one, other letters as they are, and nothing else. */
  readonly text: string
  /** For each letter where it comes from in the text that was squeezed. */
  readonly origins: readonly number[]
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

/** Compatibility forms, case, accents, invisible signs, blanks, dots and digits for letters go. */
export function squeeze(text: string): Squeezed {
  const codes: number[] = []
  const origins: number[] = []
  const add = (code: number, at: number): void => {
    codes.push(code)
    origins.push(at)
  }
  for (let at = 0; at < text.length; at++) {
    const code = text.charCodeAt(at)
    if (code < 128) {
      const letter = letters[code] || lookOf(text, at, code)
      if (letter > 0) add(letter, at)
      continue
    }
    const whole = text.codePointAt(at) ?? code
    const found = foreignLetters(whole)
    for (let index = 0; index < found.length; index++) add(found.charCodeAt(index), at)
    if (whole > 0xff_ff) at += 1
  }
  return { text: Buffer.from(Uint16Array.from(codes).buffer).toString('utf16le'), origins }
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

function foreignLetters(code: number): string {
  // An invisible copy of ASCII, for tags.
  const shown = code >= 0xe_00_20 && code <= 0xe_00_7e ? code - 0xe_00_00 : code
  const plain = String.fromCodePoint(shown)
    .normalize('NFKD')
    .toLowerCase()
    .replaceAll(/[^\p{L}]/gu, '')
  return latinTwins.get(plain) ?? plain
}
