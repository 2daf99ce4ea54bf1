/** The attributes of a task's events. Tasks with equal attributes share one object. */

import type { AttemptFacts } from '../backends/backend.ts'
import { messageOf, tryRead, TuttiError } from '../foundation/errors.ts'
import { sharedAttributes } from '../events/sink.ts'
import { type JsonObject, type JsonValue, toFrozen, toExactJson } from '../foundation/json-value.ts'
import {
  findSecretArguments,
  maskCommand,
  maskSecrets,
  maskSecretsIn,
} from '../foundation/secrets.ts'
import { errorTypeOf, TaskFailedError } from '../foundation/task-errors.ts'
import { defaultResources, isDefaultRequest, type ResourceRequest } from '../tasks/resources.ts'
import type { Entry } from './entry.ts'
import { toAttributeText } from './error-causes.ts'

const maxResultLength = 65_536
const maxTailLength = 2048
const maxSharedAttributes = 1000

/** The attributes of all tasks with the same executable, and of their first attempts per worker. */
interface SharedAttributes {
  readonly attributes: JsonObject
  readonly attempts: Map<string | null, JsonObject>
}

/**
 * The shared attributes by kind and workflow, then by executable. Not used for tasks that have
 * attributes of their own.
 */
const sharedByKind = new Map<string, Map<string, SharedAttributes>>()
let sharedCount = 0

function findShared({ task, executable, workflowId }: Entry): SharedAttributes {
  const kind = workflowId === null ? task.kind : `${task.kind} ${workflowId}`
  let byName = sharedByKind.get(kind)
  const known = byName?.get(executable)
  if (known !== undefined) return known
  if (++sharedCount > maxSharedAttributes) clearShared()
  byName = sharedByKind.get(kind) ?? new Map<string, SharedAttributes>()
  sharedByKind.set(kind, byName)
  const created = {
    attributes: share({
      executable: maskCommand(executable),
      task_type: task.kind,
      ...(workflowId === null ? {} : { workflow_id: workflowId }),
    }),
    attempts: new Map<string | null, JsonObject>(),
  }
  byName.set(executable, created)
  return created
}

function clearShared(): void {
  sharedByKind.clear()
  sharedCount = 1
}

function share(attributes: JsonObject): JsonObject {
  sharedAttributes.add(attributes)
  return Object.freeze(attributes)
}

/**
 * The attributes of all events of a task. They are cached in the entry until `executable` changes,
 * for example when routing chooses the model.
 */
export function describeTask(entry: Entry): JsonObject {
  const { executable, task, workflowId } = entry
  entry.attributes ??=
    task.attributes === null
      ? findShared(entry).attributes
      : Object.freeze({
          ...maskSecretsIn(task.attributes),
          executable: maskCommand(executable),
          task_type: task.kind,
          ...(workflowId === null ? {} : { workflow_id: workflowId }),
        })
  return entry.attributes
}

/**
 * The attributes that only TaskCreated has: name, definition hash, dependencies, origin and block.
 */
export function describeRegistration(entry: Entry): JsonObject | null {
  const { dependencies, definitionHash, origin } = entry
  const block = entry.owner?.blockUid ?? null
  const name = entry.name === entry.executable ? '' : entry.name
  const isPlain = dependencies.length === 0 && definitionHash === null && origin === null
  if (isPlain && block === null && name === '') return null
  // Not one literal with a spread per attribute, which takes several times longer.
  const attributes: Record<string, JsonValue> = {}
  if (name !== '') attributes['task_name'] = maskSecrets(name)
  if (definitionHash !== null) attributes['definition_hash'] = definitionHash
  if (dependencies.length > 0) attributes['dependencies'] = dependencies
  if (block !== null) attributes['tutti.block'] = block
  if (origin !== null) {
    attributes['origin_uid'] = origin.uid
    attributes['origin_files_back'] = origin.filesBack
  }
  return Object.freeze(attributes)
}

/**
 * The attributes that only TaskSubmitted has: resources and priority, unless they are the defaults,
 * and the arguments of a program.
 */
export function describeSubmission(entry: Entry): JsonObject | null {
  const spec = (entry.work ?? entry.expected?.work)?.spec
  const { resources = defaultResources, priority = 0 } = spec ?? {}
  const isDefault = isDefaultRequest(resources)
  const args = describeArguments(entry)
  if (isDefault && priority === 0 && args === null) return null
  return Object.freeze({
    ...args,
    ...(isDefault ? {} : { resources: toWireResources(resources) }),
    ...(priority === 0 ? {} : { 'tutti.priority': priority }),
  })
}

/**
 * Converts a request to snake_case, the form of field names in all data that leaves the process.
 */
function toWireResources({ memoryMb, ranksPerNode, ...others }: ResourceRequest): JsonObject {
  const resources = {
    ...others,
    memory_mb: memoryMb,
    ...(ranksPerNode === undefined ? {} : { ranks_per_node: ranksPerNode }),
  }
  return maskSecretsIn(toFrozen(resources))
}

/**
 * The attributes of the task and of its attempt. Only first attempts share objects.
 */
