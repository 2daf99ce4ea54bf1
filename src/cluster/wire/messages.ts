/** What driver and agent tell each other, after the envelope is opened. */

import type { AttemptFacts } from '../../backends/backend.ts'
import type { SampleStep } from '../../backends/sampling/named-samplers.ts'
import type { EventSchema } from '../../events/event.ts'
import type { ErrorRecord } from '../../foundation/error-record.ts'
import type { TaskDefinition } from '../../tasks/define-task.ts'
import type { FunctionSpec, TaskSpec } from '../../tasks/spec.ts'
import type { WireCompletions } from './completions.ts'
import type { SessionRun, SessionUse } from './subjects.ts'

/**
 * After this silence a driver does not count as alive: its agents begin nothing new. An agent that
 * is silent for as long is sent nothing.
 */
export const silenceMs = 2000

/** What an agent has for tasks. */
export interface NodeFacts {
  readonly cores: number
  readonly gpus: number
  readonly memoryMb: number
  readonly labels: Readonly<Record<string, string>>
}

/** What an agent runs of what it is sent; `null`: everything. */
export interface AgentRules {
  readonly only: 'functions' | 'programs' | null
  /** Globs for the paths of programs and modules. */
  readonly allow: readonly string[] | null
}

export const noRules: AgentRules = Object.freeze({ only: null, allow: null })

/** Why an agent does not allow a task, for people. */
export interface NotAllowed {
  readonly message: string
  readonly hint: string
}

/** An agent as it announces itself, signed with the key of the cluster. */
export interface Announcement extends AgentRules {
  readonly kind: 'announcement'
  readonly name: string
  /** Its start: another one under the same name is another agent. */
  readonly epoch: number
  readonly host: string
  readonly pid: number
  /** Of the package. */
  readonly version: string
  readonly state: 'ready' | 'draining' | 'gone'
  readonly facts: NodeFacts
  readonly sessions: number
  /** Messages that were not signed with the token, were sent before, or cannot be read. */
  readonly refusedMessages: number
}

/** What the watcher of an agent tells when the agent cannot, signed with the key of the cluster. */
export interface WatcherReport {
  readonly kind: 'watcher-report'
  /** Its process has ended without a word; or it lives, and says nothing. */
  readonly state: 'dead' | 'silent'
  /** The agent as it announced itself last. */
  readonly agent: Announcement
  /** How long ago the agent was heard. */
  readonly silentSeconds: number
}

/** Asks an agent whether it is there; the answer has its time. */
export interface Ping {
  readonly kind: 'ping'
}

export interface Pong {
  readonly kind: 'pong'
  readonly epoch: number
  /** Its machine's monotonic clock when the ping came and when this was sent. */
  readonly receivedMs: number
  readonly sentMs: number
}

/** Asks for a number that the next `Attach` must have. */
export interface Challenge {
  readonly kind: 'challenge'
  /** Asks for the latest start of this use of a session, too. */
  readonly use?: SessionUse
}

export interface Challenged {
  readonly kind: 'challenged'
  readonly nonce: number
  /** The driver's start that the agent has attached to; 0 if there is none. */
  readonly latestStart?: number
}

/** A driver begins to use an agent for a session. */
export interface Attach extends SessionRun {
  readonly kind: 'attach'
  /** Of the answer to `Challenge`: an attach that is sent again is refused. */
  readonly nonce: number
  /** The driver's start. */
  readonly epoch: number
  /** Names the messages that follow: a later attach begins to count them anew. */
  readonly link: number
  /** How long tasks go on after the last message of the driver. */
  readonly ownerTtlSeconds: number
  /** How long ends are kept by the broker. */
  readonly resultTtlSeconds: number
  /** How long tasks wait for an agent, and their large values for a store that they fit into. */
  readonly agentTimeoutSeconds: number
  /** Where programs run, if the node has it. */
  readonly folder: string
}

