/** The options that sessions and workflow engines share, and their validation. */

import type { Backend, Connection } from '../backends/backend.ts'
import { type Clock, clockMethods, systemClock } from '../foundation/clock.ts'
import { BackendError, ValueError } from '../foundation/errors.ts'
import { newUuid } from '../foundation/ids.ts'
import { type Log, resolveLog } from '../foundation/log.ts'
import {
  expectBoolean,
  expectId,
  expectKnownKeys,
  expectMethods,
  expectNumber,
  expectObject,
  expectString,
  invalid,
} from '../foundation/options.ts'
import { isThenable } from '../foundation/promises.ts'
import { expectWorkDir } from '../tasks/program-options.ts'
import { type NameLimitOptions, resolveNameLimits } from './limits/name-limits.ts'
import { managerOptionNames, type TelemetryOptions } from '../telemetry/options.ts'

/** The id of a session, where its programs run, and its limits. */
export interface SessionOptions {
  /** The session's name in events and files. Default: generated. */
  readonly id?: string
  /**
   * The working directory of programs without `cwd`; a relative `cwd` is resolved against it. It
   * must exist. A relative path is resolved when the session is created. Default: the working
   * directory of the backend.
   */
  readonly workDir?: string
  /**
   * Limits by task name, over all backends together. Default: no limits.
   *
   * @example
   * const limits = { fetch: { concurrent: 4, perSecond: 10 } }
   */
  readonly limits?: NameLimitOptions
  readonly clock?: Clock
  readonly log?: Log
}

export const sessionOptionNames: readonly string[] = ['id', 'workDir', 'limits', 'clock', 'log']

/** Resolves the options. The caller must have rejected unknown keys. */
export function resolveSessionOptions(options: SessionOptions) {
  const { id, workDir, limits, clock = systemClock, log } = options
  return {
    hasChosenId: id !== undefined,
    id: id === undefined ? `s-${newUuid().slice(0, 8)}` : expectId('id', id),
    workDir: workDir === undefined ? null : expectWorkDir(workDir),
    limits: limits === undefined ? null : resolveNameLimits(limits),
    clock: expectMethods('clock', clock, clockMethods),
    log: resolveLog(log),
  }
}

export type ResolvedSessionOptions = Readonly<ReturnType<typeof resolveSessionOptions>>

type ManagerOptions = Omit<TelemetryOptions, 'sessionId' | 'clock' | 'log'>

/** The options of `startTelemetry()`. */
export interface SessionTelemetryOptions extends ManagerOptions {
  /** Seconds between polls of the backends' nodes. Default 5. */
  readonly resourcePollSeconds?: number
  /**
   * Whether TaskCompleted contains the value that the task returned, as JSON. With a checkpoint,
   * the values are also stored in a file beside it, from which a later run resumes. Default
   * `false`; `true` with a checkpoint if the session has a cluster or HPC backend.
   */
  readonly keepResults?: boolean
  /** Values larger than this, in MiB, are not stored beside the checkpoint. Default 64. */
  readonly keepResultsMb?: number
}

/** Options of `close()` and `shutdown()`. */
export interface CloseOptions {
  /** Whether to leave the backends open for other clients. Default `false`. */
  readonly keepBackends?: boolean
}

const telemetryNames = [
  'resourcePollSeconds',
  'keepResults',
  'keepResultsMb',
  ...managerOptionNames,
]

/**
 * Validates the session's own options. `manager` holds the options that telemetry validates.
 * `keepsResults` is the default of `keepResults`.
 */
export function resolveSessionTelemetry(
  given: unknown,
  keepsResults = false,
): {
  readonly pollSeconds: number
  /** The maximum size of a stored value; `null` without `keepResults`. */
  readonly maxValueBytes: number | null
  readonly manager: ManagerOptions
} {
  const options: SessionTelemetryOptions = expectObject('options', given)
  expectKnownKeys('startTelemetry', options, telemetryNames)
  const {
    resourcePollSeconds = 5,
    keepResults = keepsResults,
    keepResultsMb = 64,
    ...manager
  } = options
  const range = { above: 0, max: 86_400 }
  const maxMb = expectNumber('keepResultsMb', keepResultsMb, { above: 0, max: 1024 })
  return {
    pollSeconds: expectNumber('resourcePollSeconds', resourcePollSeconds, range),
    maxValueBytes: expectBoolean('keepResults', keepResults) ? maxMb * 2 ** 20 : null,
    manager,
  }
}

/** Returns the error in the options of `close()` or `shutdown()`; `null` if they are valid. */
export function findCloseProblem(method: string, given: unknown): unknown {
  try {
    const options: CloseOptions = expectObject('options', given)
    expectKnownKeys(method, options, ['keepBackends'])
    if (options.keepBackends !== undefined) expectBoolean('keepBackends', options.keepBackends)
    return null
  } catch (error) {
    return error
  }
}

/** Checks that a value is a backend. Reports a missing `await`, a common mistake, with a hint. */
export function expectBackend(field: string, given: unknown): Backend {
  if (isThenable(given)) {
    throw new ValueError(`Expected \`${field}\` to be a backend, got a promise: await it first`, {
      field,
      expected: 'a backend',
      got: given,
      hint: 'Write `await`, as in `new Session([await ConcurrentBackend.create()])`.',
    })
  }
  const backend = given as Backend | null | undefined
  const hasMethod = (name: 'refuse' | 'connect' | 'close'): boolean =>
    typeof backend?.[name] === 'function'
  if (!backend || !hasMethod('refuse') || !hasMethod('connect') || !hasMethod('close')) {
    throw invalid(field, 'a backend (`name`, `refuse`, `connect`, `close`)', given)
  }
  expectString(`${field}.name`, backend.name)
  return backend
}

export function expectConnection(backend: string, given: unknown): asserts given is Connection {
  const connection = given as Record<string, unknown> | null | undefined
  for (const name of ['submit', 'cancel', 'release']) {
    if (typeof connection?.[name] === 'function') continue
    const text = `connect() of backend "${backend}" returned no connection: \`${name}\` is missing`
    throw new BackendError(text)
  }
}
