/** Finds many words and phrases at once: whole words, in any case, the longest phrase first. */

/** A node of the tree of phrases; `next` has the letters that may follow. */
interface Branch {
  /** Whether the node's letter belongs to a script that separates words by spaces. */
  readonly isSpaced: boolean
  /** The next nodes by code point, for both cases of a letter. */
  readonly next: Map<number, Branch>
  /** The node after a gap between two words. */
  blank: Branch | null
  /**
   * The rank of the phrase that ends at this node; `Infinity` if none does. The lowest rank wins.
   */
  rank: number
}

export interface PhraseSpan {
  readonly start: number
  readonly end: number
}

/** Returns spans that begin in `view` from `begin` to before `end` and do not overlap. */
export type FindPhrases = (view: string, begin: number, end: number) => PhraseSpan[]

/**
 * A phrase is also found with up to two invisible characters between letters and up to four
 * white-space characters between words; invisible characters of the phrase itself are ignored. Uses
 * a tree of letters: a regular expression of all phrases would get slower with each phrase, and a
 * thousand phrases would take seconds to compile or be too large.
 */
export function createPhraseFinder(list: readonly string[]): FindPhrases {
  const phrases = list
    .toSorted((a, b) => b.length - a.length)
    .map((phrase) => Array.from(phrase.replaceAll(hidden, '').trim().replaceAll(/\s+/g, ' ')))
  const root = newBranch(true)
  const spellings = new Map<string, readonly number[]>()
  for (const [rank, letters] of phrases.entries()) addPhrase(root, letters, rank, spellings)
  return (view, begin, end) => {
    const spans: PhraseSpan[] = []
    for (let at = begin; at < end;) {
      const code = view.codePointAt(at) ?? 0
      const width = code > 0xff_ff ? 2 : 1
      const branch = root.next.get(code)
      const stop = branch === undefined ? 0 : endOfPhrase(branch, view, at, width)
      if (stop > 0) spans.push({ start: at, end: stop })
      at = stop > 0 ? stop : at + width
    }
    return spans
  }
}

/** The end of the phrase that begins at `at` with the letter of `branch`; 0 if there is none. */
function endOfPhrase(branch: Branch, view: string, at: number, width: number): number {
  if (branch.isSpaced && !holdsAt(noWordBefore, view, at)) return 0
  const best = { rank: Infinity, end: 0 }
  follow(branch, view, at + width, best)
  return best.end
}

function follow(
  { isSpaced, next, blank, rank }: Branch,
  view: string,
  at: number,
  best: { rank: number; end: number },
): void {
  if (rank < best.rank && (!isSpaced || holdsAt(noWordAfter, view, at))) {
    best.rank = rank
    best.end = at
  }
  if (next.size === 0 && blank === null) return
  if (takeLetter(next, view, at, best)) return
  softRun.lastIndex = at
  const run = softRun.exec(view)?.[0] ?? ''
  if (run === '') return
  // Tries both kinds of gaps, because U+FEFF is both white space and invisible.
  if (hiddenGap.test(run)) takeLetter(next, view, at + run.length, best)
  if (blank !== null && wordGap.test(run)) takeLetter(blank.next, view, at + run.length, best)
}

function takeLetter(
  next: ReadonlyMap<number, Branch>,
  view: string,
  at: number,
  best: { rank: number; end: number },
): boolean {
  const code = view.codePointAt(at)
  const branch = code === undefined ? undefined : next.get(code)
  if (code === undefined || branch === undefined) return false
  follow(branch, view, at + (code > 0xff_ff ? 2 : 1), best)
  return true
}

const noWordBefore = /(?<![\p{L}\p{N}_])/iuy
const noWordAfter = /(?![\p{L}\p{N}_])/iuy

function holdsAt(condition: RegExp, view: string, at: number): boolean {
  condition.lastIndex = at
  return condition.test(view)
}

/** Matches one character more than the longest allowed gap, so that a longer gap is detected. */
const softRun = /[\s\u00AD\u200B-\u200D\u2060]{0,9}/uy
const hiddenGap = /^[\u00AD\u200B-\u200D\u2060\uFEFF]{1,2}$/u
const hidden = /[\u00AD\u200B-\u200D\u2060\uFEFF]/g
const invisible = String.raw`[\u00AD\u200B-\u200D\u2060\uFEFF]{0,2}`
const wordGap = new RegExp(String.raw`^${invisible}\s{1,4}${invisible}$`, 'u')
/** Escapes a character for a regular expression. */
const literal = (character: string): string =>
  character.replace(/[\\^$.*+?()[\]{}|/]/, String.raw`\$&`)

/** Scripts that do not separate words by spaces. */
const unspaced = /[\p{sc=Han}\p{sc=Hiragana}\p{sc=Katakana}\p{sc=Thai}\p{sc=Lao}\p{sc=Khmer}]/u

const newBranch = (isSpaced: boolean): Branch => ({
  isSpaced,
  next: new Map(),
  blank: null,
  rank: Infinity,
})

function addPhrase(
  root: Branch,
  letters: readonly string[],
  rank: number,
  spellings: Map<string, readonly number[]>,
): void {
  let branch = root
  for (const letter of letters) {
    if (letter === ' ') {
      branch = branch.blank ??= newBranch(true)
      continue
    }
    const codes = spellings.get(letter) ?? spellingsOf(letter)
    spellings.set(letter, codes)
    const next = branch.next.get(codes[0] ?? 0) ?? newBranch(!unspaced.test(letter))
    for (const code of codes) branch.next.set(code, next)
    branch = next
  }
  branch.rank = Math.min(branch.rank, rank)
}

const cased = /[\p{Changes_When_Casemapped}\p{Changes_When_Casefolded}]/u
/** Beyond this code point no letter has upper and lower case. */
const lastCased = 0x1_ff_ff
let casedLetters = ''

/** The code points that a case-insensitive regular expression treats as this letter. */
function spellingsOf(letter: string): number[] {
  const own = letter.codePointAt(0) ?? 0
  if (!cased.test(letter)) return [own]
  if (casedLetters === '') {
    const all = Array.from({ length: lastCased + 1 }, (_, code) => String.fromCodePoint(code))
    casedLetters = all.filter((one) => cased.test(one)).join('')
  }
  const same = casedLetters.match(new RegExp(literal(letter), 'giu')) ?? []
  return [own, ...same.map((one) => one.codePointAt(0) ?? 0)]
}
