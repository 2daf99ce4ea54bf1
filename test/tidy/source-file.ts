/** The files that the tidy rules judge, read and parsed once. Rules take them as data. */

import { execFileSync } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { join, posix } from 'node:path'
import { type ParseResult, parseSync } from 'oxc-parser'

/** A file by its path from the repository's root, with `/` between the parts. */
export interface SourceFile {
  readonly path: string
  readonly text: string
}

/** A node of the syntax tree; what else it holds depends on its type. */
export interface SyntaxNode {
  readonly type: string
  readonly start: number
  readonly end: number
  readonly [property: string]: unknown
}

/** One mention of a module. `target` is its path from the root when the specifier is relative. */
export interface Import {
  readonly specifier: string
  readonly target: string | null
  readonly isType: boolean
  readonly line: number
}

const isText = (path: string): boolean => !/\.(?:tgz|telemetry\.jsonl|png|gz|bin)$/.test(path)

/** Every file of the repository, including files not yet added, but not those that git ignores. */
export function listPaths(root: string): string[] {
  const list = ['ls-files', '-z', '--cached', '--others', '--exclude-standard']
  const output = execFileSync('git', list, { cwd: root, encoding: 'utf8', maxBuffer: 1 << 26 })
  const paths = new Set(output.split('\0').filter((path) => path !== ''))
  // A file that was deleted or moved is listed until the change is added.
  return [...paths].filter((path) => existsSync(join(root, path))).toSorted()
}

/** Every file of the repository. Files that are not text are empty. */
export function readTree(root: string): SourceFile[] {
  return listPaths(root).map((path) => {
    return { path, text: isText(path) ? readFileSync(join(root, path), 'utf8') : '' }
  })
}

/** The code files below a folder, such as `src`. */
export function codeIn(files: readonly SourceFile[], ...folders: string[]): SourceFile[] {
  return files.filter(
    ({ path }) =>
      /\.m?[jt]sx?$/.test(path) && folders.some((folder) => path.startsWith(`${folder}/`)),
  )
}

/** Whether a path is `pattern`: a file, a folder ending in `/`, or a file name with `*` in it. */
export function isAt(path: string, pattern: string): boolean {
  if (pattern.endsWith('/')) return path.startsWith(pattern)
  const [before = '', after] = pattern.split('*')
  if (after === undefined) return path === pattern
  const middle = path.slice(before.length, path.length - after.length)
  return path.startsWith(before) && path.endsWith(after) && !middle.includes('/')
}

const parsed = new WeakMap<SourceFile, ParseResult>()

export function parse(file: SourceFile): ParseResult {
  const known = parsed.get(file)
  if (known !== undefined) return known
  const result = parseSync(file.path, file.text)
  parsed.set(file, result)
  return result
}

export function lineAt(file: SourceFile, offset: number): number {
  return file.text.slice(0, offset).split('\n').length
}

/** `path:line: message`, the form of every violation. */
export function violation(file: SourceFile, offset: number, message: string): string {
  return `${file.path}:${lineAt(file, offset)}: ${message}`
}

/** Static, dynamic and re-exporting imports with a literal specifier. */
export function importsOf(file: SourceFile): Import[] {
  const { staticImports, staticExports, dynamicImports } = parse(file).module
  const toImport = (specifier: string, start: number, isType: boolean): Import => ({
    specifier,
    target: specifier.startsWith('.') ? posix.join(posix.dirname(file.path), specifier) : null,
    isType,
    line: lineAt(file, start),
  })
  const statics = staticImports.map(({ moduleRequest, start, entries }) => {
    const isType = entries.length > 0 && entries.every((entry) => entry.isType)
    return toImport(moduleRequest.value, start, isType)
  })
  const exports = staticExports.flatMap(({ entries, start }) => {
    const specifier = entries[0]?.moduleRequest?.value
    const isType = entries.every((entry) => entry.isType)
    return specifier === undefined ? [] : [toImport(specifier, start, isType)]
  })
  const dynamics = dynamicImports.flatMap(({ moduleRequest, start }) => {
    const literal = /^(['"])(.+)\1$/.exec(file.text.slice(moduleRequest.start, moduleRequest.end))
    return literal?.[2] === undefined ? [] : [toImport(literal[2], start, false)]
  })
  return [...statics, ...exports, ...dynamics]
}

type Visit = (node: SyntaxNode, parent: SyntaxNode | null, property: string) => void

/** The arguments of a visit, for every node of a file. */
const visits = new WeakMap<SourceFile, Parameters<Visit>[]>()

/** Visits every node, parents first. */
export function walk(file: SourceFile, visit: Visit): void {
  let nodes = visits.get(file)
  if (nodes === undefined) {
    nodes = listNodes(file)
    visits.set(file, nodes)
  }
  for (const [node, parent, property] of nodes) visit(node, parent, property)
}

function listNodes(file: SourceFile): Parameters<Visit>[] {
  const nodes: Parameters<Visit>[] = []
  const enter = (value: unknown, parent: SyntaxNode | null, property: string): void => {
    if (Array.isArray(value)) {
      for (const item of value) enter(item, parent, property)
    } else if (isNode(value)) {
      nodes.push([value, parent, property])
      for (const [key, child] of Object.entries(value)) enter(child, value, key)
    }
  }
  enter(parse(file).program, null, '')
  return nodes
}

export function isNode(value: unknown): value is SyntaxNode {
  return typeof value === 'object' && value !== null && 'type' in value && 'start' in value
}

/** `a.b.c` for a plain chain of names, else `undefined`. A leading `globalThis.` is left out. */
export function dottedName(node: unknown): string | undefined {
  if (!isNode(node)) return undefined
  if (node.type === 'Identifier') return String(node['name'])
  if (node.type !== 'MemberExpression' || node['computed'] === true) return undefined
  const object = dottedName(node['object'])
  const property = dottedName(node['property'])
  if (object === undefined || property === undefined) return undefined
  return object === 'globalThis' ? property : `${object}.${property}`
}
