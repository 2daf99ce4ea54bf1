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
 * After this time without messages of its driver, an agent begins no further tasks. A driver sends
 * no jobs to an agent that was silent for as long.
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

/** Closures and prompts are never sent to agents. */
export const kindOf = ({ kind }: Pick<TaskSpec, 'kind'>): 'functions' | 'programs' =>
  kind === 'program' ? 'programs' : 'functions'

/** Checks the part of an agent's rules that its driver can also check: the kind of the task. */
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
  /** Identifies the agent's start. Another epoch with the same name means another agent. */
  readonly epoch: number
  readonly host: string
  readonly pid: number
  readonly version: string
  readonly state: 'ready' | 'draining' | 'gone'
  readonly facts: NodeFacts
  readonly sessions: number
  /** The number of messages that were wrongly signed, were replayed, or could not be decoded. */
  readonly refusedMessages: number
}

/** A watcher's report about an agent that cannot report, signed with the key of the cluster. */
export interface WatcherReport {
  readonly kind: 'watcher-report'
  /**
   * `dead`: the process exited without an announcement. `silent`: it is alive, but does not answer.
   */
  readonly state: 'dead' | 'silent'
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
  /** If given, the answer also has the latest driver start of this use of a session. */
  readonly use?: SessionUse
  /** A run of this use. The start that closed this run counts as well. */
  readonly run?: string
}

export interface Challenged {
  readonly kind: 'challenged'
  readonly nonce: number
  /** The latest start of the driver that the agent knows; 0 if there is none. */
  readonly latestStart?: number
}

/** Sent when a driver begins to use an agent for a session. */
export interface Attach extends SessionRun {
  readonly kind: 'attach'
  /** The nonce of the answer to `Challenge`, so that a replayed attach is refused. */
  readonly nonce: number
  /** Identifies the driver's start. */
  readonly epoch: number
  /** Identifies the messages that follow, which each attach numbers from 1. */
  readonly link: number
  /** How long tasks continue after the last message of the driver. */
  readonly ownerTtlSeconds: number
  /** How long the broker keeps task results. */
  readonly resultTtlSeconds: number
  /** How long tasks wait for an agent, and large values for room in the store. */
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
      /**
       * The number of messages with results that the agent sent, and those that no driver has
       * recorded.
       */
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

/** A heartbeat to all agents of the session, every half second. Lost heartbeats are not resent. */
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
  /** Whether the driver believes that the session's stream exists. A server may lose it. */
  readonly hasStream: boolean
  /** How often the server has lost the stream. Agents then store messages again. */
  readonly lostStreams: number
  /** Whether the store is full, so that agents must remove recorded results. */
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
 * Requests one sample of the node. The answer is a `ResourceSample`, or `null` for a sampler's
 * first request, which sets the baseline, and for its last.
 */
export interface SampleRequest {
  readonly kind: 'sample'
  readonly sampler: string
  readonly step: SampleStep
}

/**
 * Requests the output of a running program so far. The answer is a `ProgramOutput`, or `null` if
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

/** Functions as columns, which are serialized faster than one object per function. */
export interface WireFunctions {
  /** The driver's index of each job, which the result repeats. */
  readonly indexes: ArrayLike<number>
  /** All uids, joined into one string. */
  readonly uids: string
  /** `null` if all of them are first attempts. */
  readonly attempts: readonly number[] | null
  /** The index of each function's definition in this message; `null` if all use the first. */
  readonly definitions: readonly number[] | null
  /** `null` if no function has arguments. */
  readonly args: readonly (readonly unknown[])[] | null
  /**
   * One element per function; `null` means the defaults. The whole list is `null` if all functions
   * have the defaults.
   */
  readonly options: readonly (WireOptions | null)[] | null
}

/**
 * A job outside of the columns. A spec that is too large for a message is in the broker's store.
 */
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
   * Results in messages up to `through` are recorded; those up to `taken` arrived with their
   * values. Results in the `lost` messages are not recorded, and never will be.
   */
  | {
      readonly kind: 'recorded'
      readonly through: number
      readonly taken: number
      readonly lost?: readonly number[]
    }
  /** Messages with results that were stored, but are missing in the stream. */
  | { readonly kind: 'missing'; readonly from: number; readonly to: number }

export interface WireStart {
  readonly index: number
  readonly uid: string
  readonly attempt: number
  readonly atMs: number
  readonly workerId: string
  /** The files on the node that receive the program's output. */
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

/** The result of an attempt. Times are by the clock of the agent's machine. */
export interface WireEnd {
  /** The driver's index of the job, as sent with the job. */
  readonly index: number
  readonly uid: string
  readonly attempt: number
  readonly beganMs: number | null
  readonly atMs: number
  readonly workerId: string | null
  readonly facts: AttemptFacts | null
  /** The object in the broker's store that contains `stdout` and `stderr` of the facts. */
  readonly outputObject?: string
  /** The object in the broker's store that contains the error; `outcome` has its short form. */
  readonly errorObject?: string
  readonly outcome:
    | { readonly kind: 'complete'; readonly value: unknown }
    /** The value is an object in the broker's store. */
    | { readonly kind: 'complete-large'; readonly object: string }
    | { readonly kind: 'fail'; readonly error: ErrorRecord; readonly isThrown: boolean }
    | { readonly kind: 'cancel'; readonly reason: string }
}

/** An event from the node's backend or a task's code. Its class may exist only on the node. */
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
  readonly lostBundles: readonly string[]
  /** The number of messages with results that the agent has sent to this session's stream. */
  readonly endMessages: number
  /** Whether the store is full and the agent has nothing there that could be removed. */
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
  /** The attempt number that agents use. */
  readonly attempt: number
  readonly message: string
}

/** The state of an agent that a session uses, stored in the stream with the driver's epoch. */
export interface AgentNote extends AgentStart {
  /** `left`: the agent holds nothing more. `missing`: it is unknown what the agent held. */
  readonly state: 'used' | 'left' | 'missing'
  /** The `endsEpoch` of the use that has ended; only in notes that the agent itself wrote. */
  readonly endsEpoch?: number
  readonly lost?: readonly LostAttempt[]
  /** Attempts that the agent may have begun, whose tasks were moved to other agents. */
  readonly moved?: readonly JobReference[]
}

/** Identifies an agent's message with events by its number within a link. */
export interface EventsMark {
  readonly link: number
  readonly number: number
}

/** The events of a message from an agent to a driver, and the starts reported before them. */
export interface ReportedEvents extends EventsMark {
  readonly starts: readonly WireStart[]
  readonly events: readonly WireEvent[]
}

/** Results of attempts, stored in the session's stream. Numbering continues across drivers. */
export interface EndsMessage {
  readonly kind: 'ends'
  readonly agent: string
  /** The agent's current `Offer.ahead`. */
  readonly ahead: number
  readonly completions: WireCompletions
  readonly ends: readonly WireEnd[]
  /** The last unconfirmed events of these tasks. The results apply after these events. */
  readonly events?: EventsMark
  /** Sent by an agent that is closing: events whose arrival is not confirmed. */
  readonly reports?: readonly ReportedEvents[]
}
