/** What a task's events say about it, in attributes. Tasks that say the same share one object. */

import type { AttemptFacts } from '../backends/backend.ts'
import { messageOf } from '../foundation/errors.ts'
import { type JsonObject, type JsonValue, toJsonValue } from '../foundation/json-value.ts'
import { maskSecrets } from '../foundation/secrets.ts'
import { errorTypeOf, type TaskCanceledError } from '../foundation/task-errors.ts'
import type { Entry } from './entry.ts'

const longestResult = 65_536
const longestTail = 2048
const mostShared = 1000

/** What tasks of one executable say, and what their attempts on one worker say. */
interface SharedTask {
  readonly attributes: JsonObject
  readonly attempts: Map<string | null, JsonObject>
}

/** By kind and executable; tasks with attributes of their own share nothing. */
const shared = new Map<string, Map<string, SharedTask>>()
let sharedCount = 0

function findShared(kind: string, executable: string): SharedTask {
  let byName = shared.get(kind)
  const known = byName?.get(executable)
  if (known !== undefined) return known
  if (++sharedCount > mostShared) forgetShared()
  byName = shared.get(kind) ?? new Map<string, SharedTask>()
  shared.set(kind, byName)
  const created = {
    attributes: Object.freeze({ executable, task_type: kind }),
    attempts: new Map<string | null, JsonObject>(),
  }
  byName.set(executable, created)
  return created
}

function forgetShared(): void {
  shared.clear()
  sharedCount = 1
}

/** A model that is known only after routing replaces what was said before. */
export function describeTask(entry: Entry): JsonObject {
  const { executable, task, workflowId } = entry
  if (entry.attributes?.['executable'] === executable) return entry.attributes
  entry.attributes = hasSharedWords(entry)
    ? findShared(task.kind, executable).attributes
    : Object.freeze({
        ...task.attributes,
        executable,
        task_type: task.kind,
        ...(workflowId === null ? {} : { workflow_id: workflowId }),
      })
  return entry.attributes
}

const hasSharedWords = ({ task, workflowId }: Entry): boolean =>
  task.attributes === null && workflowId === null

/** The task, and what it waits for. */
export function describeRegistration(entry: Entry): JsonObject {
  const { dependencies } = entry
  const task = describeTask(entry)
  return dependencies.length === 0 ? task : Object.freeze({ ...task, dependencies })
}

/** The task, its worker and its attempt. Only first attempts are shared: later ones are rare. */
export function describeAttempt(entry: Entry): JsonObject {
  const { workerId, attempt, task } = entry
  const create = (): JsonObject =>
    Object.freeze({
      ...describeTask(entry),
      ...(workerId === null ? {} : { worker_id: workerId }),
      attempt,
    })
  if (!hasSharedWords(entry) || attempt > 1) return create()
  const { attempts } = findShared(task.kind, entry.executable)
  let known = attempts.get(workerId)
  if (known === undefined) {
    known = create()
    if (++sharedCount > mostShared) forgetShared()
    else attempts.set(workerId, known)
  }
  return known
}

export function describeFailure(error: unknown): { error_type: string; error_message: string } {
  return { error_type: errorTypeOf(error), error_message: toText(messageOf(error)) }
}

export const describeReason = ({ reason }: TaskCanceledError): { reason: string } => ({
  reason: toText(reason),
})

/** Whatever was thrown may throw again at a touch. */
export function describeStack(error: unknown): { error_stack?: string } {
  try {
    const { stack } = error as { stack?: unknown }
    return error instanceof Error && typeof stack === 'string' ? { error_stack: toText(stack) } : {}
  } catch {
    return {}
  }
}

/** Without secrets, and not longer than an attribute may be. */
const toText = (text: string): string => String(toJsonValue(maskSecrets(text)))

/** `null` when nothing is known beyond the worker. */
export function describeFacts(facts: AttemptFacts | undefined): Record<string, JsonValue> | null {
  if (facts === undefined) return null
  const { cpuSeconds, peakMemoryBytes, exitCode, signal, stdoutTail, stderrTail } = facts
  const known: Record<string, JsonValue> = {}
  if (cpuSeconds !== undefined) known['cpu_seconds'] = cpuSeconds
  if (peakMemoryBytes !== undefined) known['peak_memory_bytes'] = peakMemoryBytes
  if (exitCode !== undefined) known['exit_code'] = exitCode
  if (signal !== undefined) known['signal'] = signal
  if (stdoutTail !== undefined) known['stdout_tail'] = toTail(stdoutTail)
  if (stderrTail !== undefined) known['stderr_tail'] = toTail(stderrTail)
  return Object.keys(known).length === 0 ? null : known
}

/** Secrets go first: a cut through one would leave half of it. */
function toTail(text: string): string {
  const bytes = Buffer.from(maskSecrets(text))
  if (bytes.length <= longestTail) return bytes.toString()
  let from = bytes.length - longestTail
  // The cut may fall into a character.
  while (((bytes[from] ?? 0) & 0xc0) === 0x80) from++
  return bytes.toString('utf8', from)
}

/** A result that JSON cannot hold whole is left out: a part would be taken for all of it. */
export function describeResult(value: unknown): Record<string, JsonValue> {
  const text = JSON.stringify(toJsonValue(value))
  const isWhole = Buffer.byteLength(text) <= longestResult && !text.includes('[unserializable: ')
  return isWhole ? { result: maskSecrets(text) } : { result_omitted: true }
}
