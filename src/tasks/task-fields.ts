/** The options that all tasks have, those of retries too, and their validation. */

import { ValueError } from '../foundation/errors.ts'
import { parseUidNumber, formatUid } from '../foundation/ids.ts'
import { type JsonObject, toJsonObject } from '../foundation/json-value.ts'
import { definedFields, expectFunction, expectId, expectInteger } from '../foundation/options.ts'
import { expectKnownKeys, expectNumber, expectObject } from '../foundation/options.ts'
import { expectReadable, invalid } from '../foundation/options.ts'

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

/** How many times, when, and after which errors a failed attempt is retried. */
export interface RetryOptions {
  /** The maximum number of retries. */
  readonly times: number
  /** Seconds before the first retry. Default 0. */
  readonly delaySeconds?: number
  /** Each delay is the previous delay multiplied by this factor. Default 2. */
  readonly factor?: number
  /** The maximum delay in seconds. Default 60. */
  readonly maxDelaySeconds?: number
  /** The maximum random change of each delay, as a fraction from 0 to 1. Default 0. */
  readonly jitter?: number
  /** Decides from the thrown value whether to retry. Default: always retry. */
  readonly if?: (error: unknown) => boolean
}

/** Retry options with defaults filled in. */
export interface RetryPolicy {
  readonly times: number
  readonly delaySeconds: number
  readonly factor: number
  readonly maxDelaySeconds: number
  readonly jitter: number
  /** Decides from the thrown value whether to retry; `null` to retry after every error. */
  readonly if: ((error: unknown) => boolean) | null
}

const defaults = { delaySeconds: 0, factor: 2, maxDelaySeconds: 60, jitter: 0 }
const delayLimitSeconds = 2 ** 31
const optionNames = ['times', ...Object.keys(defaults), 'if']

/**
 * Below this number of retries, tasks without other retry options share their policy, which saves
 * memory in programs with many tasks.
 */
const maxSharedPolicies = 64
const sharedPolicies = Array.from({ length: maxSharedPolicies }, (_, times) => createPolicy(times))

function createPolicy(times: number): RetryPolicy {
  return Object.freeze({ times, ...defaults, if: null })
}

export function resolveRetries(given: unknown): RetryPolicy {
  if (typeof given !== 'object') {
    const times = expectInteger('retries', given, { min: 0 })
    return sharedPolicies[times] ?? createPolicy(times)
  }
  const options = expectObject('retries', given)
  return expectReadable('retries', given, () => resolvePolicy(options))
}

function resolvePolicy(options: Readonly<Record<string, unknown>>): RetryPolicy {
  expectKnownKeys('a task', options, optionNames, 'retries.')
  const { times, if: condition, ...delays } = options
  const { delaySeconds, factor, maxDelaySeconds, jitter } = {
    ...defaults,
    ...definedFields(delays),
  }
  if (condition !== undefined) expectFunction('retries.if', condition)
  const policy = {
    times: expectInteger('retries.times', times, { min: 0 }),
    delaySeconds: expectSeconds('retries.delaySeconds', delaySeconds),
    factor: expectNumber('retries.factor', factor, { min: 1 }),
    maxDelaySeconds: expectSeconds('retries.maxDelaySeconds', maxDelaySeconds),
    jitter: expectNumber('retries.jitter', jitter, { min: 0, max: 1 }),
    if: (condition ?? null) as RetryPolicy['if'],
  }
  expectDelayInRange(policy)
  return Object.freeze(policy)
}

const expectSeconds = (field: string, value: unknown): number =>
  expectNumber(field, value, { min: 0, max: delayLimitSeconds })

/** Rejects a delay above `maxDelaySeconds`, which would otherwise be cut silently. */
function expectDelayInRange({ delaySeconds, maxDelaySeconds }: RetryPolicy): void {
  if (delaySeconds <= maxDelaySeconds) return
  const field = 'retries.delaySeconds'
  const text = `\`${field}\` is ${delaySeconds}, but \`maxDelaySeconds\` is ${maxDelaySeconds}`
  const expected = `at most ${maxDelaySeconds}`
  const hint = 'Give a larger `maxDelaySeconds` as well: its default is 60.'
  throw new ValueError(text, { field, expected, got: delaySeconds, hint })
}
