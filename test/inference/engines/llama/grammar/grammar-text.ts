/** The texts that a grammar (GBNF) accepts, and texts that it generates. */

const tokens = /"((?:\\.|[^"\\])*)"|\[((?:\\.|[^\]\\])*)\]|\{(\d+)(,?)(\d*)\}|[a-z]\w*|[()|*+?]/g

type Part =
  | { readonly kind: 'text'; readonly text: string }
  | { readonly kind: 'letter'; readonly set: RegExp; readonly letters: readonly string[] }
  | { readonly kind: 'rule'; readonly name: string }
  | { readonly kind: 'choice'; readonly choices: readonly (readonly Part[])[] }
  | { readonly kind: 'repeat'; readonly part: Part; readonly min: number; readonly max: number }

type Rules = ReadonlyMap<string, Part>

/** Whether a grammar accepts a text. */
export function acceptorOf(grammar: string): (text: string) => boolean {
  const rules = parseRules(grammar)
  return (text) => {
    const letters = Array.from(text)
    return endsOf(ruleOf(rules, 'root'), { rules, letters }, 0).has(letters.length)
  }
}

/** Random texts of a grammar: each call gives one. Deep inside, last choices are taken. */
export function generatorOf(grammar: string, random: () => number): () => string {
  const rules = parseRules(grammar)
  return () => generate(ruleOf(rules, 'root'), { rules, random }, 0)
}

interface Matching {
  readonly rules: Rules
  readonly letters: readonly string[]
}

/** Where a part that begins here may end. */
function endsOf(part: Part, matching: Matching, from: number): ReadonlySet<number> {
  const { letters, rules } = matching
  if (part.kind === 'rule') return endsOf(ruleOf(rules, part.name), matching, from)
  if (part.kind === 'letter') {
    const letter = letters[from]
    return new Set(letter !== undefined && part.set.test(letter) ? [from + 1] : [])
  }
  if (part.kind === 'text') {
    const wanted = Array.from(part.text)
    return new Set(
      wanted.every((letter, at) => letters[from + at] === letter) ? [from + wanted.length] : [],
    )
  }
  if (part.kind === 'choice') {
    return new Set(part.choices.flatMap((sequence) => [...endsOfAll(sequence, matching, from)]))
  }
  const ends = new Set(part.min === 0 ? [from] : [])
  let last: ReadonlySet<number> = new Set([from])
  for (let count = 1; count <= part.max && last.size > 0; count++) {
    const next = new Set([...last].flatMap((at) => [...endsOf(part.part, matching, at)]))
    last = count > part.min ? new Set([...next].filter((at) => !ends.has(at))) : next
    if (count >= part.min) for (const end of last) ends.add(end)
  }
  return ends
}

function endsOfAll(
  sequence: readonly Part[],
  matching: Matching,
  from: number,
): ReadonlySet<number> {
  let ends: ReadonlySet<number> = new Set([from])
  for (const part of sequence)
    ends = new Set([...ends].flatMap((at) => [...endsOf(part, matching, at)]))
  return ends
}

const maxDepth = 14

interface Generating {
  readonly rules: Rules
  readonly random: () => number
}

function generate(part: Part, generating: Generating, depth: number): string {
  const { rules, random } = generating
  const upTo = (count: number): number => Math.floor(random() * count)
  if (part.kind === 'text') return part.text
  if (part.kind === 'letter') return part.letters[upTo(part.letters.length)] ?? ''
  if (part.kind === 'rule') return generate(ruleOf(rules, part.name), generating, depth + 1)
  if (part.kind === 'choice') {
    const { length } = part.choices
    const sequence = part.choices[depth > maxDepth ? length - 1 : upTo(length)] ?? []
    return sequence.map((one) => generate(one, generating, depth)).join('')
  }
  const max = Math.min(part.max, part.min + 3)
  const count = depth > maxDepth ? part.min : part.min + upTo(max - part.min + 1)
  return Array.from({ length: count }, () => generate(part.part, generating, depth + 1)).join('')
}

function parseRules(grammar: string): Rules {
  return new Map(
    grammar.split('\n').map((line) => {
      const at = line.indexOf(' ::= ')
      return [line.slice(0, at), parse([...line.slice(at + 5).matchAll(tokens)])]
    }),
  )
}

function ruleOf(rules: Rules, name: string): Part {
  const rule = rules.get(name)
  if (rule === undefined) throw new Error(`there is no rule ${name}`)
  return rule
}

function parse(matches: RegExpExecArray[]): Part {
  const choices: Part[][] = [[]]
  for (;;) {
    const match = matches.shift()
    if (match === undefined || match[0] === ')') return { kind: 'choice', choices }
    const sequence = choices.at(-1) ?? []
    const counts = countsOf(match)
    const last = sequence.at(-1)
    if (match[0] === '|') choices.push([])
    else if (counts !== null && last !== undefined) {
      sequence.splice(-1, 1, { kind: 'repeat', part: last, ...counts })
    } else sequence.push(match[0] === '(' ? parse(matches) : partOf(match))
  }
}

function countsOf([text, , , from, comma, to]: RegExpExecArray) {
  if (text === '*') return { min: 0, max: Infinity }
  if (text === '+') return { min: 1, max: Infinity }
  if (text === '?') return { min: 0, max: 1 }
  if (from === undefined) return null
  const min = Number(from)
  if (comma === '') return { min, max: min }
  return { min, max: to === '' ? Infinity : Number(to) }
}

function partOf([name, literal, set]: RegExpExecArray): Part {
  if (literal !== undefined) {
    const toLetter = (_: string, letter: string): string => (letter === 'n' ? '\n' : letter)
    return { kind: 'text', text: literal.replaceAll(/\\(.)/g, toLetter) }
  }
  return set === undefined ? { kind: 'rule', name } : letterOf(new RegExp(`^[${set}]$`, 'u'))
}

const alphabet = [
  ...Array.from({ length: 127 }, (_, code) => String.fromCodePoint(code)),
  'é',
  '語',
]

const letterOf = (set: RegExp): Part => ({
  kind: 'letter',
  set,
  letters: alphabet.filter((letter) => set.test(letter)),
})
