/**
 * Checks the form of received messages. A signature proves that the sender has the token, but not
 * that it has the same version of this package, or is free of faults.
 */

import type { AttemptFacts } from '../../backends/backend.ts'
import type { FieldSpec } from '../../events/event.ts'
import type { ErrorRecord } from '../../foundation/error-record.ts'
import type { ResourceRequest } from '../../tasks/resources.ts'
import type { FunctionSpec, ProgramSpec, TaskSpec } from '../../tasks/spec.ts'
import type {
  AgentNote,
  AgentReport,
  AgentRequest,
  Announcement,
  Attached,
  Beat,
  Challenged,
  Detached,
  DriverMessage,
  EndsMessage,
  Pong,
  WatcherReport,
  WireOptions,
} from './messages.ts'

type Message =
  | AgentReport
  | AgentRequest
  | Announcement
  | Attached
  | Beat
  | Challenged
  | Detached
  | DriverMessage
  | EndsMessage
  | Pong
  | WatcherReport

type Check = (value: unknown) => boolean
type FormOf<Fields> = { readonly [Field in Exclude<keyof Fields, 'kind'>]-?: Check }
type Forms = {
  readonly [Kind in Message['kind']]: FormOf<Extract<Message, { readonly kind: Kind }>>
}

const text: Check = (value) => typeof value === 'string'
const number: Check = (value) => Number.isFinite(value)
/** A priority; `Infinity` means none. */
const limit: Check = (value) => typeof value === 'number' && !Number.isNaN(value)
const atLeast =
  (min: number): Check =>
  (value) =>
    Number.isSafeInteger(value) && (value as number) >= min
const count = atLeast(0)
const amount: Check = (value) => number(value) && (value as number) >= 0
const anything: Check = () => true
const flag: Check = (value) => typeof value === 'boolean'
const object: Check = (value) => typeof value === 'object' && value !== null
const array: Check = (value) => Array.isArray(value)
const optional =
  (check: Check): Check =>
  (value) =>
    value === undefined || check(value)
const nullable =
  (check: Check): Check =>
  (value) =>
    value === null || check(value)
const oneOf =
  (...known: readonly unknown[]): Check =>
  (value) =>
    known.includes(value)
const list =
  (check: Check): Check =>
  (value) =>
    Array.isArray(value) && value.every(check)
/** An object with arbitrary keys. */
const record =
  (check: Check): Check =>
  (value) =>
    object(value) && !Array.isArray(value) && Object.values(value as object).every(check)
const indexes: Check = (value) => value instanceof Uint32Array || list(count)(value)
const times: Check = (value) =>
  value instanceof Float64Array ? value.every(Number.isFinite) : list(number)(value)
function fields(form: Readonly<Record<string, Check>>): Check {
  // Computed once per form instead of for each row of a message.
  const checks = Object.entries(form)
  return (value) => {
    if (!object(value)) return false
    return checks.every(([field, check]) => check(Reflect.get(value as object, field)))
  }
}

const use = { sessionId: text, backend: text }
const attempt = { uid: text, attempt: count }
const sent = { index: count, ...attempt }
const reference: Check = (value) =>
  Array.isArray(value) && value.length === 2 && text(value[0]) && count(value[1])
