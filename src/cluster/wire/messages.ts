/** The messages between driver and agent, without their envelope, and the rules of agents. */

import type { AttemptFacts, OutputFiles } from '../../backends/backend.ts'
import type { SampleStep } from '../../backends/sampling/named-samplers.ts'
import type { EventSchema } from '../../events/event.ts'
import type { ErrorRecord } from '../../foundation/error-record.ts'
import type { TaskDefinition } from '../../tasks/define-task.ts'
import type { FunctionSpec, TaskSpec } from '../../tasks/spec.ts'
import type { WireCompletions } from './completions.ts'
import type { SessionRun, SessionUse } from './subjects.ts'

/**
 * After this silence of its driver, an agent begins no further tasks. A driver sends no jobs to an
 * agent that was silent for as long.
 */
export const silenceMs = 2000

/** The resources and labels that an agent offers to tasks. */
export interface NodeFacts {
  readonly cores: number
  readonly gpus: number
  readonly memoryMb: number
  readonly labels: Readonly<Record<string, string>>
}

/** Restricts which tasks an agent runs; `null` means no restriction. */
export interface AgentRules {
  readonly only: 'functions' | 'programs' | null
  /** Glob patterns for the paths of programs and modules. */
  readonly allow: readonly string[] | null
}

export const noRules: AgentRules = Object.freeze({ only: null, allow: null })

/** Why an agent does not allow a task, in text for users. */
export interface NotAllowed {
  readonly message: string
  readonly hint: string
}

export const rulesHint = 'Start the agent with another --only or --allow.'

/** Closures and prompts need no case: they are not sent to agents. */
export const kindOf = ({ kind }: Pick<TaskSpec, 'kind'>): 'functions' | 'programs' =>
  kind === 'program' ? 'programs' : 'functions'

/** The part of an agent's rules that its driver can check, too: the kind of the task. */
export function refuseByKind(
  agent: string,
  { only }: AgentRules,
  spec: TaskSpec,
): NotAllowed | null {
  if (only === null || only === kindOf(spec)) return null
  const message = `agent "${agent}" runs ${only} only, not ${spec.executable}`
  return { message, hint: rulesHint }
}

/** An agent's announcement of itself, signed with the key of the cluster. */
export interface Announcement extends AgentRules {
  readonly kind: 'announcement'
  readonly name: string
  /** Identifies the agent's start: another epoch under the same name is another agent. */
  readonly epoch: number
  readonly host: string
  readonly pid: number
  /** The version of this package. */
  readonly version: string
  readonly state: 'ready' | 'draining' | 'gone'
  readonly facts: NodeFacts
  readonly sessions: number
  /** Messages that were not signed with the token, were replayed, or cannot be decoded. */
  readonly refusedMessages: number
}

/** A watcher's report about an agent that cannot report, signed with the key of the cluster. */
export interface WatcherReport {
  readonly kind: 'watcher-report'
  /** `dead`: the process ended without an announcement. `silent`: it is alive, but not heard. */
  readonly state: 'dead' | 'silent'
  /** The last announcement of the agent. */
  readonly agent: Announcement
  /** The time since the watcher last heard the agent. */
  readonly silentSeconds: number
}

/** Asks whether an agent responds; the answer has the agent's time. */
export interface Ping {
  readonly kind: 'ping'
}

export interface Pong {
  readonly kind: 'pong'
  readonly epoch: number
  /** The agent's monotonic clock when the ping arrived and when this answer was sent. */
  readonly receivedMs: number
  readonly sentMs: number
}

/** Requests the nonce that the next `Attach` must have. */
export interface Challenge {
  readonly kind: 'challenge'
  /** If given, the answer also has the latest start of this use of a session. */
  readonly use?: SessionUse
  /** A run of this use: the start that has closed it counts, too. */
  readonly run?: string
}

export interface Challenged {
  readonly kind: 'challenged'
  readonly nonce: number
  /** The latest start of the driver that the agent knows; 0 if there is none. */
  readonly latestStart?: number
}

/** A driver begins to use an agent for a session. */
export interface Attach extends SessionRun {
  readonly kind: 'attach'
  /** The nonce of the answer to `Challenge`, so that a replayed attach is refused. */
  readonly nonce: number
  /** Identifies the driver's start. */
  readonly epoch: number
  /** Identifies the messages that follow: each attach counts them from 1 again. */
  readonly link: number
  /** How long tasks continue after the last message of the driver. */
  readonly ownerTtlSeconds: number
  /** How long the broker keeps ends of tasks. */
  readonly resultTtlSeconds: number
  /** How long tasks wait for an agent, and large values for a store in which they fit. */
  readonly agentTimeoutSeconds: number
  /** The working directory of programs, if it exists on the node. */
  readonly folder: string
}

