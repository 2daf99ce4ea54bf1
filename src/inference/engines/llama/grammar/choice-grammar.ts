/** A GBNF expression that matches one of several texts. Pure. */

/** More texts are grouped by common prefixes, because llama.cpp compares all that begin alike. */
const maxListed = 16
/** The maximum depth of nested brackets. */
const maxDepth = 100

/** An expression that matches any of the texts. */
export function textChoice(texts: readonly string[]): string {
  const distinct = [...new Set(texts)]
  if (distinct.length <= maxListed) return distinct.map(quoted).join(' | ')
  const letters = distinct.map((text) => Array.from(text))
  return alternatives(letters, 0, 0)
}

/** A GBNF string literal, which has fewer escapes than JSON. */
export function quoted(text: string): string {
  const escaped = text.replaceAll('\\', String.raw`\\`).replaceAll('"', String.raw`\"`)
  return `"${escaped.replaceAll('\n', String.raw`\n`)}"`
}

/** The rest of texts that are equal up to a position. */
function alternatives(texts: readonly (readonly string[])[], from: number, depth: number): string {
  if (depth >= maxDepth) return texts.map((text) => quoted(text.slice(from).join(''))).join(' | ')
  const groups = Map.groupBy(texts, (text) => text[from] ?? '')
  return Array.from(groups.values(), (group) => sequence(group, from, depth)).join(' | ')
}

/** The rest of texts with the same letter at a position: the common part, then the alternatives. */
function sequence(texts: readonly (readonly string[])[], from: number, depth: number): string {
  const [first = []] = texts
  const differs = (at: number): boolean => texts.some((text) => text[at] !== first[at])
  let to = from
  while (to < first.length && !differs(to)) to++
  const common = quoted(first.slice(from, to).join(''))
  return texts.length === 1 ? common : `${common} ( ${alternatives(texts, to, depth + 1)} )`
}
