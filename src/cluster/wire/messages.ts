/**
 * The messages between drivers and agents, without their envelope. Each message is checked: a
 * signature proves that the sender has the token, but not that the sender works correctly.
 */

import type { AttemptFacts } from '../../backends/backend.ts'
import type { FieldSpec } from '../../events/event.ts'
import type { ErrorRecord } from '../../foundation/error-record.ts'
import type { ResourceRequest } from '../../tasks/resources.ts'
import type { FunctionSpec, ProgramSpec, TaskSpec } from '../../tasks/spec.ts'
import type { WireCompletions } from './completions.ts'
import {
  amount,
  anything,
  array,
  atLeast,
  type Check,
  check,
  count,
  expectForm,
  type Fields,
  fields,
  fieldsOf,
  flag,
  list,
  malformed,
  nullable,
  number,
  oneOf,
  optional,
  record,
  text,
  type Value,
} from './forms.ts'

/** If the other side was silent for this long, an agent begins no tasks and a driver sends none. */
export const maxSilenceMs = 2000
/** The cancel reason for tasks that run on an agent when it closes. */
export const agentClosedReason = 'agent closed'

/** The resources and labels that an agent offers to tasks. */
export interface NodeFacts {
  readonly cores: number
  readonly gpus: number
  readonly memoryMb: number
  readonly labels: Readonly<Record<string, string>>
}

const sessionUse = { sessionId: text, backend: text }
const sessionRun = { ...sessionUse, run: text }
const attempt = { uid: text, attempt: count }
/** One start of an agent's process, identified by a random number. */
const agentStart = { name: text, start: number }
/** `driverStart` is omitted for attempts of the driver's current start. */
const reference = check<readonly [uid: string, attempt: number, driverStart?: number]>(
  (value) =>
    Array.isArray(value) &&
    (value.length === 2 || (value.length === 3 && number(value[2]))) &&
    text(value[0]) &&
    count(value[1]),
)
const capacity = { cores: count, gpus: count, memoryMb: amount }
const facts = fieldsOf<NodeFacts>({ ...capacity, labels: record(text) })
const indexes = check<ArrayLike<number>>(
  (value) => value instanceof Uint32Array || list(count)(value),
)
const times = check<ArrayLike<number>>((value) =>
  value instanceof Float64Array ? value.every(Number.isFinite) : list(number)(value),
)
/** A priority, or `Infinity` if there is none. */
const priorityBound = check<number>((value) => typeof value === 'number' && !Number.isNaN(value))

const offer = fields({
  /** The cores that the session may use. `gpus` and `memoryMb` are those of the whole node. */
  ...capacity,
  /** How many jobs may wait at the agent, so that the next begins without a round trip. */
  ahead: count,
})
const priorityRange = fields({
  /** The lowest priority of waiting jobs that may be sent to busy agents; `Infinity` if none. */
  lowest: priorityBound,
  /** The highest priority of all waiting jobs. */
  highest: priorityBound,
})
const heldJob = fields({
  ...attempt,
  driverStart: number,
  beganMs: nullable(number),
  workerId: nullable(text),
})
const notAllowed = fields({ message: text, hint: text })

const sentJob = {
  /** The driver's index of the job, which agents send back. */
  index: count,
  ...attempt,
}
/** What an agent says about an attempt. */
const reportedJob = {
  ...sentJob,
  /** The start of the driver that sent the attempt; omitted for the start of the message. */
  driverStart: optional(number),
}
const start = fields({
  ...reportedJob,
  atMs: number,
  workerId: text,
  /** The files on the node that receive the program's output. */
  files: optional(fields({ stdoutPath: optional(text), stderrPath: optional(text) })),
})
const returnedJob = fields({
  ...reportedJob,
  /** Set if the agent's rules forbid the job. The driver must not send it to the agent again. */
  notAllowed: optional(notAllowed),
})
const eventField = fieldsOf<FieldSpec>({
  type: oneOf('float', 'int', 'str', 'bool', 'any'),
  nullable: flag,
  fallback: anything,
  min: optional(number),
  max: optional(number),
})
const event = fields({
  eventType: text,
  schema: record(eventField),
  fields: record(anything),
  taskId: nullable(text),
  atMs: number,
})

