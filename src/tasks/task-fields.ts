/** The options that all tasks have, and their validation. */

import { parseUidNumber, formatUid } from '../foundation/ids.ts'
import { type JsonObject, toJsonObject } from '../foundation/json-value.ts'
import {
  expectId,
  expectKnownKeys,
  expectNumber,
  expectObject,
  invalid,
} from '../foundation/options.ts'
import { resolveRetries, type RetryOptions, type RetryPolicy } from './retries.ts'

/** Options that all kinds of tasks share. */
export interface TaskOptions {
  /** The id of the task, which must be unique in the session. Default: generated. */
  readonly uid?: string
  /**
   * The display name, by which views, commands and reports group tasks; at most 200 characters.
   * Default: the name of the function or model, or the program's base name with its script.
   */
  readonly name?: string
  /** The name of the backend to use. Default: the first backend that accepts the task. */
  readonly backend?: string
  /** The time limit of each attempt, in seconds from its start. Default: no limit. */
  readonly timeoutSeconds?: number
  /** Aborting this signal cancels the task. */
  readonly signal?: AbortSignal
  /** The maximum number of retries after a failure, or an object with retry options. Default 0. */
  readonly retries?: number | RetryOptions
  /** Tasks with a higher priority run earlier. Default 0. */
  readonly priority?: number
  /** Attributes to add to the task's events. */
  readonly attributes?: object
}

export const taskOptionNames = [
  'uid',
  'name',
  'backend',
  'timeoutSeconds',
  'signal',
  'retries',
  'priority',
  'attributes',
]

/** Validated options, from which any number of tasks can be created. */
export interface TaskFields {
  /** The id of the task; `null` to generate it. */
  readonly uid: string | null
  readonly name: string | null
  readonly backend: string | null
  readonly timeoutSeconds: number | null
  readonly signal: AbortSignal | null
  readonly retries: RetryPolicy
  readonly priority: number
  readonly attributes: JsonObject | null
}

export function checkTaskOptions(options: TaskOptions): TaskFields {
  const { uid, name, backend, timeoutSeconds, signal, attributes } = options
  const { retries = 0, priority = 0 } = options
  return {
    uid: uid === undefined ? null : expectUid(uid),
    name: name === undefined ? null : expectTaskName(name),
    backend: backend === undefined ? null : expectBackendName(backend),
    timeoutSeconds:
      timeoutSeconds === undefined
        ? null
        : expectNumber('timeoutSeconds', timeoutSeconds, { above: 0, max: 2 ** 31 }),
    signal: signal === undefined ? null : expectSignal(signal),
    retries: resolveRetries(retries),
    priority: expectNumber('priority', priority),
    attributes: attributes === undefined ? null : toAttributes(attributes),
  }
}

/** Requires a short name on one line, because names label rows and columns. */
export function expectTaskName(name: unknown): string {
  const isName =
    typeof name === 'string' && name.length <= maxNameLength && /^[^\p{Cc}]+$/u.test(name)
  if (isName && name.trim() !== '') return name
  throw invalid('name', `a string of 1 to ${maxNameLength} characters on one line`, name)
}

function expectSignal(signal: unknown): AbortSignal {
  if (signal instanceof AbortSignal) return signal
  throw invalid('signal', 'an AbortSignal', signal)
}

const maxNameLength = 200

const reservedAttributes = new Set([
  'executable',
  'task_type',
  'task_name',
  'error_type',
  'incomplete_lifecycle',
  'definition_hash',
  'dependencies',
  'origin_uid',
  'origin_files_back',
  'workflow_id',
  'worker_id',
  'attempt',
  'cpu_seconds',
  'peak_memory_bytes',
  'exit_code',
  'signal',
  'error_message',
  'error_stack',
  'error_hint',
  'reason',
  'stdout_tail',
  'stderr_tail',
  'stdout_truncated',
  'stderr_truncated',
  'stdout_path',
  'stderr_path',
  'result',
  'result_omitted',
  'reused',
  'resources',
  'gen_ai.response.finish_reasons',
])

/** Whether the name is reserved for the library. */
export const isLibraryAttribute = (name: string): boolean =>
  reservedAttributes.has(name) || name.startsWith('tutti.')

function toAttributes(given: unknown): JsonObject {
  const attributes = toJsonObject(expectObject('attributes', given))
  for (const name of Object.keys(attributes)) {
    if (isLibraryAttribute(name)) {
      throw invalid(`attributes.${name}`, 'a name that the library does not use itself', name)
    }
  }
  return attributes
}

function expectBackendName(backend: unknown): string {
  if (typeof backend === 'string' && backend !== '') return backend
  throw invalid('backend', "a backend's name", backend)
}

export function expectTaskOptions(
  className: string,
  options: unknown,
  known: readonly string[],
): void {
  expectKnownKeys(className, expectObject('options', options), known)
}

let lastGenerated = 0

export function generateUid(): string {
  return formatUid(++lastGenerated)
}

/**
 * A process generates fewer uids than this. A chosen uid with a larger number does not change
 * `lastGenerated`.
 */
const maxGenerated = 10 ** 13

/**
 * If a chosen uid has the form of a generated one, advances `lastGenerated`, so that the same uid
 * is not generated later.
 */
export function expectUid(given: unknown): string {
  const uid = expectId('uid', given)
  const number = parseUidNumber(uid) ?? 0
  if (number < maxGenerated) lastGenerated = Math.max(lastGenerated, number)
  return uid
}
