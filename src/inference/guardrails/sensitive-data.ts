/** What secrets and personal data look like; numbers with a checksum must also be right. */

export interface Shape {
  /** A global expression. */
  readonly pattern: RegExp
  /** How much of a match is real, in characters; 0 for nothing. Default: all of it. */
  readonly measure?: (text: string) => number
  /** See `Found.until`. */
  readonly until?: RegExp
}

/** The rest of a key, however long; the sign behind it stays. */
const endOfKey = /(?=[^\w-])/g

const keyStarts = [
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

export const secretShapes: readonly Shape[] = [
  {
    pattern: /-----BEGIN (?:[A-Z0-9]{2,12} ){0,3}PRIVATE KEY(?: BLOCK)?-----/g,
    until: /-----END [A-Z0-9 ]{0,60}-----/g,
  },
  { pattern: new RegExp(`(?<![\\w-])(?:${keyStarts.join('|')})`, 'g'), until: endOfKey },
  // A JSON web token: its two first parts begin with the letters of `{"`.
  { pattern: /(?<![\w-])eyJ[\w-]{10,160}\.eyJ[\w-]{10}/g, until: /(?=[^\w.-])/g },
]

export const personalData: readonly Shape[] = [
  {
    pattern: /(?<![\w.%+-])[\w.%+-]{1,64}@(?:[a-z\d][a-z\d-]{0,62}\.){1,5}[a-z]{2,24}(?![\w-])/gi,
  },
  { pattern: /(?<!\d)\d(?:[ -]?\d){12,18}/g, measure: cardLength },
  { pattern: /(?<![A-Za-z0-9])[A-Z]{2}\d{2}(?: ?[A-Z0-9]){11,30}/g, measure: ibanLength },
]

/** Beginnings of card numbers and how many digits follow from them. */
const cards: readonly (readonly [RegExp, readonly number[]])[] = [
  [/^4/, [19, 16, 13]],
  [/^(?:5[1-5]|2[2-7])/, [16]],
  [/^3[47]/, [15]],
  [/^3(?:0[0-5]|[68])/, [14]],
  [/^(?:6011|64[4-9]|65|62|35)/, [19, 16]],
]

function cardLength(text: string): number {
  const digits = text.replaceAll(/\D/g, '')
  const lengths = cards.find(([start]) => start.test(digits))?.[1] ?? []
  for (const length of lengths) {
    if (digits.length < length || !passesLuhn(digits.slice(0, length))) continue
    const end = lengthOf(text, length, /\d/)
    if (!/\d/.test(text.charAt(end))) return end
  }
  return 0
}

function passesLuhn(digits: string): boolean {
  let sum = 0
  for (const [at, digit] of Array.from(digits).toReversed().entries()) {
    const doubled = Number(digit) * (at % 2 === 0 ? 1 : 2)
    sum += doubled > 9 ? doubled - 9 : doubled
  }
  return sum % 10 === 0
}

/** The length of an account number says the country. */
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

function ibanLength(text: string): number {
  const length = ibanLengths.get(text.slice(0, 2)) ?? Infinity
  const compact = text.replaceAll(' ', '').slice(0, length)
  if (compact.length < length) return 0
  const end = lengthOf(text, length, /\S/)
  if (/[A-Z0-9]/.test(text.charAt(end))) return 0
  const digits = `${compact.slice(4)}${compact.slice(0, 4)}`.replaceAll(/[A-Z]/g, (letter) =>
    String(letter.charCodeAt(0) - 55),
  )
  return BigInt(digits) % 97n === 1n ? end : 0
}

/** How far the first `count` characters of a kind reach into a text. */
function lengthOf(text: string, count: number, kind: RegExp): number {
  let [end, left] = [0, count]
  while (left > 0) {
    if (kind.test(text.charAt(end))) left -= 1
    end += 1
  }
  return end
}