const resources = fieldsOf<ResourceRequest>({
  cores: atLeast(1),
  gpus: count,
  memoryMb: amount,
  ranks: atLeast(1),
  ranksPerNode: optional(atLeast(1)),
  labels: optional(record(text)),
  seconds: optional(amount),
})
const commonSpec = {
  executable: text,
  priority: number,
  timeoutSeconds: nullable(amount),
  resources,
  workDir: nullable(text),
}
const definition = fields({ module: text, name: text })
/** The forms of specs. Closures and prompts are not sent to agents. */
const specForms = {
  function: fieldsOf<FunctionSpec>({ ...commonSpec, definition, args: array }),
  program: fieldsOf<ProgramSpec>({
    ...commonSpec,
    arguments: list(text),
    cwd: nullable(text),
    env: nullable(record(nullable(text))),
    stdin: (value) => value === null || text(value) || fields({ base64: text })(value),
    shell: flag,
    captureStdio: nullable(fields({ stdout: optional(text), stderr: optional(text) })),
    killBackground: flag,
    isFollowed: oneOf(undefined, true),
    namedCores: nullable(atLeast(1)),
  }),
}
const spec = check<TaskSpec>((value) => {
  const { kind } = Object(value) as { readonly kind?: unknown }
  return (kind === 'function' || kind === 'program') && specForms[kind](value)
})
const functionOptions = fields({
  priority: optional(number),
  timeoutSeconds: optional(nullable(amount)),
  resources: optional(resources),
})
/** Function jobs as columns. Columns are serialized faster than one object per job. */
const functions = fields({
  indexes,
  /** All uids, joined into one string. */
  uids: text,
  /** `null` if all are first attempts. */
  attempts: nullable(list(count)),
  /** The index of each function's definition in this message; `null` if all use the first. */
  definitions: nullable(list(count)),
  /** `null` if no function has arguments. */
  args: nullable(list(array)),
  /** `null` for a function with default options. The list is `null` if all functions have them. */
  options: nullable(list(nullable(functionOptions))),
})
/**
 * A job that is not in the columns. If its spec is too large for a message, `specObject` names a
 * stored object.
 */
const job = fields({
  ...sentJob,
  spec: nullable(spec),
  specObject: nullable(text),
  /** How many functions of the message precede this job in the driver's order. */
  after: count,
})

const output = { stdout: optional(text), stderr: optional(text) }
const attemptFacts = fieldsOf<AttemptFacts>({
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
})
/** Checking a cyclic error overflows the stack, so such an error is refused. */
const error: Check<ErrorRecord> = check((value) => {
  const { isError } = Object(value) as { readonly isError?: unknown }
  return isError === false || (isError === true && errorRecord(value))
})
const errorRecord = fieldsOf<Extract<ErrorRecord, { readonly isError: true }>>({
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
})
type Outcome =
  | { readonly kind: 'complete'; readonly value: unknown }
  | { readonly kind: 'fail'; readonly error: ErrorRecord; readonly isThrown: boolean }
  | { readonly kind: 'cancel'; readonly reason: string }
const outcome = check<Outcome>((value) => {
  const { kind, ...own } = Object(value) as Record<string, unknown>
  if (kind === 'complete') return true
  if (kind === 'cancel') return text(own['reason'])
  return kind === 'fail' && error(own['error']) && flag(own['isThrown'])
})
const storedOutcome = fields({
  kind: oneOf('stored'),
  /** The name of the object in the broker's store that has `outcome` and `facts`. */
  object: text,
  of: oneOf('complete', 'fail', 'cancel', 'stored'),
})
/** The result of an attempt. Times are by the clock of the agent's machine. */
const result = fields({
  ...reportedJob,
  beganMs: nullable(number),
  atMs: number,
  workerId: nullable(text),
  facts: nullable(attemptFacts),
  outcome: check<Outcome | Value<typeof storedOutcome>>(
    (value) => storedOutcome(value) || outcome(value),
  ),
})
const completions = fieldsOf<WireCompletions>({
  indexes,
  uids: text,
  attempts: nullable(list(count)),
  times,
  workerIds: list(text),
  workers: nullable(list(count)),
  values: nullable(array),
})
/** Events and starts that no driver has acknowledged. The starts precede the events. */
const reportedEvents = fields({ starts: list(start), events: list(event) })

