/** An expression for keys of JSON objects other than given names. Pure. */

import { codeText } from './pattern-grammar.ts'

interface Letters {
  readonly next: Map<string, Letters>
  isName: boolean
  /** Whether a name continues with a letter that JSON escapes. */
  isEscaped: boolean
}

const noLetters = (): Letters => ({ next: new Map(), isName: false, isEscaped: false })

/** The number of compared letters; keys that begin like a longer name are excluded too. */
const maxLetters = 64

/**
 * An expression for a key that is none of the names. Escapes are allowed only after the key differs
 * from all names, because an escape could spell a letter of a name.
 */
export function otherKey(names: readonly string[]): string {
  const root = noLetters()
  for (const name of names) add(root, name)
  return String.raw`"\"" ${spell(root, 0)} "\""`
}

function add(root: Letters, name: string): void {
  let at = root
  for (const letter of Array.from(name).slice(0, maxLetters)) {
    if (/["\\\p{Cc}]/u.test(letter)) {
      at.isEscaped = true
      return
    }
    const next = at.next.get(letter) ?? noLetters()
    at.next.set(letter, next)
    at = next
  }
  at.isName = true
}

function spell({ next, isName, isEscaped }: Letters, depth: number): string {
  if (next.size === 0 && !isEscaped) return 'char+'
  const codes = Array.from(next.keys(), (letter) => codeText(letter.codePointAt(0) ?? 0))
  const others = String.raw`[^"\\\x7F\x00-\x1F${codes.join('')}] char*`
  const longer = depth + 1 < maxLetters ? [...next.values()] : []
  const known = longer.map((one, at) => `[${codes[at] ?? ''}] ${spell(one, depth + 1)}`)
  return `( ${[others, ...known].join(' | ')} )${isName ? '' : '?'}`
}
