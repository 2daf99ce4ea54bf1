/** Rejects the words that `docs/naming.md` lists: in identifiers, in file names and in text. */

import { codeIn, type SourceFile, violation, walk } from './source-file.ts'

type Reach = 'any text' | 'identifier' | 'type name' | 'beginning'

interface Rejection {
  readonly word: string
  readonly instead: string
  readonly reach: Reach
}

const vocabulary = 'docs/naming.md'
/** Files that quote the words in order to reject them. */
const isQuoting = (path: string): boolean => path === vocabulary || path.startsWith('test/tidy/')

/** The rejected words of the vocabulary's second table. */
function rejectedWords(text: string): Rejection[] {
  const table = text.split(/^## Rejected words$/m)[1] ?? ''
  return table.split('\n').flatMap((line) => {
    const [, words = '', instead = '', reach = ''] = line.split('|').map((cell) => cell.trim())
    if (!isReach(reach)) return []
    return words.split(', ').map((word) => ({ word, instead, reach }))
  })
}

/** Uses of rejected words, by the table in the tree itself. */
export function rejectedNames(files: readonly SourceFile[]): string[] {
  const table = files.find(({ path }) => path === vocabulary)
  const words = rejectedWords(table?.text ?? '')
  const judged = files.filter(({ path }) => !isQuoting(path))
  const code = codeIn(judged, 'src', 'test', 'bench', 'scripts', 'examples')
  return [
    ...code.flatMap((file) => inFileName(file, words)),
    ...code.flatMap((file) => inIdentifiers(file, words)),
    ...judged
      .filter(({ path }) => code.some((file) => file.path === path) || path.endsWith('.md'))
      .flatMap((file) => inText(file, words)),
  ]
}

const isReach = (text: string): text is Reach =>
  ['any text', 'identifier', 'type name', 'beginning'].includes(text)
const advice = ({ word, instead }: Rejection): string => `"${word}" is rejected: use ${instead}`
const lowerFirst = (word: string): string => word.slice(0, 1).toLowerCase() + word.slice(1)
const upperFirst = (word: string): string => word.slice(0, 1).toUpperCase() + word.slice(1)
const kebab = (word: string): string =>
  lowerFirst(word).replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)

function inFileName({ path }: SourceFile, words: readonly Rejection[]): string[] {
  const stem = (path.split('/').at(-1) ?? '').replace(/\..*$/, '')
  const found = words.filter(({ word }) => kebab(word) === stem)
  return found.map((rejection) => `${path}:1: file name ${advice(rejection)}`)
}

function inIdentifiers(file: SourceFile, words: readonly Rejection[]): string[] {
  const byName = new Map<string, Rejection>()
  for (const rejection of words) {
    // Words rejected in any text are found there, identifiers included.
    if (rejection.reach === 'any text' || rejection.reach === 'beginning') continue
    byName.set(upperFirst(rejection.word), rejection)
    if (rejection.reach === 'identifier') byName.set(lowerFirst(rejection.word), rejection)
  }
  const found: string[] = []
  walk(file, (node) => {
    if (node.type !== 'Identifier' && node.type !== 'PrivateIdentifier') return
    const name = String(node['name'])
    const rejection = byName.get(name) ?? words.find((word) => isBeginning(name, word))
    if (rejection !== undefined) found.push(violation(file, node.start, advice(rejection)))
  })
  return found
}

/** Whether a name of several words begins with a word that is rejected there. */
const isBeginning = (name: string, { word, reach }: Rejection): boolean =>
  reach === 'beginning' &&
  name.startsWith(lowerFirst(word)) &&
  /^[A-Z]/.test(name.slice(word.length))

function inText(file: SourceFile, words: readonly Rejection[]): string[] {
  return words
    .filter(({ reach }) => reach === 'any text')
    .flatMap((rejection) => {
      const pattern = new RegExp(String.raw`\b${rejection.word}\b`, 'gi')
      return Array.from(file.text.matchAll(pattern), ({ index }) =>
        violation(file, index, advice(rejection)),
      )
    })
}