const capacity = { cores: count, gpus: count, memoryMb: amount }
const offer = fields({ ...capacity, ahead: count })
const facts = fields({ ...capacity, labels: record(text) })
const files = fields({ stdoutPath: optional(text), stderrPath: optional(text) })
const start = fields({ ...sent, atMs: number, workerId: text, files: optional(files) })
const eventField: FormOf<FieldSpec> = {
  type: oneOf('float', 'int', 'str', 'bool', 'any'),
  nullable: flag,
  fallback: anything,
  min: optional(number),
  max: optional(number),
}
const event = fields({
  eventType: text,
  schema: record(fields(eventField)),
  fields: record(anything),
  taskId: nullable(text),
  atMs: number,
})
const resources: FormOf<ResourceRequest> = {
  cores: atLeast(1),
  gpus: count,
  memoryMb: amount,
  ranks: atLeast(1),
  ranksPerNode: optional(atLeast(1)),
  labels: optional(record(text)),
  seconds: optional(amount),
}
const commonSpec = {
  executable: text,
  priority: number,
  timeoutSeconds: nullable(amount),
  resources: fields(resources),
  workDir: nullable(text),
}
const definition = fields({ module: text, name: text })
const functionSpec: FormOf<FunctionSpec> = { ...commonSpec, definition, args: array }
const stdin: Check = (value) => text(value) || fields({ base64: text })(value)
const programSpec: FormOf<ProgramSpec> = {
  ...commonSpec,
  arguments: list(text),
  cwd: nullable(text),
  env: nullable(record(nullable(text))),
  stdin: nullable(stdin),
  shell: flag,
  captureStdio: nullable(fields({ stdout: optional(text), stderr: optional(text) })),
  killBackground: flag,
  isFollowed: oneOf(undefined, true),
  namedCores: nullable(atLeast(1)),
}
/** Closures and prompts are not sent to agents. */
const specForms = { function: fields(functionSpec), program: fields(programSpec) }
const spec: Check = (value) => {
  const { kind } = Object(value) as { readonly kind?: unknown }
  return (kind === 'function' || kind === 'program') && specForms[kind](value)
}
const functionOptions: FormOf<WireOptions> = {
  priority: optional(number),
  timeoutSeconds: optional(nullable(amount)),
  resources: optional(fields(resources)),
}
const output = { stdout: optional(text), stderr: optional(text) }
const attemptFacts: FormOf<AttemptFacts> = {
  ...output,
  workerId: optional(text),
  cpuSeconds: optional(number),
  peakMemoryBytes: optional(number),
  exitCode: optional(number),
  signal: optional(text),
  stdoutTail: optional(text),
  stderrTail: optional(text),
  stdoutTruncated: oneOf(undefined, true),
  stderrTruncated: oneOf(undefined, true),
  stdoutPath: optional(text),
  stderrPath: optional(text),
  finishReasons: optional(list(text)),
}
/** Also checks nested errors. A cyclic error overflows the stack, and is thereby refused. */
const error: Check = (value) => {
  const { isError } = Object(value) as { readonly isError?: unknown }
  return isError === false || (isError === true && fields(errorForm)(value))
}
const errorForm: FormOf<Extract<ErrorRecord, { readonly isError: true }>> = {
  isError: flag,
  type: text,
  lineage: optional(list(text)),
  name: text,
  message: text,
  stack: text,
  fields: record(anything),
  errorFields: optional(record(error)),
  cause: optional(error),
  errors: optional(list(error)),
}
const outcome: Check = (value) => {
  const { kind, ...own } = Object(value) as Record<string, unknown>
  if (kind === 'complete') return true
  if (kind === 'complete-large') return text(own['object'])
  if (kind === 'cancel') return text(own['reason'])
  return kind === 'fail' && error(own['error']) && flag(own['isThrown'])
}

const announcement: Forms['announcement'] = {
  name: text,
  epoch: number,
  host: text,
  pid: count,
  version: text,
  state: oneOf('ready', 'draining', 'gone'),
  facts,
  sessions: count,
  refusedMessages: count,
  only: oneOf(null, 'functions', 'programs'),
  allow: nullable(list(text)),
}

