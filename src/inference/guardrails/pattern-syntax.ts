/** Translates the syntax of JavaScript's regular expressions into that of RE2. Pure. */

export interface Translation {
  readonly source: string
  /** Matches the same, except what has to end with the text. */
  readonly sourceInside: string
  /** Whether where a text begins or ends may decide about a match in it. */
  readonly isAnchored: boolean
}

/**
 * The expression in RE2's syntax, or why it is refused. What JavaScript rejects with the flags `i`
 * and `u` is rejected here too: users meet one syntax, and RE2's extensions stay out of it.
 */
export function translatePattern(pattern: string): Translation | { readonly problem: string } {
  try {
    void new RegExp(pattern, 'iu')
  } catch (error) {
    const reason = String(error).split(': ').at(-1)
    return { problem: `expected a regular expression (${reason})` }
  }
  const atoms: string[] = []
  let isInClass = false
  for (let at = 0; at < pattern.length;) {
    const syntax: RegExp = isInClass ? classAtom : atom
    syntax.lastIndex = at
    const text: string = syntax.exec(pattern)?.[0] ?? pattern.charAt(at)
    const refused = isInClass ? undefined : unsupported(text)
    if (refused !== undefined) {
      const place = `"${text}" at character ${at + 1}`
      return { problem: `expected a regular expression without ${refused} (${place})` }
    }
    atoms.push(isInClass ? translateInClass(text) : translateAtom(text))
    isInClass = isInClass ? text !== ']' : text === '[' || text === '[^'
    at += text.length
  }
  // With the modifier `m`, a `$` also matches before a line break.
  const isMultiline = atoms.some((one) => /^\(\?[a-z]*m/.test(one))
  const inside = isMultiline ? atoms : atoms.map((one) => (one === endAnchor ? never : one))
  return {
    source: atoms.join(''),
    sourceInside: inside.join(''),
    isAnchored: atoms.some((one) => one === startAnchor || one === endAnchor),
  }
}

/** Groups of their own, so that a `^` or `$` in a class is not taken for one. */
const startAnchor = '(?:^)'
const endAnchor = '(?:$)'
const never = String.raw`[^\x00-\x{10FFFF}]`

/** With the flag `u`, JavaScript knows no other escapes. */
const escapes = [
  String.raw`\\u[dD][89abAB][\da-fA-F]{2}\\u[dD][c-fC-F][\da-fA-F]{2}`,
  String.raw`\\u(?:\{[\da-fA-F]+\}|[\da-fA-F]{4})`,
  String.raw`\\(?:k<[^>]*>|[1-9]\d*|[pP]\{[^}]*\}|x[\da-fA-F]{2}|c.|.)`,
]
const groups = [String.raw`\(\?<?[=!]`, String.raw`\(\?<[^>]*>`, String.raw`\(\?[a-z-]*:`]
const classes = [String.raw`\[\^?\]`, String.raw`\[\^?`]
const atom = new RegExp([...escapes, ...groups, ...classes, '.'].join('|'), 'suy')
const classAtom = new RegExp([...escapes, '.'].join('|'), 'suy')

function unsupported(text: string): string | undefined {
  if (/^\\(?:k<|[1-9])/.test(text)) return 'back-references'
  return /^\(\?<?[=!]/.test(text) ? 'look-around' : undefined
}

/** Groups capture nothing: no rule asks for more than the whole match. */
function translateAtom(text: string): string {
  if (text === '(' || text.startsWith('(?<')) return '(?:'
  if (text === '^') return startAnchor
  if (text === '$') return endAnchor
  if (text === '[]') return never
  if (text === '[^]') return String.raw`[\x00-\x{10FFFF}]`
  if (text === String.raw`\s`) return `[${whiteSpace}]`
  if (text === String.raw`\S`) return `[^${whiteSpace}]`
  return translateEscape(text)
}

function translateInClass(text: string): string {
  // RE2 would take it for the beginning of a POSIX class.
  if (text === '[') return String.raw`\[`
  if (text === String.raw`\b`) return String.raw`\x08`
  if (text === String.raw`\s`) return whiteSpace
  if (text === String.raw`\S`) return notWhiteSpace
  return translateEscape(text)
}

function translateEscape(text: string): string {
  if (!text.startsWith('\\')) return text
  const name = text.slice(1)
  if (name === '0') return toEscape(0)
  if (name.startsWith('c')) return toEscape(name.charCodeAt(1) % 32)
  if (/^[pP]\{/.test(name)) return text.replace(/(?:Script|sc|General_Category|gc)=/, '')
  if (!name.startsWith('u')) return text
  const [first = 0, second] = text.match(/[\da-fA-F]{2,}/g)?.map((hex) => parseInt(hex, 16)) ?? []
  if (second === undefined) return toEscape(first)
  return toEscape(0x1_00_00 + (first - 0xd8_00) * 0x4_00 + (second - 0xdc_00))
}

const toEscape = (code: number): string => String.raw`\x{${code.toString(16)}}`

/** What `\s` means in JavaScript; in RE2 it stands for five ASCII characters. */
const whiteSpace =
  String.raw`\t-\r \x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}` +
  String.raw`\x{feff}`
const notWhiteSpace =
  String.raw`\x00-\x08\x0e-\x1f!-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff}\x{200b}-\x{2027}` +
  String.raw`\x{202a}-\x{202e}\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{fefe}` +
  String.raw`\x{ff00}-\x{10ffff}`
