/** The door of the configuration file, and the only file that knows the YAML parser. */

import { basename } from 'node:path'
import {
  type Document,
  isAlias,
  isMap,
  isNode,
  isScalar,
  isSeq,
  Lexer,
  type ParsedNode,
  parseDocument,
} from 'yaml'
import { ValueError } from '../../foundation/errors.ts'
import { type Log, processLog } from '../../foundation/log.ts'
import { maxConfigBytes, readConfigFile, tokenFilesBeside, warnOfReaders } from './files.ts'
import { resolveOverrides } from './overrides.ts'
import type { ConfigFiles } from './required.ts'
import { resolveConfig } from './resolve.ts'
import type { InferenceConfig, InferenceOverrides } from './inference-config.ts'
import {
  type ConfigEntry,
  type ConfigNode,
  type Place,
  placesIn,
  Problems,
  showKey,
  startOfFile,
} from './tree.ts'
import { syntaxProblem } from './syntax.ts'

/** The parser's time grows with the tokens, and its stack with the depth. */
const maxTokens = 20_000
const maxDepth = 100
const maxAliases = 32

/** Reads, checks and completes a file: an override wins over it, and it wins over defaults. */
export async function loadInferenceConfig(
  path: string,
  overrides: InferenceOverrides = {},
  log: Log = processLog,
): Promise<InferenceConfig> {
  const checked = resolveOverrides(overrides)
  const { text, mode } = await readConfigFile(path)
  const files = tokenFilesBeside(path, log)
  const config = parseInferenceConfig(text, {
    file: basename(path),
    env: process.env,
    overrides: checked,
    files,
  })
  const { engine, hubToken } = config
  const secrets = [hubToken, engine.kind === 'openai' ? engine.apiKey : null]
  const holdsOne = secrets.some((secret) => secret !== null && text.includes(secret.reveal()))
  if (holdsOne) warnOfReaders(log, path, mode & 0o004)
  return config
}

export interface ParseOptions {
  /** The file's name, for messages. */
  readonly file: string
  /** For `${env:NAME}`. */
  readonly env: Readonly<Record<string, string | undefined>>
  readonly overrides?: InferenceOverrides
  /** Default: there are none. */
  readonly files?: ConfigFiles
}

/** The same for a text: pure, but for the files it is lent. One error tells all problems. */
export function parseInferenceConfig(text: string, options: ParseOptions): InferenceConfig {
  const { file, env, files = noFiles, overrides = {} } = options
  const problems = new Problems(file)
  const root = parseTree(text, problems)
  return resolveConfig(root, { problems, env, files, overrides: resolveOverrides(overrides) })
}

const noFiles: ConfigFiles = {
  exists: () => false,
  readToken() {
    throw new ValueError('there are no files')
  },
}

/** YAML 1.2 without tags, directives and merges; of every key one. */
function parseTree(text: string, problems: Problems): ConfigNode {
  const placeAt = placesIn(text)
  refuseTheCostly(text, problems, placeAt)
  problems.throwIfAny()
  const document = parseDocument(text, {
    version: '1.2',
    schema: 'core',
    merge: false,
    // Its own check compares every key with every other one; the tree's is quick and says where.
    uniqueKeys: false,
    logLevel: 'error',
  })
  for (const { code, pos } of [...document.errors, ...document.warnings]) {
    problems.add(placeAt(pos[0]), syntaxProblem(code))
  }
  problems.throwIfAny()
  const root = toTree(document, problems, placeAt)
  problems.throwIfAny()
  return root
}

/** Looks at the tokens alone, before anything grows from them. */
function refuseTheCostly(
  text: string,
  problems: Problems,
  placeAt: (offset: number) => Place,
): void {
  let [offset, tokens, aliases, open, line] = [0, 0, 0, 0, 0]
  let isText = false
  if (text.length > maxConfigBytes) {
    return problems.add(startOfFile, `larger than ${maxConfigBytes} bytes`)
  }
  const refuse = (problem: string): void => problems.add(placeAt(offset), problem)
  for (const token of new Lexer().lex(text)) {
    const first = token.charAt(0)
    if (isControl(first)) {
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

/** The lexer's own marks, which stand for no character of the text. */
const isControl = (first: string): boolean =>
  first === '\u0002' || first === '\u0018' || first === '\u001F'

function toTree(
  document: Document.Parsed,
  problems: Problems,
  placeAt: (offset: number) => Place,
): ConfigNode {
  const nothing = (place: Place): ConfigNode => ({ kind: 'scalar', value: null, source: '', place })

  const convert = (node: ParsedNode, place: Place, isAliased: boolean): ConfigNode => {
    if (isAlias(node)) {
      const target = isAliased ? undefined : node.resolve(document)
      if (target !== undefined) return convert(target as ParsedNode, place, true)
      const problem = isAliased ? 'stands in a value that has an alias itself' : 'names no anchor'
      problems.add(place, `the alias ${problem}`)
      return nothing(place)
    }
    if (isSeq(node)) {
      const items = node.items.map((item) => convertAny(item, place, isAliased))
      return { kind: 'list', items, place }
    }
    if (!isMap(node)) {
      return { kind: 'scalar', value: scalarOf(node.value), source: node.source, place }
    }
    const entries: ConfigEntry[] = []
    const seen = new Map<string, Place>()
    for (const { key, value } of node.items) {
      const keyPlace = isNode(key) ? placeAt(key.range[0]) : place
      if (!isScalar(key)) {
        problems.add(keyPlace, 'a key must be a plain word')
        continue
      }
      const name = String(key.value)
      const before = seen.get(name)
      if (before !== undefined) {
        problems.add(keyPlace, `${showKey(name)}: given before, on line ${before.line}`)
      } else if (/^(?:__proto__|constructor|prototype)$/.test(name)) {
        problems.add(keyPlace, `${name}: not allowed as a key`)
      }
      seen.set(name, keyPlace)
      entries.push({ key: name, place: keyPlace, value: convertAny(value, keyPlace, isAliased) })
    }
    return { kind: 'map', entries, place }
  }

  const convertAny = (node: ParsedNode | null, place: Place, isAliased: boolean): ConfigNode =>
    node === null ? nothing(place) : convert(node, placeAt(node.range[0]), isAliased)

  return convertAny(document.contents, startOfFile, false)
}

function scalarOf(value: unknown): string | number | boolean | null {
  if (typeof value === 'string' || typeof value === 'number' || typeof value === 'boolean') {
    return value
  }
  return null
}
