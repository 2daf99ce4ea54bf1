/**
 * Keeps a user's regular expression from taking long. JavaScript cannot interrupt one that runs, so
 * the time cap is set beforehand: what could explode is refused, every repetition is bounded, and
 * texts are looked at in short stretches.
 */

const maxLength = 512
/** `*`, `+` and `{n,}` go no further than this. */
const openEnd = 64
const maxRepeat = 128
/** A repetition beyond this counts as long. */
const short = 8
/** Ways to match that may have to be tried from one place of a text. */
const maxWays = 512

/** The expression to run, without regard to case; `findDanger` must have found none. */
export function compilePattern(source: string): RegExp {
  return new RegExp(walk(source).bounded, 'giu')
}

/** Whether what stands around a match may decide about it; also `true` where that is not sure. */
export const looksAround = (source: string): boolean => /\$|(?<!\[)\^|\(\?<?[=!]/.test(source)

/** Why an expression is refused; `undefined` when it may run. */
export function findDanger(source: string): string | undefined {
  if (source.length > maxLength) return `expected at most ${maxLength} characters`
  try {
    void new RegExp(source, 'giu')
  } catch (error) {
    const reason = String(error).split(': ').at(-1)
    return `expected a regular expression (${reason})`
  }
  const { danger } = walk(source)
  return danger === undefined ? undefined : `could take very long on some texts: ${danger}`
}

/** A part that may be taken shorter or longer. */
interface Loose {
  readonly atom: string
  readonly ways: number
}

interface Group {
  /** In how many ways it can be taken, where the text alone does not say in which. */
  ways: number
  hasLong: boolean
  /** With what it begins: empty where that may be several, `null` before it is seen. */
  first: string | null
  /** What stood loose before it, and so before each of its alternatives. */
  readonly before: readonly Loose[]
}

interface Walk {
  readonly bounded: string
  readonly danger: string | undefined
}

const atomPattern = new RegExp(
  [
    String.raw`\(\?(?:<[=!]|[=!:]|<[^>]*>|[a-z-]*:)`,
    String.raw`\[(?:\\.|[^\]\\])*\]`,
    String.raw`\\(?:[pP]\{[^}]*\}|u\{[^}]*\}|u[\da-fA-F]{4}|x[\da-fA-F]{2}|k<[^>]*>|\d+|.)`,
    '.',
  ].join('|'),
  'suy',
)
const repeatPattern = /(?:[*+?]|\{(\d+)(,?)(\d*)\})\??/y

function walk(source: string): Walk {
  const groups: Group[] = []
  const dangers: string[] = []
  let current = openGroup([])
  /** Loose parts that nothing has settled yet. */
  let loose: readonly Loose[] = []
  let bounded = ''
  for (let at = 0; at < source.length;) {
    const atom = matchAt(atomPattern, source, at)?.[0] ?? ''
    at += atom.length
    bounded += atom
    if (/^\\(?:k<|[1-9])/.test(atom)) dangers.push('a reference to what a group matched')
    if (atom.startsWith('(')) {
      current.first ??= ''
      groups.push(current)
      current = openGroup(loose)
      continue
    }
    // Where something stands settles nothing about what is repeated.
    if (/^(?:[$^]|\\[bB])$/.test(atom)) continue
    if (atom === '|') {
      current.ways += 1
      current.first = ''
      loose = [...current.before, ...loose]
      continue
    }
    const repeat = matchAt(repeatPattern, source, at)
    const { min, max, text } = repeat === null ? once : toBounds(repeat)
    at += repeat?.[0].length ?? 0
    bounded += text
    if (max > maxRepeat) dangers.push(`repeats more than ${maxRepeat} times`)
    const isLong = max > short && max > min
    const own = { atom: atom === ')' ? '' : atom, ways: max - min + 1 }
    if (atom === ')') {
      const inner = current
      if (max > 1) inner.ways *= waysOf(vagueBefore(loose, inner.first ?? ''))
      current = groups.pop() ?? current
      if (max > 1 && (inner.hasLong || (inner.ways > 1 && max > short))) {
        dangers.push('a repetition of what repeats or varies itself')
      }
      current.ways = Math.min(tooMany, current.ways * inner.ways ** max)
      current.hasLong ||= inner.hasLong || isLong
      if (min === 0) loose = [...inner.before, ...loose]
    } else {
      current.first ??= atom
      const vague = vagueBefore(loose, atom)
      const clear = loose.filter((part) => !vague.includes(part))
      current.ways = Math.min(tooMany, current.ways * waysOf(vague))
      // Alone a long one is gone through once; behind a vague part, once for each of its ways.
      const isAgain = min > 0 && [current, ...groups].some(({ ways }) => ways > 1)
      const again = isAgain ? clear.filter(({ ways }) => ways > short) : []
      current.ways = Math.min(tooMany, current.ways * waysOf(again))
      current.hasLong ||= isLong
      loose = min > 0 ? [] : clear
    }
    if (max > min) loose = [...loose, own]
  }
  if (current.ways > maxWays) dangers.push('too many ways to match; bound it, as in .{0,20}')
  return { bounded, danger: dangers[0] }
}

const openGroup = (before: readonly Loose[]): Group => ({
  ways: 1,
  hasLong: false,
  first: null,
  before,
})

/** Those that what follows suits as well, so that only trying tells where they end. */
const vagueBefore = (loose: readonly Loose[], next: string): readonly Loose[] =>
  loose.filter(({ atom }) => mayBoth(atom, next))

const waysOf = (loose: readonly Loose[]): number =>
  loose.reduce((all, { ways }) => Math.min(tooMany, all * ways), 1)

const tooMany = maxWays + 1
const once = { min: 1, max: 1, text: '' }

function toBounds(repeat: RegExpExecArray): { min: number; max: number; text: string } {
  const [whole, from, comma, to] = repeat
  const lazy = whole.length > 1 && whole.endsWith('?') ? '?' : ''
  if (whole.startsWith('?')) return { min: 0, max: 1, text: whole }
  const min = from === undefined ? Number(whole.startsWith('+')) : Number(from)
  const isOpen = from === undefined || (comma === ',' && to === '')
  const end = comma === ',' ? Number(to) : min
  const max = isOpen ? Math.max(min, openEnd) : end
  return { min, max, text: `{${min},${max}}${lazy}` }
}

function matchAt(pattern: RegExp, source: string, at: number): RegExpExecArray | null {
  pattern.lastIndex = at
  return pattern.exec(source)
}

/** Whether some character suits both. A group, which has no atom, may begin with anything. */
function mayBoth(one: string, next: string): boolean {
  if (one === '' || next === '') return true
  const [first, second] = [one, next].map((atom) => new RegExp(`^(?:${atom})$`, 'isu'))
  return probes.some((probe) => first?.test(probe) === true && second?.test(probe) === true)
}

/** All of Latin-1, and a letter, a sign and a blank from elsewhere. */
const probes = [
  ...Array.from({ length: 256 }, (_, code) => String.fromCharCode(code)),
  'Ω',
  '漢',
  '€',
  '\u2003',
]
