/** Finds many phrases in one pass: whole words, ignoring case, the longest phrase first. */

interface PhraseNode {
  /** Whether the node's letter belongs to a script that separates words by spaces. */
  readonly isSpaced: boolean
  readonly next: Map<number, PhraseNode>
  afterGap: PhraseNode | null
  /**
   * The position of the phrase that ends here, in a list with the longest phrase first; `Infinity`
   * if no phrase ends here. The lowest position wins.
   */
  rank: number
}

export interface PhraseSpan {
  readonly start: number
  readonly end: number
}

/** Returns phrases that begin at or after `begin` and before `end`, without overlaps. */
export type FindPhrases = (text: string, begin: number, end: number) => PhraseSpan[]

/** Uses a tree of letters, because a regular expression gets slower with each phrase. */
export function createPhraseFinder(phraseList: readonly string[]): FindPhrases {
  const phrases = phraseList
    .toSorted((a, b) => b.length - a.length)
    .map((phrase) =>
      Array.from(phrase.replaceAll(invisibleCharacters, '').trim().replaceAll(/\s+/g, ' ')),
    )
  const root = createNode(true)
  const caseVariants = new Map<string, readonly number[]>()
  for (const [rank, letters] of phrases.entries()) addPhrase(root, letters, rank, caseVariants)
  return (text, begin, end) => {
    const spans: PhraseSpan[] = []
    for (let at = begin; at < end;) {
      const code = text.codePointAt(at) ?? 0
      const width = code > 0xff_ff ? 2 : 1
      const node = root.next.get(code)
      const stop = node === undefined ? 0 : findPhraseEnd(node, text, at, width)
      if (stop > 0) spans.push({ start: at, end: stop })
      at = stop > 0 ? stop : at + width
    }
    return spans
  }
}

/**
 * Returns the end of the phrase that begins at `at` with the letter of `node`; 0 if there is none.
 */
function findPhraseEnd(node: PhraseNode, text: string, at: number, width: number): number {
  if (node.isSpaced && !testAt(noWordBefore, text, at)) return 0
  const best = { rank: Infinity, end: 0 }
  follow(node, text, at + width, best)
  return best.end
}

function follow(
  { isSpaced, next, afterGap, rank }: PhraseNode,
  text: string,
  at: number,
  best: { rank: number; end: number },
): void {
  if (rank < best.rank && (!isSpaced || testAt(noWordAfter, text, at))) {
    best.rank = rank
    best.end = at
  }
  if (next.size === 0 && afterGap === null) return
  if (followLetter(next, text, at, best)) return
  gapPattern.lastIndex = at
  const gap = gapPattern.exec(text)?.[0] ?? ''
  if (gap === '') return
  // Tries both kinds of gaps, because U+FEFF is both white space and invisible.
  if (invisibleGap.test(gap)) followLetter(next, text, at + gap.length, best)
  if (afterGap !== null && wordGap.test(gap))
    followLetter(afterGap.next, text, at + gap.length, best)
}

function followLetter(
  next: ReadonlyMap<number, PhraseNode>,
  text: string,
  at: number,
  best: { rank: number; end: number },
): boolean {
  const code = text.codePointAt(at)
  const node = code === undefined ? undefined : next.get(code)
  if (code === undefined || node === undefined) return false
  follow(node, text, at + (code > 0xff_ff ? 2 : 1), best)
  return true
}

const noWordBefore = /(?<![\p{L}\p{N}_])/iuy
const noWordAfter = /(?![\p{L}\p{N}_])/iuy

function testAt(condition: RegExp, text: string, at: number): boolean {
  condition.lastIndex = at
  return condition.test(text)
}

/** Matches one character more than the longest allowed gap, so that a longer gap is detected. */
const gapPattern = /[\s\u00AD\u200B-\u200D\u2060]{0,9}/uy
const invisibleGap = /^[\u00AD\u200B-\u200D\u2060\uFEFF]{1,2}$/u
const invisibleCharacters = /[\u00AD\u200B-\u200D\u2060\uFEFF]/g
const invisible = String.raw`[\u00AD\u200B-\u200D\u2060\uFEFF]{0,2}`
const wordGap = new RegExp(String.raw`^${invisible}\s{1,4}${invisible}$`, 'u')
const escapeRegExp = (character: string): string =>
  character.replace(/[\\^$.*+?()[\]{}|/]/, String.raw`\$&`)

const unspacedScript =
  /[\p{sc=Han}\p{sc=Hiragana}\p{sc=Katakana}\p{sc=Thai}\p{sc=Lao}\p{sc=Khmer}]/u

const createNode = (isSpaced: boolean): PhraseNode => ({
  isSpaced,
  next: new Map(),
  afterGap: null,
  rank: Infinity,
})

function addPhrase(
  root: PhraseNode,
  letters: readonly string[],
  rank: number,
  caseVariants: Map<string, readonly number[]>,
): void {
  let node = root
  for (const letter of letters) {
    if (letter === ' ') {
      node = node.afterGap ??= createNode(true)
      continue
    }
    const codes = caseVariants.get(letter) ?? listCaseVariants(letter)
    caseVariants.set(letter, codes)
    const next = node.next.get(codes[0] ?? 0) ?? createNode(!unspacedScript.test(letter))
    for (const code of codes) node.next.set(code, next)
    node = next
  }
  node.rank = Math.min(node.rank, rank)
}

const cased = /[\p{Changes_When_Casemapped}\p{Changes_When_Casefolded}]/u
/** No letter beyond this code point has upper and lower case. */
const maxCasedCode = 0x1_ff_ff
let casedLetters = ''

/** The code points that a case-insensitive regular expression treats as this letter. */
function listCaseVariants(letter: string): number[] {
  const own = letter.codePointAt(0) ?? 0
  if (!cased.test(letter)) return [own]
  if (casedLetters === '') {
    const all = Array.from({ length: maxCasedCode + 1 }, (_, code) => String.fromCodePoint(code))
    casedLetters = all.filter((one) => cased.test(one)).join('')
  }
  const sameLetters = casedLetters.match(new RegExp(escapeRegExp(letter), 'giu')) ?? []
  return [own, ...sameLetters.map((one) => one.codePointAt(0) ?? 0)]
}
