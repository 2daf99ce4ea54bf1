/** Finds phrases that try to override a model's instructions, and weighs them. */

import type { Steps } from '../../runtime/turn-budget.ts'
import { foldLatin, type NormalizedText, normalizeConfusables } from './confusables.ts'

/** A phrase and the probability, between 0 and 1, that the phrase alone indicates an injection. */
interface InjectionPattern {
  readonly pattern: RegExp
  readonly weight: number
}

export interface InjectionSpan {
  readonly start: number
  readonly end: number
}

const sliceChars = 32_768
/** The maximum length of a phrase, and of the text before the phrase that its pattern examines. */
const maxPhraseLength = 128
const lookBehind = 16

/** Returns phrases if their combined weight (0.4 and 0.4 make 0.64) reaches `1 - sensitivity`. */
export function* findInjections(text: string, sensitivity: number): Steps<InjectionSpan[]> {
  const spans: InjectionSpan[] = []
  const found = new Set<InjectionPattern>()
  yield* findPhrases(text, (candidate, start, end) => {
    found.add(candidate)
    spans.push({ start, end })
  })
  for (const candidate of markers) {
    if (text.length > sliceChars) yield
    forEachMatch(candidate.pattern, text, 0, text.length, (start, end) => {
      found.add(candidate)
      spans.push({ start, end })
    })
  }
  const harmlessProbability = [...found].reduce((product, { weight }) => product * (1 - weight), 1)
  return sensitivity > 0 && 1 - harmlessProbability >= 1 - sensitivity ? spans : []
}

/** Keeps letters at the end of a slice, because a phrase may continue in the next slice. */
function* findPhrases(
  text: string,
  onFound: (candidate: InjectionPattern, start: number, end: number) => void,
): Steps<void> {
  let kept: NormalizedText = { text: '', origins: new Uint32Array() }
  let begin = 0
  for (let from = 0; from < text.length; from += sliceChars) {
    if (from > 0) yield
    const to = Math.min(text.length, from + sliceChars)
    const letters = joinTexts(kept, normalizeConfusables(text, from, to))
    const end = to === text.length ? letters.text.length : letters.text.length - maxPhraseLength
    if (end > begin) {
      for (const candidate of phrases) {
        forEachMatch(candidate.pattern, letters.text, begin, end, (first, afterLast) => {
          const last = letters.origins[afterLast - 1] ?? 0
          const width = (text.codePointAt(last) ?? 0) > 0xff_ff ? 2 : 1
          onFound(candidate, letters.origins[first] ?? 0, last + width)
        })
      }
    }
    const keptFrom = Math.max(0, Math.max(begin, end) - lookBehind)
    kept = { text: letters.text.slice(keptFrom), origins: letters.origins.slice(keptFrom) }
    begin = Math.max(begin, end) - keptFrom
  }
}

function joinTexts(first: NormalizedText, second: NormalizedText): NormalizedText {
  if (first.text === '') return second
  const origins = new Uint32Array(first.origins.length + second.origins.length)
  origins.set(first.origins)
  origins.set(second.origins, first.origins.length)
  return { text: first.text + second.text, origins }
}

/** Uses `exec`, because `matchAll` would copy the expression for every text. */
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

const ignore = '(?:ignore|disregard|forget|donotfollow|dontfollow|stopfollowing)'
const bypass = '(?:override|overwrite|bypass|circumvent)'
const all = '(?:allof|all|any|every|each)?'
const determiner = '(?:the|your|my|our|these|those|its)?'
const earlierWords =
  'previous|prior|earlier|above|preceding|foregoing|former|initial|original|existing'
const previous = `(?:(?:${earlierWords})|system|developer|safety)`
const earlier = `${previous}(?:(?:and|or)?${previous}){0,2}`
const rules = '(?:instruction|prompt|rule|directive|guideline|constraint|policy)s?'
const messages = '(?:message|context|command|direction|conversation|question)s?'
const hidden = '(?:system|hidden|initial|secret|internal|developer)'
const reveal = '(?:reveal|show|print|repeat|output|display|leak|tell|give)'
/** Excludes negations: "Do not ignore the previous instructions" asks for the opposite. */
const notNegated = '(?<!donot|dont|never|cannot|cant|shouldnot|shouldnt)'

/** The weights of phrases in normalized text, which consists of lower-case letters only. */
const phraseWeights: readonly (readonly [number, string])[] = [
  [0.9, `${notNegated}${ignore}${all}${determiner}${earlier}${rules}`],
  [0.4, `${notNegated}${ignore}${all}${determiner}${earlier}${messages}`],
  [0.7, `${notNegated}${bypass}${all}${determiner}${earlier}(?:instruction|prompt|guideline)`],
  [0.8, `${notNegated}${ignore}${all}${determiner}${rules}(?:above|before|sofar|youweregiven)`],
  [0.8, `${notNegated}${ignore}(?:what|everything|all)(?:that)?youwere(?:told)`],
  [0.7, `${notNegated}${ignore}${all}your(?:instruction|guideline|rule|training|policy)`],
  [0.6, 'forgeteverything(?:above|before|youknow|youlearned|youhavelearned)'],
  [0.7, `${reveal}(?:me)?(?:your|the)${hidden}(?:prompt|instruction)`],
  [0.6, `whatisyour${hidden}(?:prompt|instruction)`],
  [0.7, '(?:enter|enable|activate|switchto)(?:developer|god|dan)mode'],
  [0.7, '(?:pretend|actasif|imagine)youhaveno(?:rule|restriction|limit)'],
  [0.6, 'youarenow(?:danmode|unrestricted|jailbroken|unfiltered|uncensored)'],
  [0.5, 'doanythingnow'],
  [0.4, '(?:yournew|newsystem)(?:instructions|prompt|rules)(?:is|are)'],
  [0.3, 'without(?:any)?(?:restrictions|filters|censorship|guardrails)'],
  [0.3, 'youarenowa'],
  [0.3, 'jailbreak'],
  // The same phrases in other common languages, without accents.
  [0.9, 'ignorier(?:ensie|en|e)(?:alle|die)?vorherigenanweisung'],
  [0.9, 'ignor(?:a|e)(?:todas)?(?:las)?instruccionesanteriores'],
  [0.9, 'ignor(?:a|e)(?:todas)?(?:as)?instrucoesanteriores'],
  [0.9, 'ignore(?:z|s)?(?:toutes)?(?:les)?instructionsprecedentes'],
  [0.9, '(?:忽略|无视).{0,6}(?:指令|指示|提示)'],
]

const phrases = phraseWeights.map(([weight, text]): InjectionPattern => ({
  pattern: new RegExp(foldLatin(text), 'g'),
  weight,
}))

/** Markers that are searched in the original text. Chat templates put them between messages. */
const markers: readonly InjectionPattern[] = [
  { pattern: /<\|(?:im_start|im_end|system|endoftext|eot_id|start_header_id)\|>/gi, weight: 0.7 },
  { pattern: /\[\/?INST\]|<<\/?SYS>>/g, weight: 0.6 },
  { pattern: /^#{2,4} ?(?:system|new instructions?):?\s*$/gim, weight: 0.4 },
]
