/** What a task's events say about it, in attributes. Tasks that say the same share one object. */

import type { AttemptFacts } from '../backends/backend.ts'
import { messageOf } from '../foundation/errors.ts'
import { type JsonObject, type JsonValue, toJsonValue } from '../foundation/json-value.ts'
import { maskSecrets } from '../foundation/secrets.ts'
import { errorTypeOf } from '../foundation/task-errors.ts'
import type { Entry } from './entry.ts'

const longestResult = 65_536
const longestTail = 2048
const mostShared = 1000

/** A bounded memory of objects that many tasks share. */
class Shared {
  readonly #known = new Map<string, JsonObject>()

  get(key: string, create: () => JsonObject): JsonObject {
    const known = this.#known.get(key)
    if (known !== undefined) return known
    if (this.#known.size === mostShared) this.#known.clear()
    const created = Object.freeze(create())
    this.#known.set(key, created)
    return created
  }
}

const sharedTasks = new Shared()
const sharedAttempts = new Shared()

/** A model that is known only after routing replaces what was said before. */
export function describeTask(entry: Entry): JsonObject {
  const { executable, task } = entry
  if (entry.attributes?.['executable'] === executable) return entry.attributes
  const own = { executable, task_type: task.kind }
  entry.attributes =
    task.attributes === null
      ? sharedTasks.get(`${task.kind} ${executable}`, () => own)
      : Object.freeze({ ...task.attributes, ...own })
  return entry.attributes
}

/** The task, its worker and its attempt. */
export function describeAttempt(entry: Entry): JsonObject {
  const { workerId, attempt, task } = entry
  const create = (): JsonObject => ({
    ...describeTask(entry),
    ...(workerId === null ? {} : { worker_id: workerId }),
    attempt,
  })
  if (task.attributes !== null) return Object.freeze(create())
  return sharedAttempts.get(`${workerId} ${attempt} ${task.kind} ${entry.executable}`, create)
}

export function describeFailure(error: unknown): { error_type: string; error_message: string } {
  return { error_type: errorTypeOf(error), error_message: toText(messageOf(error)) }
}

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
