/** Patterns of secrets and personal data. Bounded repetitions bound the search time. */

export interface DataPattern {
  readonly pattern: RegExp
  /** Returns how many characters of a candidate match; 0 for none. Default: all. */
  readonly matchLength?: (text: string) => number
  readonly endPattern?: RegExp
}

/** Finds the end of a key of any length, before the character that follows the key. */
const keyEnd = /(?=[^\w-])/g

const keyPrefixes = [
  String.raw`sk-[\w-]{20}`,
  String.raw`[sr]k_(?:live|test)_\w{16}`,
  String.raw`hf_[A-Za-z]\w{23}`,
  String.raw`gh[pousr]_\w{30}`,
  String.raw`github_pat_\w{30}`,
  String.raw`glpat-[\w-]{20}`,
  String.raw`npm_\w{30}`,
  String.raw`xox[abeoprs]-[\w-]{10}`,
  String.raw`AIza[\w-]{35}`,
  String.raw`A(?:KIA|SIA)[A-Z0-9]{16}`,
]

export const secretPatterns: readonly DataPattern[] = [
  {
    pattern: /-----BEGIN (?:[A-Z0-9]{2,12} ){0,3}PRIVATE KEY(?: BLOCK)?-----/g,
    endPattern: /-----END [A-Z0-9 ]{0,60}-----/g,
  },
  { pattern: new RegExp(`(?<![\\w-])(?:${keyPrefixes.join('|')})`, 'g'), endPattern: keyEnd },
  // A JSON web token. Its first two parts encode objects, so they begin with an encoded `{"`.
  { pattern: /(?<![\w-])eyJ[\w-]{10,160}\.eyJ[\w-]{10}/g, endPattern: /(?=[^\w.-])/g },
]

export const personalDataPatterns: readonly DataPattern[] = [
  {
    pattern: /(?<![\w.%+-])[\w.%+-]{1,64}@(?:[a-z\d][a-z\d-]{0,62}\.){1,5}[a-z]{2,24}(?![\w-])/gi,
  },
  { pattern: /(?<!\d)[2-6](?:[ -]?\d){12,18}/g, matchLength: findCardLength },
  { pattern: /(?<![A-Za-z0-9])[A-Z]{2}\d{2}(?: ?[A-Z0-9]){11,30}/g, matchLength: findIbanLength },
]

function cardLengths(firstFour: number): readonly number[] {
  const firstTwo = Math.trunc(firstFour / 100)
  if (firstTwo >= 40 && firstTwo <= 49) return lengths.visa
  if ((firstTwo >= 51 && firstTwo <= 55) || (firstTwo >= 22 && firstTwo <= 27))
    return lengths.mastercard
  if (firstTwo === 34 || firstTwo === 37) return lengths.amex
  if ((firstFour >= 3000 && firstFour <= 3059) || firstTwo === 36 || firstTwo === 38)
    return lengths.diners
  const isOther = firstFour === 6011 || (firstFour >= 6440 && firstFour <= 6499)
  return isOther || firstTwo === 65 || firstTwo === 62 || firstTwo === 35
    ? lengths.other
    : lengths.none
}

const lengths = {
  visa: [19, 16, 13],
  mastercard: [16],
  amex: [15],
  diners: [14],
  other: [19, 16],
  none: [],
}

/** All calls share these arrays, because every digit of a text may begin a candidate. */
const digitOffsets = new Uint16Array(19)
const digits = new Uint8Array(19)

function findCardLength(text: string): number {
  let count = 0
  for (let at = 0; at < text.length; at++) {
    const digit = text.charCodeAt(at) - zero
    if (digit < 0) continue
    digitOffsets[count] = at
    digits[count++] = digit
  }
  let firstFour = 0
  for (let at = 0; at < 4; at++) firstFour = firstFour * 10 + (digits[at] ?? 0)
  for (const length of cardLengths(firstFour)) {
    if (count < length || !passesLuhn(length)) continue
    const end = (digitOffsets[length - 1] ?? 0) + 1
    if (count === length || digitOffsets[length] !== end) return end
  }
  return 0
}

const zero = 48

function passesLuhn(length: number): boolean {
  let sum = 0
  for (let at = 0; at < length; at++) {
    const digit = digits[at] ?? 0
    const doubled = (length - at) % 2 === 1 ? digit : digit * 2
    sum += doubled > 9 ? doubled - 9 : doubled
  }
  return sum % 10 === 0
}

const ibanLengths = new Map(
  (
    'NO15 BE16 DK18 FI18 FO18 GL18 NL18 MK19 SI19 AT20 BA20 EE20 KZ20 LT20 LU20 XK20 CH21 CR22 ' +
    'HR21 LI21 LV21 BG22 BH22 DE22 GB22 GE22 IE22 ME22 RS22 AE23 GI23 IL23 IQ23 TL23 AD24 CZ24 ' +
    'ES24 MD24 PK24 RO24 SA24 SE24 SK24 TN24 VG24 PT25 IS26 TR26 FR27 GR27 IT27 MC27 MR27 SM27 ' +
    'AL28 AZ28 BY28 CY28 DO28 GT28 HU28 LB28 PL28 UA29 VA22 BR29 PS29 QA29 JO30 KW30 MU30 MT31 SC31'
  )
    .split(' ')
    .map((one) => [one.slice(0, 2), Number(one.slice(2))]),
)

function findIbanLength(text: string): number {
  const length = ibanLengths.get(text.slice(0, 2)) ?? Infinity
  let [end, count, rest] = [0, 0, 0]
  for (; count < length; end++) {
    if (end === text.length) return 0
    const code = text.charCodeAt(end)
    if (code === space) continue
    // In the checksum, the country code and the check digits come last.
    if (count++ >= 4) rest = addToRemainder(rest, code)
  }
  if (end < text.length && text.charCodeAt(end) !== space) return 0
  for (let at = 0; at < 4; at++) rest = addToRemainder(rest, text.charCodeAt(at))
  return rest === 1 ? end : 0
}

const space = 32
const letterA = 65

/** The remainder (modulo 97) after a character is appended: a letter counts as two digits. */
const addToRemainder = (rest: number, code: number): number =>
  code < letterA ? (rest * 10 + code - zero) % 97 : (rest * 100 + code - letterA + 10) % 97