export function describeAttempt(entry: Entry): JsonObject {
  const { workerId, attempt, task } = entry
  const create = (): JsonObject =>
    Object.freeze({
      ...describeTask(entry),
      ...(workerId === null ? {} : { worker_id: workerId }),
      attempt,
    })
  if (task.attributes !== null || attempt > 1) return create()
  const { attempts } = findShared(entry)
  let known = attempts.get(workerId)
  if (known === undefined) {
    known = create()
    if (++sharedCount > maxSharedAttributes) clearShared()
    else attempts.set(workerId, share(known))
  }
  return known
}

export function describeFailure(error: unknown): { error_type: string; error_message: string } {
  return {
    error_type: toAttributeText(errorTypeOf(error)),
    error_message: toAttributeText(messageOf(error)),
  }
}

/** The stack of a thrown value. Never throws, even if reading a property of the value does. */
export const describeStack = (error: unknown): { error_stack?: string } =>
  tryRead(() => {
    const { stack } = error as { stack?: unknown }
    const isStack = error instanceof Error && typeof stack === 'string'
    return isStack ? { error_stack: toAttributeText(stack) } : {}
  }) ?? {}

/** For a task whose dependency failed: the uid of the task that failed first. Never throws. */
export const describeRootTask = (error: unknown): { 'tutti.root_task'?: string } =>
  tryRead(() => {
    const isDependent = TaskFailedError.isInstance(error) && 'rootUid' in error
    const root = isDependent ? error.rootUid : undefined
    return typeof root === 'string' ? { 'tutti.root_task': toAttributeText(root) } : {}
  }) ?? {}

/** The error's hint for users, and its code if it differs from the type. Never throws. */
export const describeHint = (
  error: unknown,
): { error_hint?: string; 'tutti.error_code'?: string } =>
  tryRead(() => {
    if (!TuttiError.isInstance(error)) return {}
    const { hint, code } = error
    return {
      ...(hint === undefined ? {} : { error_hint: toAttributeText(hint) }),
      ...(code === errorTypeOf(error) ? {} : { 'tutti.error_code': toAttributeText(code) }),
    }
  }) ?? {}

/** The arguments of a program, with secrets masked, cut to `maxTailLength` in total. */
export function describeArguments({
  work,
}: Entry): { readonly 'tutti.arguments': readonly string[] } | null {
  const spec = work?.spec
  if (spec?.kind !== 'program' || spec.arguments.length === 0) return null
  const isSecret = findSecretArguments(spec.arguments)
  const shown: string[] = []
  let bytesLeft = maxTailLength
  for (const [at, argument] of spec.arguments.entries()) {
    const text = isSecret[at] === true ? '[masked]' : argument
    bytesLeft -= text.length + 1
    shown.push(bytesLeft < 0 ? '…' : text)
    if (bytesLeft < 0) break
  }
  return { 'tutti.arguments': Object.freeze(shown) }
}

/** The attributes for the facts of an attempt; `null` if nothing besides the worker is known. */
export function describeFacts(facts: AttemptFacts | undefined): Record<string, JsonValue> | null {
  if (facts === undefined) return null
  const { cpuSeconds, peakMemoryBytes, exitCode, signal, stdoutTail, stderrTail } = facts
  const known: Record<string, JsonValue> = {}
  if (cpuSeconds !== undefined) known['cpu_seconds'] = cpuSeconds
  if (peakMemoryBytes !== undefined) known['peak_memory_bytes'] = peakMemoryBytes
  if (exitCode !== undefined) known['exit_code'] = exitCode
  if (signal !== undefined) known['signal'] = signal
  if (stdoutTail !== undefined) known['stdout_tail'] = toTailText(stdoutTail)
  if (stderrTail !== undefined) known['stderr_tail'] = toTailText(stderrTail)
  if (facts.stdoutTruncated === true) known['stdout_truncated'] = true
  if (facts.stderrTruncated === true) known['stderr_truncated'] = true
  if (facts.stdoutPath !== undefined) known['stdout_path'] = facts.stdoutPath
  if (facts.stderrPath !== undefined) known['stderr_path'] = facts.stderrPath
  if (facts.finishReasons !== undefined) {
    known['gen_ai.response.finish_reasons'] = toFrozen(facts.finishReasons)
  }
  return Object.keys(known).length === 0 ? null : known
}

/** Masks secrets before cutting the text, because part of a secret would not be recognized. */
function toTailText(text: string): string {
  const bytes = Buffer.from(maskSecrets(text))
  if (bytes.length <= maxTailLength) return bytes.toString()
  let from = bytes.length - maxTailLength
  // Does not start inside a UTF-8 sequence.
  while (((bytes[from] ?? 0) & 0xc0) === 0x80) from++
  return bytes.toString('utf8', from)
}

/**
 * The attribute for a task's result. A result that JSON would change or that contains a secret is
 * omitted, because a reader would mistake the changed or masked value for what the task returned.
 */
export function describeResult(value: unknown): Record<string, JsonValue> {
  const text = toExactJson(value, maxResultLength)
  return text === null || maskSecrets(text) !== text ? { result_omitted: true } : { result: text }
}