export type Attached =
  | {
      readonly kind: 'attached'
      readonly epoch: number
      readonly offer: Offer
      /** Attempts that the agent holds: from an earlier driver, or from before a disconnect. */
      readonly held: readonly HeldJob[]
      /** Identifies this use of the agent by the session, until the agent ends the use. */
      readonly endsEpoch: number
      /** How many messages with ends the agent sent, and which of them no driver has recorded. */
      readonly endMessages: number
      readonly unrecorded: readonly number[]
    }
  | { readonly kind: 'refused'; readonly code: string; readonly message: string }

export interface HeldJob {
  readonly uid: string
  readonly attempt: number
  readonly beganMs: number | null
  readonly workerId: string | null
}

/** How much work the agent accepts from a driver. */
export interface Offer {
  /** The session's share of cores, GPUs and memory. */
  readonly cores: number
  readonly gpus: number
  readonly memoryMb: number
  /** Jobs that may wait at the agent, so that the next one begins without a round trip. */
  readonly ahead: number
}

export interface PriorityRange {
  /** The lowest priority of jobs that may be sent ahead; `Infinity` if there are none. */
  readonly lowest: number
  /** The highest priority of all waiting jobs. */
  readonly highest: number
}

/** A heartbeat to all agents of the session, every half second. Lost ones are not sent again. */
export interface Beat {
  readonly kind: 'beat'
  /** Whether the driver has jobs that wait for an agent. */
  readonly hasWaiting: boolean
  /** The priorities of waiting jobs; omitted if no job waits. */
  readonly waitingPriorities?: PriorityRange
  /** Whether an agent of the session has idle cores. */
  readonly hasIdle: boolean
  /** How many agents the session uses. */
  readonly agents: number
  /** Whether the session's stream exists, as far as the driver knows: a server may lose it. */
  readonly hasStream: boolean
  /** How often the server has lost the stream: agents then store again what it may lack. */
  readonly lostStreams: number
  /** Whether the store is full, so that agents remove ends that are recorded. */
  readonly needsRoom: boolean
}

/** Ends the use of an agent by a session; answered when the agent holds nothing of the session. */
export interface Detach extends SessionRun {
  readonly kind: 'detach'
  readonly epoch: number
  readonly reason: string
}

export interface Detached {
  readonly kind: 'detached'
  /** Whether a later start of the session uses the agent. */
  readonly isSuperseded: boolean
}

/**
 * Requests one sample of the node. The answer is a `ResourceSample`; or `null` to a sampler's first
 * request, which sets the baseline, and to its last.
 */
export interface SampleRequest {
  readonly kind: 'sample'
  readonly sampler: string
  readonly step: SampleStep
}

/**
 * Requests what a running program has written so far. The answer is a `ProgramOutput`, or `null` if
 * the agent does not run this attempt.
 */
export interface OutputRequest extends SessionRun {
  readonly kind: 'output'
  readonly uid: string
  readonly attempt: number
}

/** A request to an agent, outside of a session's ordered messages. */
export type AgentRequest = Ping | Challenge | Attach | Detach | SampleRequest | OutputRequest

/** The options of a function that differ from the defaults. */
export type WireOptions = Partial<Pick<FunctionSpec, 'priority' | 'timeoutSeconds' | 'resources'>>

/** Functions as columns, which are serialized faster than an object for each function. */
export interface WireFunctions {
  /** The driver's index of each job; sent back with its end. */
  readonly indexes: ArrayLike<number>
  /** All uids, joined to one string. */
  readonly uids: string
  /** `null` if all are first attempts. */
  readonly attempts: readonly number[] | null
  /** The index of each function's definition in this message; `null` if all have the first. */
  readonly definitions: readonly number[] | null
  /** `null` if no function has arguments. */
  readonly args: readonly (readonly unknown[])[] | null
  /** `null` if all functions have the defaults; so has each function whose element is `null`. */
  readonly options: readonly (WireOptions | null)[] | null
}

/** A job outside of the columns. A spec that exceeds a message is in the broker's store. */
export interface WireJob {
  readonly index: number
  readonly uid: string
  readonly attempt: number
  readonly spec: TaskSpec | null
  readonly specObject: string | null
  /** How many functions of the message precede this job in the driver's order. */
  readonly after: number
}

export type JobReference = readonly [uid: string, attempt: number]

