/**
 * Documents name files, scripts and dependencies that exist, and their lines and table cells are
 * short; files are of known kinds.
 */

import { posix } from 'node:path'
import { differences, documented } from './contract-tables.ts'
import { lineAt, type SourceFile } from './source-file.ts'

/** Endings that belong here. A new kind of file is a decision: add it with the file. */
const knownEndings =
  /\.(?:tsx?|m[tj]s|css|html|svg|png|md|json|yaml|txt|csv|proto|c|py|telemetry\.jsonl)$/
const knownNames = new Set([
  '.ci/run',
  'LICENSE',
  '.editorconfig',
  '.gitattributes',
  '.gitignore',
  '.npmrc',
  'test/inference/server/requests/bad-requests.jsonl',
  'test/inference/server/requests/known-fields.jsonl',
])

/** Paths, as git tracks them, of files that have no place in the repository. */
export function unknownKinds(paths: readonly string[]): string[] {
  return paths
    .filter((path) => !knownEndings.test(path) && !knownNames.has(path))
    .map((path) => `${path}:1: a kind of file that the repository does not know`)
}

const documentsOf = (files: readonly SourceFile[]): SourceFile[] =>
  files.filter(({ path }) => path.endsWith('.md'))

/** The text with code blocks blanked: they show files of the reader's own project. */
const withoutCode = (text: string): string =>
  text.replace(/^```[^]*?^```$/gm, (block) => block.replace(/[^\n]/g, ' '))

/** A pattern of names, not a file. */
const placeholder = 'docs/decisions/NNNN-title.md'

/** Files that documents name, in backticks or as links, and that do not exist. */
export function missingFiles(files: readonly SourceFile[]): string[] {
  const paths = files.map(({ path }) => path)
  const names = new Set(paths.map((path) => posix.basename(path)))
  const folders = new Set(paths.flatMap(foldersOf))
  const exists = (name: string, from: string): boolean => {
    if (!name.includes('/')) return names.has(name) || folders.has(name)
    const places = [name, `src/${name}`, posix.join(posix.dirname(from), name)]
    return places.some((place) => paths.includes(place) || folders.has(place.replace(/\/$/, '')))
  }
  return documentsOf(files).flatMap((file) =>
    namedFiles(withoutCode(file.text))
      .filter(({ name }) => name !== placeholder && !exists(name, file.path))
      .map(({ name, index }) => `${file.path}:${lineAt(file, index)}: there is no ${name}`),
  )
}

function foldersOf(path: string): string[] {
  const parts = path.split('/').slice(0, -1)
  return parts.map((_, at) => parts.slice(0, at + 1).join('/'))
}

interface NamedFile {
  readonly name: string
  readonly index: number
}

