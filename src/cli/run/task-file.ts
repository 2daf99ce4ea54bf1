/** Reads a task file: JSON Lines with one task per line, or YAML with a list of tasks. */

import { readAccessHint } from '../../checkpoint/files.ts'
import { errnoOf, messageOf, ValueError } from '../../foundation/errors.ts'
import { didYouMean } from '../../foundation/options.ts'
import { readTextFileSync } from '../../foundation/regular-file.ts'
import { ComputeTask, type ConcurrentBackend, type ExecutableOptions } from '../../index.ts'
import {
  type ConfigNode,
  ConfigProblems,
  isEmptyNode,
  type MapNode,
  type SourcePosition,
  startOfFile,
  treeOf,
  valueOf,
} from '../../inference/config/config-tree.ts'
import { parseYamlTree } from '../../inference/config/yaml-tree.ts'
import { isYamlFile } from './file-kinds.ts'

/** Larger than the limits of a configuration, because a file may have many tasks. */
const yamlLimits = { bytes: 2 ** 26, tokens: 10_000_000 }

/** The keys of a task: the options of `ComputeTask` in snake_case. */
const known = (
  'executable arguments cwd env stdin shell capture_stdio kill_background uid name backend ' +
  'timeout_seconds retries priority attributes resources'
).split(' ')
/** Options with known inner keys. The inner keys of other options are the user's own. */
const nested: Readonly<Record<string, readonly string[]>> = {
  retries: ['times', 'delay_seconds', 'factor', 'max_delay_seconds', 'jitter'],
  resources: ['cores', 'gpus', 'memory_mb', 'ranks', 'ranks_per_node', 'labels', 'seconds'],
  capture_stdio: ['stdout', 'stderr'],
}

/** A task and its position in the file. */
interface Item {
  readonly node: ConfigNode
  readonly position: SourcePosition
}

/**
 * Throws one `ValueError` that lists all problems as `file:line`, including tasks that the backend
 * would refuse.
 */
export async function readTasks(file: string, backend: TaskBackend): Promise<ComputeTask[]> {
  const text = readText(file)
  const problems = new ConfigProblems({ kind: 'file', name: file })
  const items = isYamlFile(file) ? itemsOfYaml(text, problems) : itemsOfLines(text, problems)
  const tasks: ComputeTask[] = []
  const uids = new Map<string, number>()
  if (items.length === 0) problems.add(startOfFile, 'there is no task in this file')
  for (const { node, position } of items) {
    const task = toTask(node, position, problems)
    if (task === null) continue
    const before = uids.get(task.uid)
    if (before !== undefined) problems.add(position, `uid: already used on line ${before}`)
    const refusal = refusalOf(task, backend)
    if (refusal !== null) problems.add(position, withFileKeys(refusal))
    uids.set(task.uid, position.line)
    tasks.push(task)
  }
  problems.throwIfAny()
  return tasks
}

/** The only backend of the session, which runs on this machine. */
type TaskBackend = Pick<ConcurrentBackend, 'name' | 'refuse'>

function refusalOf({ backend: wanted, spec }: ComputeTask, backend: TaskBackend): string | null {
  if (wanted !== null && wanted !== backend.name) {
    return `backend: there is no "${wanted}"; tutti run has only "${backend.name}"`
  }
  const refusal = backend.refuse(spec)
  if (refusal === null) return null
  const where = refusal.field.startsWith('resources') ? ' (this machine)' : ''
  return `${refusal.field}: ${refusal.message}${where}`
}

function readText(file: string): string {
  try {
    return readTextFileSync(file)
  } catch (error) {
    const hint = errnoOf(error) === 'EACCES' ? { hint: readAccessHint } : {}
    throw new ValueError(`Cannot read ${file}: ${messageOf(error)}`, {
      field: 'file',
      got: file,
      ...hint,
    })
  }
}

function itemsOfYaml(text: string, problems: ConfigProblems): readonly Item[] {
  const root = parseYamlTree(text, problems, yamlLimits)
  if (isEmptyNode(root)) return []
  if (root.kind === 'list') return root.items.map((node) => ({ node, position: node.position }))
  problems.add(root.position, 'expected a list of tasks')
  return []
}

function itemsOfLines(text: string, problems: ConfigProblems): readonly Item[] {
  return text.split('\n').flatMap((line, at) => {
    const position = { ...startOfFile, line: at + 1 }
    if (line.trim() === '') return []
    try {
      return { node: treeOf(JSON.parse(line)), position }
    } catch {
      problems.add(position, 'not valid JSON')
      return []
    }
  })
}

function toTask(
  node: ConfigNode,
  position: SourcePosition,
  problems: ConfigProblems,
): ComputeTask | null {
  if (node.kind !== 'map') {
    problems.add(position, 'expected a task: an object with `executable`')
    return null
  }
  const unknown = [...unknownKeys(node, known)]
  for (const { key, value } of node.entries) {
    const keys = nested[key]
    if (keys !== undefined && value.kind === 'map') unknown.push(...unknownKeys(value, keys, key))
  }
  for (const { position: own, text } of unknown) {
    // In JSON Lines only the line of a problem is known.
    problems.add(own.line > position.line ? own : position, text)
  }
  if (unknown.length > 0) return null
  try {
    return new ComputeTask(toOptions(node))
  } catch (error) {
    problems.add(position, withFileKeys(messageOf(error)))
    return null
  }
}

interface UnknownKey {
  readonly position: SourcePosition
  readonly text: string
}

const unknownKeys = (node: MapNode, keys: readonly string[], parent?: string): UnknownKey[] =>
  node.entries.flatMap(({ key, position }) => {
    if (keys.includes(key)) return []
    const place = parent === undefined ? '' : `${parent}.`
    return { position, text: `${place}${key}: unknown key${didYouMean(key, keys)}` }
  })

/** Replaces option names in a message by the keys used in the file. */
const withFileKeys = (message: string): string =>
  message.replaceAll(camelCaseKey, (key) => fileKeys.get(key) ?? key)

function toOptions(node: MapNode): ExecutableOptions {
  const entries = Object.entries(valueOf(node) as Record<string, unknown>)
  const options = entries.map(([key, value]) => [
    toCamelCase(key),
    key in nested && isRecord(value) ? withCamelCase(value) : value,
  ])
  return Object.fromEntries(options)
}

const isRecord = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

const withCamelCase = (value: Record<string, unknown>): object =>
  Object.fromEntries(Object.entries(value).map(([key, part]) => [toCamelCase(key), part]))

const toCamelCase = (key: string): string =>
  key.replaceAll(/_([a-z])/g, (_, letter: string) => letter.toUpperCase())

const camelCaseKey = /\b[a-z]+(?:[A-Z][a-z]+)+\b/g
/** Keys by option name. */
const fileKeys = new Map(
  [...known, ...Object.values(nested).flat()].map((key) => [toCamelCase(key), key]),
)