/** A driver's messages to one agent; delivered in order. */
export type DriverMessage =
  | {
      readonly kind: 'jobs'
      readonly definitions: readonly TaskDefinition[]
      readonly functions: WireFunctions
      readonly others: readonly WireJob[]
    }
  | { readonly kind: 'cancel'; readonly jobs: readonly JobReference[]; readonly reason: string }
  /** Asks the agent to return jobs that have not begun, because another node is free. */
  | { readonly kind: 'recall'; readonly jobs: readonly JobReference[] }
  /**
   * Up to message `through` ends are recorded; up to `taken` they arrived with their values. Those
   * in the `lost` messages are not recorded, and never will be.
   */
  | {
      readonly kind: 'recorded'
      readonly through: number
      readonly taken: number
      readonly lost?: readonly number[]
    }
  /** Messages with ends that were stored, but are missing in the stream. */
  | { readonly kind: 'missing'; readonly from: number; readonly to: number }

export interface WireStart {
  readonly index: number
  readonly uid: string
  readonly attempt: number
  readonly atMs: number
  readonly workerId: string
  /** The files on the node that take the program's output. */
  readonly files?: OutputFiles
}

/** An attempt, with the driver's index of its job. */
export interface SentJob {
  readonly index: number
  readonly uid: string
  readonly attempt: number
}

/** A job that the agent returns to the driver before it has begun. */
export interface ReturnedJob extends SentJob {
  /** Set if the agent's rules forbid the job, so that sending it there again is pointless. */
  readonly notAllowed?: NotAllowed
}

/** The cancel reason for tasks that run on an agent when it closes. */
export const agentClosed = 'agent closed'

/** The end of an attempt; times are those of the agent's machine. */
export interface WireEnd {
  /** The driver's index of the job, as it was sent with the job. */
  readonly index: number
  readonly uid: string
  readonly attempt: number
  readonly beganMs: number | null
  readonly atMs: number
  readonly workerId: string | null
  readonly facts: AttemptFacts | null
  /** The object of the broker's store that has `stdout` and `stderr` of the facts. */
  readonly outputObject?: string
  /** The object of the broker's store that has the error; the outcome has a short form of it. */
  readonly errorObject?: string
  readonly outcome:
    | { readonly kind: 'complete'; readonly value: unknown }
    /** The value is an object of the broker's store. */
    | { readonly kind: 'complete-large'; readonly object: string }
    | { readonly kind: 'fail'; readonly error: ErrorRecord; readonly isThrown: boolean }
    | { readonly kind: 'cancel'; readonly reason: string }
}

/** An event from the node's backend or a task's code. Its class may be defined on the node only. */
export interface WireEvent {
  readonly eventType: string
  readonly schema: EventSchema
  readonly fields: Readonly<Record<string, unknown>>
  readonly taskId: string | null
  readonly atMs: number
}

/** An agent's messages to a driver; delivered in order. */
export interface AgentReport {
  readonly kind: 'report'
  readonly offer: Offer
  readonly starts: readonly WireStart[]
  readonly returned: readonly ReturnedJob[]
  readonly events: readonly WireEvent[]
  /** Bundles that the broker has lost. */
  readonly lostBundles: readonly string[]
  /** How many messages with ends the agent has sent to this session's stream. */
  readonly endMessages: number
  /** Whether the store is full and the agent has stored nothing that could be removed. */
  readonly needsRoom: boolean
}

/** One start of an agent's process. */
export interface AgentStart {
  readonly name: string
  readonly epoch: number
}

/** An attempt that the driver has failed because its node was lost. */
export interface LostAttempt {
  readonly uid: string
  /** The attempt number under which agents know it. */
  readonly attempt: number
  /** The message of the error. */
  readonly message: string
}

/** What became of an agent that a session uses; stored in the stream with the driver's epoch. */
export interface AgentNote extends AgentStart {
  /** `left`: the agent holds nothing more. `missing`: it is unknown what the agent held. */
  readonly state: 'used' | 'left' | 'missing'
  /** Only in a note that the agent itself wrote: the `endsEpoch` of the use that it has ended. */
  readonly endsEpoch?: number
  readonly lost?: readonly LostAttempt[]
  /** Attempts that the agent may have begun, whose tasks were moved to other agents. */
  readonly moved?: readonly JobReference[]
}

/** Identifies an agent's message with events: its number in the link of an attach. */
export interface EventsMark {
  readonly link: number
  readonly number: number
}

/** The events of a message from an agent to a driver, and the starts reported before them. */
export interface ReportedEvents extends EventsMark {
  readonly starts: readonly WireStart[]
  readonly events: readonly WireEvent[]
}

/** Ends of attempts, stored in the session's stream. Numbering continues across drivers. */
export interface EndsMessage {
  readonly kind: 'ends'
  readonly agent: string
  /** The agent's current `Offer.ahead`. */
  readonly ahead: number
  readonly completions: WireCompletions
  readonly ends: readonly WireEnd[]
  /** The last events of these tasks, if not confirmed: the ends apply after these events. */
  readonly events?: EventsMark
  /** Sent by an agent that is closing: events whose arrival is not confirmed. */
  readonly reports?: readonly ReportedEvents[]
}