const announcement = {
  ...agentStart,
  host: text,
  pid: count,
  version: text,
  state: oneOf('ready', 'draining', 'gone'),
  facts,
  sessions: count,
  /** The number of messages that were wrongly signed, were replayed, or could not be decoded. */
  refusedMessages: count,
  /** The only kind of task that the agent runs; `null` if it runs both. */
  only: oneOf(null, 'functions', 'programs'),
  /** Patterns of the programs and modules that the agent runs; `null` if it runs all. */
  allow: nullable(list(text)),
}

const forms = {
  /** An agent's announcement of itself, signed with the key of the cluster. */
  announcement,
  /** A watcher's report about an agent that does not answer, signed with the key of the cluster. */
  'watcher-report': {
    /** `dead`: the process exited unannounced. `silent`: it is alive, but does not answer. */
    state: oneOf('dead', 'silent'),
    agent: fields({ kind: oneOf('announcement'), ...announcement }),
    /** The number of seconds since the watcher last heard the agent. */
    silentSeconds: number,
  },
  /** Asks whether an agent responds. The answer contains the time of the agent's clock. */
  ping: {},
  /** Times are by the agent's monotonic clock. */
  pong: { start: number, receivedMs: number, sentMs: number },
  /** Requests the nonce that the next `attach` must contain, and what the agent knows of `use`. */
  challenge: { use: optional(fields(sessionUse)) },
  challenged: {
    nonce: number,
    /** The run of which the agent has a part; `null` if it has none. */
    run: nullable(text),
    /** The latest start of a driver that the agent knows, also of closed runs; 0 if none. */
    latestStart: number,
  },
  /** The reconciliation: what the driver has, and the request for what the agent has. */
  attach: {
    ...sessionRun,
    /** The nonce of the answer to `challenge`. A replayed attach is refused because of it. */
    nonce: number,
    driverStart: number,
    /** Identifies the messages that follow, which are numbered from 1 in each direction. */
    link: number,
    /** The last link of this start of the driver, and the last message of it that was applied. */
    applied: fields({ link: number, number: count }),
    /** The last `use` of the agent that this start of the driver knows; 0 if it knows none. */
    use: number,
    /** The last message with results of `use` that this start of the driver has taken. */
    taken: count,
    /** How long tasks continue after the last message of the driver. */
    ownerTtlSeconds: number,
    /** How long the broker keeps task results. */
    resultTtlSeconds: number,
    /** How long tasks wait for an agent, and large values for room in the store. */
    agentTimeoutSeconds: number,
    /** The working directory of programs. Used if it exists on the node. */
    folder: text,
  },
  attached: {
    start: number,
    offer,
    /** Attempts that have not ended; for earlier starts of the driver, only those that began. */
    held: list(heldJob),
    /** Identifies the session on this agent until the agent ends the session. */
    use: number,
    /** How many messages of the new link are repeated ones of earlier links. They come first. */
    resent: count,
  },
  refused: { code: text, message: text },
  /** Sent when a session stops using an agent. Answered when the agent has removed the session. */
  detach: { ...sessionRun, driverStart: number, reason: text },
  /** `isSuperseded`: whether a later start of the session uses the agent. */
  detached: { isSuperseded: flag },
  /** Requests a `ResourceSample`. The answer to the first and to the last request is `null`. */
  sample: { sampler: text, step: oneOf('first', 'next', 'last') },
  /** Answered by a `ProgramOutput`, or by `null` if the agent does not run this attempt. */
  output: { ...sessionRun, ...attempt },
  /** A heartbeat to all agents of the session, every half second. A lost one is not resent. */
  beat: {
    /** Whether the driver has jobs that wait for an agent. */
    hasWaiting: flag,
    /** The priorities of the waiting jobs. Omitted if no job waits. */
    waitingPriorities: optional(priorityRange),
    /** Whether an agent of the session has idle cores. */
    hasIdle: flag,
    /** How many agents the session uses. */
    agents: count,
    /** Whether the store is full. If so, agents remove recorded results. */
    needsRoom: flag,
  },
  jobs: { definitions: list(definition), functions, others: list(job) },
  cancel: { jobs: list(reference), reason: text },
  /** Asks the agent to return jobs that have not begun, because another node is free. */
  recall: { jobs: list(reference) },
  /**
   * Results up to message `through` are recorded, and those up to `taken` have arrived with their
   * values. Results in the `lost` messages can never be recorded.
   */
  recorded: { through: count, taken: count, lost: optional(list(count)) },
  /** Asks for a value that the store has lost: that of the message with this number of results. */
  restore: { number: count },
  /** Not numbered. Sent at intervals if something is not acknowledged, in either direction. */
  idle: {
    /** Whether messages of the link are missing or were lost, so that a new link is needed. */
    isBroken: flag,
  },
  report: {
    offer,
    starts: list(start),
    returned: list(returnedJob),
    events: list(event),
    lostBundles: list(text),
    /** Whether the store is full and the agent found nothing to remove there. */
    needsRoom: flag,
  },
  /** Results, stored in the session's stream. */
  ends: {
    agent: text,
    use: number,
    /** The number of the message among those with results of this use. Links do not change it. */
    number: atLeast(1),
    /** The start of the driver that sent the attempts, unless a result has its own. */
    driverStart: number,
    /** The agent's current `Offer.ahead`. */
    ahead: count,
    completions,
    ends: list(result),
    /** Events whose arrival is not confirmed. Only sent by an agent that is closing. */
    reports: optional(list(reportedEvents)),
  },
}

