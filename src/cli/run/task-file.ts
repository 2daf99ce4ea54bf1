/** Reads a task file: JSON Lines with one task per line, or YAML with a list of tasks. */

import { readAccessHint } from '../../checkpoint/files.ts'
import { errnoOf, messageOf, ValueError } from '../../foundation/errors.ts'
import { isPlainObject } from '../../foundation/json-value.ts'
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
  toConfigNode,
  toPlainValue,
} from '../../inference/config/config-tree.ts'
import { parseYamlTree } from '../../inference/config/yaml-tree.ts'
import { isYamlFile } from './file-kinds.ts'

/** A file may have many tasks, so the limits are larger than for a configuration. */
const yamlLimits = { bytes: 2 ** 26, tokens: 10_000_000 }

/** The keys of a task: the options of `ComputeTask` in snake_case. */
const taskKeys = (
  'executable arguments cwd env stdin shell capture_stdio kill_background uid name backend ' +
  'timeout_seconds retries priority attributes resources'
).split(' ')
/** The inner keys of options. The keys of `env` and `attributes` are not checked. */
const nestedKeys: Readonly<Record<string, readonly string[]>> = {
  retries: ['times', 'delay_seconds', 'factor', 'max_delay_seconds', 'jitter'],
  resources: ['cores', 'gpus', 'memory_mb', 'ranks', 'ranks_per_node', 'labels', 'seconds'],
  capture_stdio: ['stdout', 'stderr'],
}

interface TaskItem {
  readonly node: ConfigNode
  readonly position: SourcePosition
}

/**
 * Reads the tasks of a file. Throws a `ValueError` that lists all problems, including tasks that
 * the backend would refuse.
 */
export async function readTasks(file: string, backend: TaskBackend): Promise<ComputeTask[]> {
  const text = readText(file)
  const problems = new ConfigProblems({ kind: 'file', name: file })
  const items = isYamlFile(file) ? parseYamlItems(text, problems) : parseJsonLines(text, problems)
  const tasks: ComputeTask[] = []
  const uids = new Map<string, number>()
  if (items.length === 0) problems.add(startOfFile, 'there is no task in this file')
  for (const { node, position } of items) {
    const task = toTask(node, position, problems)
    if (task === null) continue
    const before = uids.get(task.uid)
    if (before !== undefined) problems.add(position, `uid: already used on line ${before}`)
    const refusal = explainRefusal(task, backend)
    if (refusal !== null) problems.add(position, replaceOptionNames(refusal))
    uids.set(task.uid, position.line)
    tasks.push(task)
  }
  problems.throwIfAny()
  return tasks
}

type TaskBackend = Pick<ConcurrentBackend, 'name' | 'refuse'>

function explainRefusal(
  { backend: wanted, spec }: ComputeTask,
  backend: TaskBackend,
): string | null {
  if (wanted !== null && wanted !== backend.name) {
    return `backend: there is no "${wanted}"; tutti run has only "${backend.name}"`
  }
  const refusal = backend.refuse(spec)
  if (refusal === null) return null
  const machineText = refusal.field.startsWith('resources') ? ' (this machine)' : ''
  return `${refusal.field}: ${refusal.message}${machineText}`
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

function parseYamlItems(text: string, problems: ConfigProblems): readonly TaskItem[] {
  const root = parseYamlTree(text, problems, yamlLimits)
  if (isEmptyNode(root)) return []
  if (root.kind === 'list') return root.items.map((node) => ({ node, position: node.position }))
  problems.add(root.position, 'expected a list of tasks')
  return []
}

function parseJsonLines(text: string, problems: ConfigProblems): readonly TaskItem[] {
  return text.split('\n').flatMap((line, at) => {
    const position = { ...startOfFile, line: at + 1 }
    if (line.trim() === '') return []
    try {
      return { node: toConfigNode(JSON.parse(line)), position }
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
  const unknown = [...unknownKeys(node, taskKeys)]
  for (const { key, value } of node.entries) {
    const keys = nestedKeys[key]
    if (keys !== undefined && value.kind === 'map') unknown.push(...unknownKeys(value, keys, key))
  }
  for (const { position: own, text } of unknown) {
    // In JSON Lines, positions within the line are unknown.
    problems.add(own.line > position.line ? own : position, text)
  }
  if (unknown.length > 0) return null
  try {
    return new ComputeTask(toOptions(node))
  } catch (error) {
    problems.add(position, replaceOptionNames(messageOf(error)))
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

const replaceOptionNames = (message: string): string =>
  message.replaceAll(camelCaseKey, (key) => fileKeys.get(key) ?? key)

function toOptions(node: MapNode): ExecutableOptions {
  const entries = Object.entries(toPlainValue(node) as Record<string, unknown>)
  const options = entries.map(([key, value]) => [
    toCamelCase(key),
    key in nestedKeys && isPlainObject(value) ? camelCaseKeys(value) : value,
  ])
  return Object.fromEntries(options)
}

const camelCaseKeys = (value: Readonly<Record<string, unknown>>): object =>
  Object.fromEntries(Object.entries(value).map(([key, part]) => [toCamelCase(key), part]))

const toCamelCase = (key: string): string =>
  key.replaceAll(/_([a-z])/g, (_, letter: string) => letter.toUpperCase())

const camelCaseKey = /\b[a-z]+(?:[A-Z][a-z]+)+\b/g
const fileKeys = new Map(
  [...taskKeys, ...Object.values(nestedKeys).flat()].map((key) => [toCamelCase(key), key]),
)