export type Attached =
  | {
      readonly kind: 'attached'
      readonly epoch: number
      readonly offer: Offer
      /** What the agent has of the session: left by an earlier driver, or from before a loss. */
      readonly held: readonly HeldJob[]
      /** Names the use of the agent by the session, until the agent gives it up. */
      readonly endsEpoch: number
      /** How many messages with ends it has sent, and which of them no driver has recorded. */
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

/** How much a driver may send. */
export interface Offer {
  /** Cores, GPUs and memory of the session's share. */
  readonly cores: number
  readonly gpus: number
  readonly memoryMb: number
  /** Jobs that may wait there, so that the next one begins without a round trip. */
  readonly ahead: number
}

export interface PriorityRange {
  /** Of jobs that may be sent ahead; `Infinity` if there is none. */
  readonly lowest: number
  /** Of all. */
  readonly highest: number
}

/** Every half second, for all agents of the session; lost ones do not matter. */
export interface Beat {
  readonly kind: 'beat'
  /** Whether the driver has work that waits for a place. */
  readonly hasWaiting: boolean
  /** Of jobs that wait; none if there is no such job. */
  readonly waitingPriorities?: PriorityRange
  /** Whether an agent of the session has idle cores. */
  readonly hasIdle: boolean
  /** How many agents the session uses. */
  readonly agents: number
  /** Whether its stream is there, as far as it knows: a server may have lost it with its store. */
  readonly hasStream: boolean
  /** How often the server has lost it: agents store again what it may not have. */
  readonly lostStreams: number
  /** Whether the store is full: agents remove ends that are recorded. */
  readonly needsRoom: boolean
}

/** Ends the use of an agent by a session; answered when nothing of the session is left. */
export interface Detach extends SessionRun {
  readonly kind: 'detach'
  readonly epoch: number
  readonly reason: string
}

export interface Detached {
  readonly kind: 'detached'
  /** A later start of the session uses the agent. */
  readonly isSuperseded: boolean
}

/**
 * Asks for one sample of the node; the answer is a `ResourceSample`, or `null` to the first request
 * of a sampler, which sets the baseline, and to the last.
 */
export interface SampleRequest {
  readonly kind: 'sample'
  readonly sampler: string
  readonly step: SampleStep
}

/** A request to an agent that is no part of a session's ordered messages. */
export type AgentRequest = Ping | Challenge | Attach | Detach | SampleRequest

/** What of a function differs from the defaults. */
export type WireOptions = Partial<Pick<FunctionSpec, 'priority' | 'timeoutSeconds' | 'resources'>>

/** Functions by columns, which are written and read faster than an object for each of them. */
export interface WireFunctions {
  /** Where the driver keeps each job; sent back with its end. */
  readonly indexes: ArrayLike<number>
  /** In one text. */
  readonly uids: string
  /** `null`: all are first attempts. */
  readonly attempts: readonly number[] | null
  /** The definition of each, by its index in the message; `null`: all have the first. */
  readonly definitions: readonly number[] | null
  /** `null`: none has any. */
  readonly args: readonly (readonly unknown[])[] | null
  /** `null`: all have the defaults, and so has each that is `null`. */
  readonly options: readonly (WireOptions | null)[] | null
}

/** Any other job; a spec that is too large for a message is an object of the broker's store. */
export interface WireJob {
  readonly index: number
  readonly uid: string
  readonly attempt: number
  readonly spec: TaskSpec | null
  readonly specObject: string | null
  /** How many functions of its message are before it in the driver's order. */
  readonly after: number
}

export type JobReference = readonly [uid: string, attempt: number]

/** Messages of a driver to one agent, in order. */
export type DriverMessage =
  | {
      readonly kind: 'jobs'
      readonly definitions: readonly TaskDefinition[]
      readonly functions: WireFunctions
      readonly others: readonly WireJob[]
    }
  | { readonly kind: 'cancel'; readonly jobs: readonly JobReference[]; readonly reason: string }
  /** Hand back what was not begun: another node is free. */
  | { readonly kind: 'recall'; readonly jobs: readonly JobReference[] }
  /** All ends in messages up to these numbers are recorded, and have come with their values. */
  | { readonly kind: 'recorded'; readonly through: number; readonly taken: number }
  /** Messages with ends that the stream does not have, although they were stored. */
  | { readonly kind: 'missing'; readonly from: number; readonly to: number }

export interface WireStart {
  readonly index: number
  readonly uid: string
  readonly attempt: number
  readonly atMs: number
  readonly workerId: string
}

/** An attempt, with the index under which the driver keeps the job. */
export interface SentJob {
  readonly index: number
  readonly uid: string
  readonly attempt: number
}

/** A job that was not begun and is handed back. */
export interface ReturnedJob extends SentJob {
  /** The agent does not allow it, and would not do so another time. */
  readonly notAllowed?: NotAllowed
}

/** Why an agent that leaves cancels what runs there. */
export const agentClosed = 'agent closed'

/** The end of an attempt; times are those of the agent's machine. */
export interface WireEnd {
  /** Where the driver keeps the job, as it was told with the job. */
  readonly index: number
  readonly uid: string
  readonly attempt: number
  readonly beganMs: number | null
  readonly atMs: number
  readonly workerId: string | null
  readonly facts: AttemptFacts | null
  /** The facts' `stdout` and `stderr` are an object of the broker's store. */
  readonly outputObject?: string
  /** The error is an object of the broker's store; the outcome has a short form of it. */
  readonly errorObject?: string
  readonly outcome:
    | { readonly kind: 'complete'; readonly value: unknown }
    /** The value is an object of the broker's store. */
    | { readonly kind: 'complete-large'; readonly object: string }
    | { readonly kind: 'fail'; readonly error: ErrorRecord; readonly isThrown: boolean }
    | { readonly kind: 'cancel'; readonly reason: string }
}

/** An event of the node's backend or of a task's code; its class may exist on the node alone. */
export interface WireEvent {
  readonly eventType: string
  readonly schema: EventSchema
  readonly fields: Readonly<Record<string, unknown>>
  readonly taskId: string | null
  readonly atMs: number
}

/** Messages of an agent to a driver, in order. */
export interface AgentReport {
  readonly kind: 'report'
  readonly offer: Offer
  readonly starts: readonly WireStart[]
  readonly returned: readonly ReturnedJob[]
  readonly events: readonly WireEvent[]
  /** Bundles that the broker does not have any more. */
  readonly lostBundles: readonly string[]
  /** How many messages with ends the agent has sent to this session's stream. */
  readonly endMessages: number
  /** Whether the store is full, and the agent has nothing there that could be removed. */
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
  /** Its number at the agents. */
  readonly attempt: number
  /** Of the error. */
  readonly message: string
}

/** What became of an agent that a session uses, kept by the stream under the driver's start. */
export interface AgentNote extends AgentStart {
  /** One that has `left` has nothing more; nobody knows what one had that is `missing`. */
  readonly state: 'used' | 'left' | 'missing'
  /** Of a note of the agent itself: `endsEpoch` of the use that it has left. */
  readonly endsEpoch?: number
  readonly lost?: readonly LostAttempt[]
  /** Attempts that it was sent and that it may have begun: their tasks have moved. */
  readonly moved?: readonly JobReference[]
}

/** A message of an agent to a driver with events, by its number in the link of this attach. */
export interface EventsMark {
  readonly link: number
  readonly number: number
}

/** The events of a message that an agent has sent to a driver, and the starts before them. */
export interface ToldEvents extends EventsMark {
  readonly starts: readonly WireStart[]
  readonly events: readonly WireEvent[]
}

/** Ends of jobs. Numbered by the agent, whoever is the driver, and kept by the session's stream. */
export interface EndsMessage {
  readonly kind: 'ends'
  readonly agent: string
  /** As in the offer. */
  readonly ahead: number
  readonly completions: WireCompletions
  readonly ends: readonly WireEnd[]
  /** What their tasks told before, if it is not known to have come: the ends count after it. */
  readonly events?: EventsMark
  /** From an agent that leaves: events that may not have come. */
  readonly told?: readonly ToldEvents[]
}
