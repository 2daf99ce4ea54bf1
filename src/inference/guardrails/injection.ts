/** Finds phrases that try to talk a model out of its instructions, and weighs them. */

import { squeeze } from './squeeze.ts'

/** A phrase, and how sure a sign of injection it is alone: above 0, below 1. */
interface Sign {
  readonly pattern: RegExp
  readonly weight: number
}

export interface InjectionSpan {
  readonly start: number
  readonly end: number
}

/**
 * The phrases in a text whose signs together outweigh `1 - sensitivity`; none when they do not.
 * Signs add up like independent chances: two of 0.4 make 0.64. At the default of 0.5 one strong
 * sign (0.5 and more) is enough; at 0 nothing is found, at 1 every sign.
 */
export function findInjections(text: string, sensitivity: number): InjectionSpan[] {
  const spans: InjectionSpan[] = []
  let innocence = 1
  const squeezed = squeeze(text)
  for (const { pattern, weight } of phrases) {
    const found = findAll(pattern, squeezed.text)
    if (found.length > 0) innocence *= 1 - weight
    for (const { start, end } of found) {
      const last = squeezed.origins[end - 1] ?? 0
      const width = (text.codePointAt(last) ?? 0) > 0xff_ff ? 2 : 1
      spans.push({ start: squeezed.origins[start] ?? 0, end: last + width })
    }
  }
  for (const { pattern, weight } of markers) {
    const found = findAll(pattern, text)
    if (found.length > 0) innocence *= 1 - weight
    for (const span of found) spans.push(span)
  }
  const score = 1 - innocence
  return sensitivity > 0 && score >= 1 - sensitivity ? spans : []
}

const nowhere: readonly InjectionSpan[] = []

/**
 * All matches of a global expression, none of which is empty. Very many short texts come here:
 * `matchAll` would copy the expression for each of them.
 */
function findAll(pattern: RegExp, text: string): readonly InjectionSpan[] {
  pattern.lastIndex = 0
  let match = pattern.exec(text)
  if (match === null) return nowhere
  const spans: InjectionSpan[] = []
  for (; match !== null; match = pattern.exec(text)) {
    spans.push({ start: match.index, end: pattern.lastIndex })
  }
  return spans
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
/** "Do not ignore the previous instructions" asks for the contrary. */
const notTo = '(?<!donot|dont|never|cannot|cant|shouldnot|shouldnt)'

const sign = (weight: number, ...parts: readonly string[]): Sign => ({
  pattern: new RegExp(parts.join(''), 'g'),
  weight,
})

/** Over squeezed text: small letters and nothing between them. */
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
  // The same in other languages that prompts are often written in, accents off.
  sign(0.9, 'ignorier', any('ensie', 'en', 'e'), maybe('alle', 'die'), 'vorherigenanweisung'),
  sign(0.9, 'ignor', any('a', 'e'), maybe('todas'), maybe('las'), 'instruccionesanteriores'),
  sign(0.9, 'ignor', any('a', 'e'), maybe('todas'), maybe('as'), 'instrucoesanteriores'),
  sign(0.9, 'ignore', maybe('z', 's'), maybe('toutes'), maybe('les'), 'instructionsprecedentes'),
  sign(0.9, any('忽略', '无视'), '.{0,6}', any('指令', '指示', '提示')),
]

/** Over the text itself: signs with which templates divide the parts of a conversation. */
const markers: readonly Sign[] = [
  { pattern: /<\|(?:im_start|im_end|system|endoftext|eot_id|start_header_id)\|>/gi, weight: 0.7 },
  { pattern: /\[\/?INST\]|<<\/?SYS>>/g, weight: 0.6 },
  { pattern: /^#{2,4} ?(?:system|new instructions?):?\s*$/gim, weight: 0.4 },
]
