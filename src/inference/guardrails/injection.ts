/** Finds phrases that try to override a model's instructions, and weighs them. */

import type { Steps } from '../../runtime/turn-budget.ts'
import { foldLatin, type NormalizedText, normalizeConfusables } from './confusables.ts'

/** A phrase and the probability, between 0 and 1, that the phrase alone indicates an injection. */
interface Sign {
  readonly pattern: RegExp
  readonly weight: number
}

export interface InjectionSpan {
  readonly start: number
  readonly end: number
}

/** The number of characters that are normalized in one step. */
const sliceChars = 32_768
/**
 * The maximum number of letters of a phrase, and of letters before it that its pattern examines.
 */
const maxPhraseLength = 128
const lookBehind = 16

/**
 * The phrases in a text if their combined weight reaches `1 - sensitivity`; otherwise none. Weights
 * are combined like independent probabilities: two of 0.4 make 0.64. At the default sensitivity of
 * 0.5, one strong sign (0.5 or more) is enough. At 0 nothing is found, at 1 every sign.
 */
export function* findInjections(text: string, sensitivity: number): Steps<InjectionSpan[]> {
  const spans: InjectionSpan[] = []
  const found = new Set<Sign>()
  yield* findPhrases(text, (sign, start, end) => {
    found.add(sign)
    spans.push({ start, end })
  })
  for (const sign of markers) {
    if (text.length > sliceChars) yield
    forEachMatch(sign.pattern, text, 0, text.length, (start, end) => {
      found.add(sign)
      spans.push({ start, end })
    })
  }
  const innocence = [...found].reduce((product, { weight }) => product * (1 - weight), 1)
  return sensitivity > 0 && 1 - innocence >= 1 - sensitivity ? spans : []
}

/**
 * Searches slice by slice. Letters at the end of a slice are kept, because a phrase may continue in
 * the next slice.
 */
function* findPhrases(
  text: string,
  onFound: (sign: Sign, start: number, end: number) => void,
): Steps<void> {
  let kept: NormalizedText = { text: '', origins: new Uint32Array() }
  let begin = 0
  for (let from = 0; from < text.length; from += sliceChars) {
    if (from > 0) yield
    const to = Math.min(text.length, from + sliceChars)
    const letters = joined(kept, normalizeConfusables(text, from, to))
    const end = to === text.length ? letters.text.length : letters.text.length - maxPhraseLength
    if (end > begin) {
      for (const sign of phrases) {
        forEachMatch(sign.pattern, letters.text, begin, end, (first, afterLast) => {
          const last = letters.origins[afterLast - 1] ?? 0
          const width = (text.codePointAt(last) ?? 0) > 0xff_ff ? 2 : 1
          onFound(sign, letters.origins[first] ?? 0, last + width)
        })
      }
    }
    const keptFrom = Math.max(0, Math.max(begin, end) - lookBehind)
    kept = { text: letters.text.slice(keptFrom), origins: letters.origins.slice(keptFrom) }
    begin = Math.max(begin, end) - keptFrom
  }
}

function joined(first: NormalizedText, second: NormalizedText): NormalizedText {
  if (first.text === '') return second
  const origins = new Uint32Array(first.origins.length + second.origins.length)
  origins.set(first.origins)
  origins.set(second.origins, first.origins.length)
  return { text: first.text + second.text, origins }
}

/**
 * Calls `onMatch` for each match that begins from `begin` to before `end`. Patterns must not match
 * the empty string. Avoids `matchAll`, which would copy the expression for every text.
 */
function forEachMatch(
  pattern: RegExp,
  text: string,
  begin: number,
  end: number,
  onMatch: (start: number, end: number) => void,
): void {
  pattern.lastIndex = begin
  for (let match = pattern.exec(text); match !== null; match = pattern.exec(text)) {
    if (match.index >= end) break
    onMatch(match.index, pattern.lastIndex)
  }
}

const any = (...words: readonly string[]): string => `(?:${words.join('|')})`
const maybe = (...words: readonly string[]): string => `${any(...words)}?`