const forms: Forms = {
  announcement,
  'watcher-report': {
    state: oneOf('dead', 'silent'),
    agent: fields({ kind: oneOf('announcement'), ...announcement }),
    silentSeconds: number,
  },
  ping: {},
  pong: { epoch: number, receivedMs: number, sentMs: number },
  challenge: { use: optional(fields(use)), run: optional(text) },
  challenged: { nonce: number, latestStart: optional(number) },
  attach: {
    ...use,
    run: text,
    nonce: number,
    epoch: number,
    link: number,
    ownerTtlSeconds: number,
    resultTtlSeconds: number,
    agentTimeoutSeconds: number,
    folder: text,
  },
  attached: {
    epoch: number,
    offer,
    held: list(fields({ ...attempt, beganMs: nullable(number), workerId: nullable(text) })),
    endsEpoch: number,
    endMessages: count,
    unrecorded: list(atLeast(1)),
  },
  refused: { code: text, message: text },
  detach: { ...use, run: text, epoch: number, reason: text },
  detached: { isSuperseded: flag },
  sample: { sampler: text, step: oneOf('first', 'next', 'last') },
  output: { ...use, run: text, ...attempt },
  beat: {
    hasWaiting: flag,
    waitingPriorities: optional(fields({ lowest: limit, highest: limit })),
    hasIdle: flag,
    agents: count,
    hasStream: flag,
    lostStreams: count,
    needsRoom: flag,
  },
  jobs: {
    definitions: list(definition),
    functions: fields({
      indexes,
      uids: text,
      attempts: nullable(list(count)),
      definitions: nullable(list(count)),
      args: nullable(list(array)),
      options: nullable(list(nullable(fields(functionOptions)))),
    }),
    others: list(
      fields({ ...sent, spec: nullable(spec), specObject: nullable(text), after: count }),
    ),
  },
  cancel: { jobs: list(reference), reason: text },
  recall: { jobs: list(reference) },
  recorded: { through: count, taken: count, lost: optional(list(count)) },
  missing: { from: count, to: count },
  report: {
    offer,
    starts: list(start),
    returned: list(
      fields({ ...sent, notAllowed: optional(fields({ message: text, hint: text })) }),
    ),
    events: list(event),
    lostBundles: list(text),
    endMessages: count,
    needsRoom: flag,
  },
  ends: {
    agent: text,
    ahead: count,
    completions: fields({
      indexes,
      uids: text,
      attempts: nullable(list(count)),
      times,
      workerIds: list(text),
      workers: nullable(list(count)),
      values: nullable(array),
    }),
    ends: list(
      fields({
        ...sent,
        beganMs: nullable(number),
        atMs: number,
        workerId: nullable(text),
        facts: nullable(fields(attemptFacts)),
        outputObject: optional(text),
        errorObject: optional(text),
        outcome,
      }),
    ),
    events: optional(fields({ link: number, number: count })),
    reports: optional(
      list(fields({ link: number, number: count, starts: list(start), events: list(event) })),
    ),
  },
}

const note: FormOf<AgentNote> = {
  name: text,
  epoch: number,
  state: oneOf('used', 'left', 'missing'),
  endsEpoch: optional(number),
  lost: optional(list(fields({ ...attempt, message: text }))),
  moved: optional(list(reference)),
}

/** A message that does not have the form of its kind. */
class MalformedMessageError extends Error {
  override readonly name = 'MalformedMessageError'
}

/** Returns the message if it has one of these kinds and the form of that kind, otherwise throws. */
export function expectMessage<Kind extends Message['kind']>(
  payload: unknown,
  ...kinds: readonly Kind[]
): Extract<Message, { readonly kind: Kind }> {
  const { kind } = Object(payload) as { readonly kind?: unknown }
  const known = kinds.find((one) => one === kind)
  if (known === undefined) throw new MalformedMessageError('its kind is not known')
  expectForm(`${known}.`, forms[known], Object(payload) as object)
  return payload as Extract<Message, { readonly kind: Kind }>
}

/** Returns a note from a session's stream, which has no kind. Throws if it has another form. */
export function expectNote(payload: unknown): AgentNote {
  expectForm('', note, Object(payload) as object)
  return payload as AgentNote
}

/** Returns a spec that a driver has stored because it is too large for a message. */
export function expectSpec(stored: unknown): TaskSpec {
  if (!spec(stored)) throw new MalformedMessageError('its spec has not the form of its kind')
  return stored as TaskSpec
}

/** Whether an object that an agent has stored is the output of a program. */
export const isOutput = fields(output)

/** Whether an object that an agent has stored is an error. */
export const isErrorRecord = error

function expectForm(prefix: string, form: Readonly<Record<string, Check>>, value: object): void {
  for (const [field, check] of Object.entries(form)) {
    if (check(Reflect.get(value, field))) continue
    throw new MalformedMessageError(`its field ${prefix}${field} is missing or has a wrong type`)
  }
}