function namedFiles(text: string): NamedFile[] {
  const quoted =
    /`((?:[\w.-]+\/)*[\w.-]+\.(?:ts|mjs|md)|(?:src|test|docs|bench|scripts)\/[\w./-]+)`/g
  const linked = /\]\((?!https?:|#)([^)#]+)(?:#[^)]*)?\)/g
  return [...text.matchAll(quoted), ...text.matchAll(linked)].map(({ 1: name = '', index }) => ({
    name,
    index,
  }))
}

/** Scripts of npm that documents and the CI name, and that `package.json` does not have. */
export function missingScripts(files: readonly SourceFile[]): string[] {
  const manifest = files.find(({ path }) => path === 'package.json')?.text ?? '{}'
  const { scripts = {} } = JSON.parse(manifest) as { readonly scripts?: Record<string, string> }
  const texts = files.filter(({ path }) => path.endsWith('.md') || path === '.ci/run')
  return texts.flatMap((file) =>
    Array.from(file.text.matchAll(/npm (?:run (?:--silent )?([\w:-]+)|(test|start)\b)/g))
      .filter(([, script, short]) => scripts[script ?? short ?? ''] === undefined)
      .map(({ 0: text, index }) => `${file.path}:${lineAt(file, index)}: there is no "${text}"`),
  )
}

/**
 * Programs in documents and examples that wait for tasks and end as if all had succeeded:
 * `waitTasks` resolves however tasks ended, so the program has to check them.
 */
export function hiddenFailures(files: readonly SourceFile[]): string[] {
  const isExample = ({ path }: SourceFile): boolean => /^examples\/[^/]+\.ts$/.test(path)
  const programs = files.flatMap((file) => {
    if (isExample(file)) return [{ file, text: file.text, index: 0 }]
    if (!file.path.endsWith('.md')) return []
    const blocks = Array.from(file.text.matchAll(/^```ts$[^]*?^```$/gm))
    return blocks.map(({ 0: text, index }) => ({ file, text, index }))
  })
  return programs
    .filter(({ text }) => text.includes('.waitTasks(') && !/\bexitCode\b|\.error\b/.test(text))
    .map(({ file, index }) => `${file.path}:${lineAt(file, index)}: it does not tell failed tasks`)
}

const maxProseLine = 200
const maxCellWords = 40

/**
 * Lines of prose and table cells that are too long to read. The reference is generated, and its
 * tables show types.
 */
export function longProse(files: readonly SourceFile[]): string[] {
  const written = documentsOf(files).filter(({ path }) => !path.startsWith('docs/reference/'))
  return written.flatMap((file) =>
    withoutCode(file.text)
      .split('\n')
      .flatMap((line, at) => {
        const problem = line.startsWith('|') ? longCell(line) : longLine(line.trimEnd())
        return problem === null ? [] : [`${file.path}:${at + 1}: ${problem}`]
      }),
  )
}

const longLine = ({ length }: string): string | null =>
  length > maxProseLine ? `${length} characters in a line, at most ${maxProseLine}` : null

function longCell(row: string): string | null {
  const cells = row.split(/(?<!\\)\|/)
  const words = Math.max(...cells.map((cell) => cell.split(/\s+/).filter(Boolean).length))
  return words > maxCellWords ? `${words} words in a table cell, at most ${maxCellWords}` : null
}

type Versions = Readonly<Record<string, string>>

const dependencyRecord = 'docs/decisions/0006-dependencies.md'

/** The headings of the record on dependencies, each with the field of `package.json` it lists. */
const dependencyTables = {
  Dependencies: 'dependencies',
  'Optional peers': 'peerDependencies',
  'Development only': 'devDependencies',
} as const

/** Packages that only the record or only `package.json` lists, and versions that differ. */
export function wrongDependencies(files: readonly SourceFile[]): string[] {
  const manifest = files.find(({ path }) => path === 'package.json')?.text ?? '{}'
  const fields = JSON.parse(manifest) as Readonly<Record<string, Versions | undefined>>
  const peers = fields['peerDependencies'] ?? {}
  const record = files.find(({ path }) => path === dependencyRecord)?.text ?? ''
  const wrong = Object.entries(dependencyTables).flatMap(([heading, field]) => {
    const listed = documented(record, heading, ['package']).flatMap((cell) => cell.split(', '))
    const names = Object.keys(fields[field] ?? {})
    const isPeer = (name: string): boolean => field === 'devDependencies' && name in peers
    return differences(
      dependencyRecord,
      listed,
      names.filter((name) => !isPeer(name)),
    )
  })
  return [
    ...wrong,
    ...staleVersions(files, { ...fields['devDependencies'], ...fields['dependencies'] }),
  ]
}

/** Names with a version behind them in decision records, where another version is installed. */
function staleVersions(files: readonly SourceFile[], installed: Versions): string[] {
  const records = files.filter(({ path }) => path.startsWith('docs/decisions/'))
  return records.flatMap((file) =>
    Array.from(file.text.matchAll(/`([@\w./-]+)` \(?(\d+\.\d+\.\d+)/g))
      .filter(([, name = '', version]) => (installed[name] ?? version) !== version)
      .map(({ 0: text, index }) => `${file.path}:${lineAt(file, index)}: ${text} is not installed`),
  )
}
