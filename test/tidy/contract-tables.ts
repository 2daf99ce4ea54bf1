/** The tables of `docs/` compared with the code: neither may say what the other does not. */

import {
  codeIn,
  dottedName,
  isNode,
  type SourceFile,
  type SyntaxNode,
  walk,
} from './source-file.ts'

/** A table of a Markdown file, below its nearest heading; cells without back-ticks and anchors. */
interface Table {
  readonly heading: string
  readonly columns: readonly string[]
  readonly rows: readonly (readonly string[])[]
}

function tablesOf(markdown: string): Table[] {
  const tables: { heading: string; columns: string[]; rows: string[][] }[] = []
  let heading = ''
  let isInside = false
  for (const line of markdown.split('\n')) {
    const title = /^#+\s+(.*)$/.exec(line)?.[1]
    if (title !== undefined) heading = title.trim()
    const isRow = line.startsWith('|')
    if (isRow && !isInside) tables.push({ heading, columns: cellsOf(line), rows: [] })
    else if (isRow && !/^[|\s:-]+$/.test(line)) tables.at(-1)?.rows.push(cellsOf(line))
    isInside = isRow
  }
  return tables
}

const cellsOf = (line: string): string[] =>
  line
    .replace(/^\||\|\s*$/g, '')
    .split(/(?<!\\)\|/)
    .map((cell) => cell.replace(/<a id="\w+"><\/a>/, ''))
    .map((cell) => cell.replaceAll('`', '').replaceAll('\\|', '|').trim())

/** The rows of the table below `heading`, cut to its first columns. */
export function documented(
  markdown: string,
  heading: string,
  columns: readonly string[],
): string[] {
  const table = tablesOf(markdown).find((one) => one.heading === heading)
  if (table === undefined) return [`no table below "${heading}"`]
  const picked = columns.map((column) => table.columns.indexOf(column))
  if (picked.includes(-1)) return [`"${heading}" lacks a column of: ${columns.join(', ')}`]
  return table.rows.map((row) => picked.map((at) => row[at] ?? '').join(' | '))
}

/** Entries that only the documents have, and entries that only the code has. */
export function differences(
  document: string,
  inDocument: readonly string[],
  inCode: readonly string[],
): string[] {
  return [
    ...inDocument.filter((row) => !inCode.includes(row)).map((row) => `${document}: stale: ${row}`),
    ...inCode.filter((row) => !inDocument.includes(row)).map((row) => `${document}: lacks: ${row}`),
  ]
}

/** The name of every event class that `src` defines under a namespace. */
export function namespacedEvents(files: readonly SourceFile[]): string[] {
  return literalsIn(files, (node) => {
    if (node.type !== 'CallExpression') return undefined
    const callee = dottedName(node['callee'])
    if (callee !== 'defineEvent' && callee !== 'createEventClass') return undefined
    const text = stringOf(argumentsOf(node)[0])
    return text?.includes('.') === true ? text : undefined
  })
}

/** `class | base` of every exported class that descends from `TuttiError`. */
export function errorClasses(files: readonly SourceFile[]): string[] {
  const bases = new Map<string, string>()
  walkAll(files, (node, parent) => {
    if (node.type !== 'ClassDeclaration' || parent?.type !== 'ExportNamedDeclaration') return
    const [name, base] = [dottedName(node['id']), dottedName(node['superClass'])]
    if (name !== undefined) bases.set(name, base ?? '')
  })
  const isOurs = (name: string): boolean =>
    name === 'TuttiError' || (bases.has(name) && isOurs(bases.get(name) ?? ''))
  return [...bases].flatMap(([name, base]) => (isOurs(name) ? [`${name} | ${base}`] : []))
}

/** `code | class` of every error that is made with a literal code. */
export function errorCodes(files: readonly SourceFile[]): string[] {
  return literalsIn(files, (node) => {
    const errorClass = errorClassOf(node)
    if (errorClass === undefined) return undefined
    const code = argumentsOf(node).map((argument) => stringOf(propertyOf(argument, 'code')))
    const given = code.find((one) => one !== undefined)
    return given === undefined ? undefined : `${given} | ${errorClass}`
  })
}

/** The class of an error that is created here. */
function errorClassOf(node: SyntaxNode): string | undefined {
  const name = dottedName(node['callee'])
  // The HTTP server leaves the class to its owner; the only one is the inference server.
  if (node.type === 'CallExpression' && name === 'toListenError') return 'InferenceError'
  return node.type === 'NewExpression' && name?.endsWith('Error') === true ? name : undefined
}

/** Every literal code that is given to a `warn` or a class's own `#warn`; a sentence is no code. */
export function warningCodes(files: readonly SourceFile[]): string[] {
  return literalsIn(files, (node) => {
    if (node.type !== 'CallExpression' || !isNode(node['callee'])) return undefined
    const method = node['callee']['property']
    if (!isNode(method) || method['name'] !== 'warn') return undefined
    const code = stringOf(argumentsOf(node)[0])
    return code !== undefined && /^[A-Za-z]+$/.test(code) ? code : undefined
  })
}

function walkAll(files: readonly SourceFile[], visit: Parameters<typeof walk>[1]): void {
  for (const file of codeIn(files, 'src')) walk(file, visit)
}

function literalsIn(
  files: readonly SourceFile[],
  read: (node: SyntaxNode) => string | undefined,
): string[] {
  const found = new Set<string>()
  walkAll(files, (node) => {
    const literal = read(node)
    if (literal !== undefined) found.add(literal)
  })
  return [...found].toSorted()
}

function argumentsOf(node: SyntaxNode): readonly unknown[] {
  return Array.isArray(node['arguments']) ? node['arguments'] : []
}

function stringOf(node: unknown): string | undefined {
  return isNode(node) && typeof node['value'] === 'string' ? node['value'] : undefined
}

function propertiesOf(node: unknown): readonly SyntaxNode[] {
  if (!isNode(node) || node.type !== 'ObjectExpression') return []
  return Array.isArray(node['properties']) ? node['properties'].filter(isNode) : []
}

function propertyOf(node: unknown, name: string): unknown {
  return propertiesOf(node).find((property) => dottedName(property['key']) === name)?.['value']
}