type Kinds = keyof typeof forms
/** The message of a kind, or of one of several kinds. */
export type Message<Kind extends Kinds = Kinds> = Kind extends unknown
  ? { readonly kind: Kind } & Fields<(typeof forms)[Kind]>
  : never

export type Announcement = Message<'announcement'>
export type WatcherReport = Message<'watcher-report'>
export type Attach = Message<'attach'>
export type Attached = Message<'attached' | 'refused'>
export type Heartbeat = Message<'beat'>
export type Detached = Message<'detached'>
/** A request to an agent. Requests are not part of a session's ordered messages. */
export type AgentRequest = Message<'ping' | 'challenge' | 'attach' | 'detach' | 'sample' | 'output'>
/** A driver's messages to one agent. They are delivered in order. */
export type DriverMessage = Message<'jobs' | 'cancel' | 'recall' | 'recorded' | 'restore'>
/** An agent's messages to a driver. They are delivered in order. */
export type AgentReport = Message<'report'>
export type ResultsMessage = Message<'ends'>
export type HeldJob = Value<typeof heldJob>
export type Offer = Value<typeof offer>
export type PriorityRange = Value<typeof priorityRange>
export type NotAllowed = Value<typeof notAllowed>
export type AgentRules = Pick<Announcement, 'only' | 'allow'>
export type WireOptions = Value<typeof functionOptions>
export type WireFunctions = Value<typeof functions>
export type WireJob = Value<typeof job>
export type WireStart = Value<typeof start>
export type SentJob = Fields<typeof sentJob>
export type ReturnedJob = Value<typeof returnedJob>
export type WireResult = Value<typeof result>
/** An event as data, because its class may not exist in the driver's process. */
export type WireEvent = Value<typeof event>
export type ReportedEvents = Value<typeof reportedEvents>
export type JobReference = Value<typeof reference>
/** One start of an agent's process. */
export type AgentStart = Fields<typeof agentStart>

/** Returns the message if it has one of these kinds and the form of its kind. Otherwise throws. */
export function expectMessage<Kind extends Kinds>(
  payload: unknown,
  ...kinds: readonly Kind[]
): Message<Kind> {
  const { kind } = Object(payload) as { readonly kind?: unknown }
  const known = kinds.find((one) => one === kind)
  if (known === undefined) throw malformed('its kind is not known')
  expectForm(`${known}.`, forms[known], Object(payload) as object)
  return payload as Message<Kind>
}

/** Returns a spec that a driver has stored. Throws if it does not have the form of a spec. */
export function expectSpec(stored: unknown): TaskSpec {
  if (!spec(stored)) throw malformed('its spec has not the form of its kind')
  return stored
}

/** Whether an agent's answer is the output of a program. */
export const isOutput = fields(output)

/** Whether an object that an agent has stored has the contents of a result. */
export const isStoredResult = fields({ outcome, facts: nullable(attemptFacts) })
