/** Parses YAML into a tree with positions. The only file that imports the YAML parser. */

import {
  type Document,
  isAlias,
  isMap,
  isNode,
  isScalar,
  isSeq,
  Lexer,
  LineCounter,
  type ParsedNode,
  parseDocument,
} from 'yaml'
import {
  type ConfigEntry,
  type ConfigNode,
  type ConfigProblems,
  maxDepth,
  formatKey,
  type SourcePosition,
  startOfFile,
} from './config-tree.ts'

export const maxConfigBytes = 2 ** 20
/** The limits bound the time of the parser. */
const configLimits = { bytes: maxConfigBytes, tokens: 20_000 }
const maxAliases = 32

/** Parses YAML 1.2 without merge keys. Rejects tags, directives and duplicate keys. */
export function parseYamlTree(
  text: string,
  problems: ConfigProblems,
  limits = configLimits,
): ConfigNode {
  const lines = new LineCounter()
  lines.addNewLine(0)
  for (const { index } of text.matchAll(/\n/g)) lines.addNewLine(index + 1)
  const positionAt = (offset: number): SourcePosition => {
    const { line, col: column } = lines.linePos(offset)
    return { line, column }
  }
  checkTextLimits(text, problems, positionAt, limits)
  problems.throwIfAny()
  const document = parseDocument(text, {
    version: '1.2',
    schema: 'core',
    merge: false,
    // `convertDocument` finds duplicate keys, because the parser's check takes quadratic time.
    uniqueKeys: false,
    logLevel: 'error',
  })
  addSyntaxProblems(document, text, problems, positionAt)
  problems.throwIfAny()
  const root = convertDocument(document, problems, positionAt)
  problems.throwIfAny()
  return root
}

/** Rejects text with too many tokens or too deep nesting before the parser builds a document. */
function checkTextLimits(
  text: string,
  problems: ConfigProblems,
  positionAt: (offset: number) => SourcePosition,
  { bytes: maxBytes, tokens: maxTokens }: typeof configLimits,
): void {
  let [offset, tokens, aliases, open, line] = [0, 0, 0, 0, 0]
  let isText = false
  if (text.length > maxBytes) {
    return problems.add(startOfFile, `larger than ${maxBytes} bytes`)
  }
  const refuse = (problem: string): void => problems.add(positionAt(offset), problem)
  for (const token of new Lexer().lex(text)) {
    const first = token.charAt(0)
    if (controlTokens.has(first)) {
      isText = first === '\u001F'
      continue
    }
    tokens += 1
    if (tokens > maxTokens) return refuse(`more than ${maxTokens} words and signs`)
    if (isText) {
      isText = false
    } else if (first === '\n' || token === '\r\n') {
      line = 0
    } else if (first === ' ') {
      if (offset === 0 || text.charAt(offset - 1) === '\n') line = token.length
    } else if (first === '[' || first === '{') {
      open += 1
    } else if (first === ']' || first === '}') {
      open = Math.max(0, open - 1)
    } else if (open === 0 && (token === '-' || token === '?' || token === ':')) {
      line += 1
    } else if (first === '!') {
      refuse('tags such as !!name are not allowed')
    } else if (first === '%') {
      refuse('directives such as %YAML are not allowed')
    } else if (first === '*') {
      aliases += 1
      if (aliases > maxAliases) return refuse(`more than ${maxAliases} aliases`)
    }
    if (open + line > maxDepth) return refuse(`nested more than ${maxDepth} deep`)
    offset += token.length
  }
}

const controlTokens: ReadonlySet<string> = new Set('\u0002\u0018\u001F')