const drop = any('ignore', 'disregard', 'forget', 'donotfollow', 'dontfollow', 'stopfollowing')
const defeat = any('override', 'overwrite', 'bypass', 'circumvent')
const all = maybe('allof', 'all', 'any', 'every', 'each')
const whose = maybe('the', 'your', 'my', 'our', 'these', 'those', 'its')
const before = 'previous|prior|earlier|above|preceding|foregoing|former|initial|original|existing'
const former = any(before, 'system', 'developer', 'safety')
const formers = `${former}(?:${maybe('and', 'or')}${former}){0,2}`
const orders = `${any(
  'instruction',
  'prompt',
  'rule',
  'directive',
  'guideline',
  'constraint',
  'policy',
)}s?`
const talk = `${any('message', 'context', 'command', 'direction', 'conversation', 'question')}s?`
const hidden = any('system', 'hidden', 'initial', 'secret', 'internal', 'developer')
const show = any('reveal', 'show', 'print', 'repeat', 'output', 'display', 'leak', 'tell', 'give')
/** Excludes negations: "Do not ignore the previous instructions" asks for the opposite. */
const notTo = '(?<!donot|dont|never|cannot|cant|shouldnot|shouldnt)'

const sign = (weight: number, ...parts: readonly string[]): Sign => ({
  pattern: new RegExp(foldLatin(parts.join('')), 'g'),
  weight,
})

/** Phrases for normalized text, which consists of lower-case letters only. */
const phrases: readonly Sign[] = [
  sign(0.9, notTo, drop, all, whose, formers, orders),
  sign(0.4, notTo, drop, all, whose, formers, talk),
  sign(0.7, notTo, defeat, all, whose, formers, any('instruction', 'prompt', 'guideline')),
  sign(0.8, notTo, drop, all, whose, orders, any('above', 'before', 'sofar', 'youweregiven')),
  sign(0.8, notTo, drop, any('what', 'everything', 'all'), maybe('that'), 'youwere', any('told')),
  sign(
    0.7,
    notTo,
    drop,
    all,
    'your',
    any('instruction', 'guideline', 'rule', 'training', 'policy'),
  ),
  sign(0.6, 'forgeteverything', any('above', 'before', 'youknow', 'youlearned', 'youhavelearned')),
  sign(0.7, show, maybe('me'), any('your', 'the'), hidden, any('prompt', 'instruction')),
  sign(0.6, 'whatisyour', hidden, any('prompt', 'instruction')),
  sign(0.7, any('enter', 'enable', 'activate', 'switchto'), any('developer', 'god', 'dan'), 'mode'),
  sign(0.7, any('pretend', 'actasif', 'imagine'), 'youhaveno', any('rule', 'restriction', 'limit')),
  sign(0.6, 'youarenow', any('danmode', 'unrestricted', 'jailbroken', 'unfiltered', 'uncensored')),
  sign(0.5, 'doanythingnow'),
  sign(0.4, any('yournew', 'newsystem'), any('instructions', 'prompt', 'rules'), any('is', 'are')),
  sign(0.3, 'without', maybe('any'), any('restrictions', 'filters', 'censorship', 'guardrails')),
  sign(0.3, 'youarenowa'),
  sign(0.3, 'jailbreak'),
  // Equivalent phrases in common other languages, without accents.
  sign(0.9, 'ignorier', any('ensie', 'en', 'e'), maybe('alle', 'die'), 'vorherigenanweisung'),
  sign(0.9, 'ignor', any('a', 'e'), maybe('todas'), maybe('las'), 'instruccionesanteriores'),
  sign(0.9, 'ignor', any('a', 'e'), maybe('todas'), maybe('as'), 'instrucoesanteriores'),
  sign(0.9, 'ignore', maybe('z', 's'), maybe('toutes'), maybe('les'), 'instructionsprecedentes'),
  sign(0.9, any('忽略', '无视'), '.{0,6}', any('指令', '指示', '提示')),
]

/** Markers for the original text: separators that chat templates put between messages. */
const markers: readonly Sign[] = [
  { pattern: /<\|(?:im_start|im_end|system|endoftext|eot_id|start_header_id)\|>/gi, weight: 0.7 },
  { pattern: /\[\/?INST\]|<<\/?SYS>>/g, weight: 0.6 },
  { pattern: /^#{2,4} ?(?:system|new instructions?):?\s*$/gim, weight: 0.4 },
]