function convertDocument(
  document: Document.Parsed,
  problems: ConfigProblems,
  positionAt: (offset: number) => SourcePosition,
): ConfigNode {
  const convert = (node: ParsedNode, position: SourcePosition, isAliased: boolean): ConfigNode => {
    if (isAlias(node)) {
      const target = isAliased ? undefined : node.resolve(document)
      if (target !== undefined) return convert(target as ParsedNode, position, true)
      const problem = isAliased ? 'stands in a value that has an alias itself' : 'names no anchor'
      problems.add(position, `the alias ${problem}`)
      return createEmptyNode(position)
    }
    if (isSeq(node)) {
      const items = node.items.map((item) => convertAny(item, position, isAliased))
      return { kind: 'list', items, position }
    }
    if (!isMap(node)) {
      const value = node.value as string | number | boolean | null
      return { kind: 'scalar', value, source: node.source, position }
    }
    const entries: ConfigEntry[] = []
    const seen = new Map<string, SourcePosition>()
    for (const { key, value } of node.items) {
      const keyPosition = isNode(key) ? positionAt(key.range[0]) : position
      if (!isScalar(key)) {
        problems.add(keyPosition, 'a key must be a plain word')
        continue
      }
      const name = String(key.value)
      const before = seen.get(name)
      if (before !== undefined) {
        problems.add(keyPosition, `${formatKey(name)}: given before, on line ${before.line}`)
      } else if (/^(?:__proto__|constructor|prototype)$/.test(name)) {
        problems.add(keyPosition, `${name}: not allowed as a key`)
      }
      seen.set(name, keyPosition)
      const converted = convertAny(value, keyPosition, isAliased)
      entries.push({ key: name, position: keyPosition, value: converted })
    }
    return { kind: 'map', entries, position }
  }

  const convertAny = (
    node: ParsedNode | null,
    position: SourcePosition,
    isAliased: boolean,
  ): ConfigNode =>
    node === null ? createEmptyNode(position) : convert(node, positionAt(node.range[0]), isAliased)

  return convertAny(document.contents, startOfFile, false)
}

const createEmptyNode = (position: SourcePosition): ConfigNode => ({
  kind: 'scalar',
  value: null,
  source: '',
  position,
})

const syntaxProblems: Readonly<Record<string, string>> = {
  BAD_ALIAS: 'the alias has no name or an impossible one',
  BAD_DQ_ESCAPE: 'no such escape in double quotes; single quotes take everything literally',
  BAD_INDENT: 'the indentation fits no line above',
  BAD_SCALAR_START: 'a value beginning with this sign must stand in quotes',
  BLOCK_AS_IMPLICIT_KEY: 'a second key on one line; a value with ": " in it must stand in quotes',
  BLOCK_IN_FLOW: 'inside brackets, a list or keys cannot have lines of their own',
  KEY_OVER_1024_CHARS: 'a key of more than 1024 characters',
  MISSING_CHAR: 'a quote, bracket, comma or colon is missing',
  MULTILINE_IMPLICIT_KEY:
    'a key over several lines; is a ": " missing, or is the next line indented too far?',
  MULTIPLE_ANCHORS: 'more than one anchor on a value',
  MULTIPLE_DOCS: 'a second document; there may be one',
  OPEN_BRACKET: 'a } or ] is missing, or a line between the brackets needs more indentation',
  TAB_AS_INDENT: 'a tab; indent with spaces',
  UNEXPECTED_TOKEN: 'not expected here',
  UNQUOTED_VARIABLE: '${env:NAME} must stand in quotes inside of { } and [ ]',
}

/** Adds one problem per line, because further problems in a line usually follow from the first. */
function addSyntaxProblems(
  document: Document.Parsed,
  text: string,
  problems: ConfigProblems,
  positionAt: (offset: number) => SourcePosition,
): void {
  const byLine = new Map<number, { readonly position: SourcePosition; readonly code: string }>()
  for (const { code, pos, message } of [...document.errors, ...document.warnings]) {
    const position = positionAt(pos[0])
    const before = byLine.get(position.line)?.position
    // The message of this code is preferred, because it also mentions too much indentation.
    const isBetter = code === 'MULTILINE_IMPLICIT_KEY' && before?.column === position.column
    if (before !== undefined && !isBetter) continue
    const isVariable = text.startsWith('${env:', pos[0] - 1)
    const isOpen = code === 'BAD_INDENT' && message.includes('end with a')
    const known = isOpen ? 'OPEN_BRACKET' : code
    byLine.set(position.line, { position, code: isVariable ? 'UNQUOTED_VARIABLE' : known })
  }
  for (const { position, code } of byLine.values()) {
    // The parser's own messages are not used, because they may quote a secret in the file.
    problems.add(position, `not valid YAML: ${syntaxProblems[code] ?? 'cannot be read'}`)
  }
}
