/** What the driver's machine is told, and what it wants to be done. Plain data. */

import type { Job, Notice, TaskReport } from '../../../backends/backend.ts'
import type { Header } from '../../wire/envelope.ts'
import type { Tagged } from '../../wire/forms.ts'
import type {
  AgentReport,
  AgentStart,
  Attach,
  DriverMessage,
  Heartbeat,
  Message,
  ResultsMessage,
} from '../../wire/messages.ts'
import type { ReceivedMessage } from './agent-results.ts'
import type { FoundResult } from './returned-run.ts'
import type { AnnouncedAgent, DriverJob, GroupOptions, RemoteAgent } from './remote-agent.ts'

/** A message of an agent. `size` is in bytes. */
export interface LinkMessage {
  readonly header: Header
  readonly payload: AgentReport | ResultsMessage | Message<'idle'>
  readonly size: number
}

/** A value that was stored apart from its result: as it was read, or `null` if it is lost. */
export interface StoredParts {
  readonly one: DriverJob
  readonly end: FoundResult
  readonly agent: RemoteAgent | null
  readonly message: ReceivedMessage | null
}

export type DriverStimulus = Tagged<{
  submit: { jobs: readonly Job[] }
  'submit together': { jobs: readonly Job[]; options: GroupOptions }
  cancel: { job: Job; reason: string }
  /** The record has the outcomes of these jobs. */
  recorded: { jobs: readonly Job[] }
  /** This process owns the session. `earlier` is `null` for a new run. Links count from `links`. */
  claimed: { driverStart: number; links: number; earlier: readonly AgentStart[] | null }
  'agent joined': { agent: AnnouncedAgent }
  'agent draining': { agent: AgentStart }
  'agent lost': { agent: AgentStart; reason: string }
  attached: { link: number; answer: Message<'attached'> }
  'not attached': { link: number; problem: string }
  /** The record names the agent. */
  'agent recorded': { agent: RemoteAgent }
  message: { agent: string; message: LinkMessage }
  /** Results from the stream, in order: of a lost agent, or of all agents (`agent: null`). */
  'stored results': { agent: RemoteAgent | null; messages: readonly ResultsMessage[] }
  /** `end` has the stored parts. `isLost`: the value was not found. */
  'parts read': { parts: StoredParts; isLost: boolean }
  /** The job cannot be sent. */
  unsendable: { one: DriverJob; error: unknown; isFinal: boolean }
  reconnected: unknown
  place: unknown
  turn: unknown
  tick: unknown
  failed: { error: Error }
  close: { reason: string }
  /** No agent holds jobs of the session anymore. */
  closed: { reason: string }
}>

export type AttachRequest = Pick<Attach, 'driverStart' | 'link' | 'applied' | 'use' | 'taken'>

/** A driver's messages to an agent, without those that carry jobs. */
export type PostedMessage = Exclude<DriverMessage, Message<'jobs'>>

export type DriverInstruction = Tagged<{
  report: { job: Job; report: TaskReport }
  notice: { notice: Notice }
  /** `reason` is `null` if the agent has left normally. */
  'report left': { nodeId: string; reason: string | null; tasks: readonly string[] }
  attach: { agent: RemoteAgent; request: AttachRequest }
  /** Wait until the record has everything so far, then say `agent recorded`. */
  flush: { agent: RemoteAgent }
  'send jobs': { agent: RemoteAgent; jobs: readonly DriverJob[] }
  'abort sending': { one: DriverJob }
  send: { agent: RemoteAgent; message: PostedMessage }
  'send idle': { agent: RemoteAgent; header: Header; message: Message<'idle'> }
  'send beat': { beat: Heartbeat }
  /** Read the stored results of a lost agent, or of all agents (`agent: null`). */
  'read results': { agent: RemoteAgent | null }
  /** Read the parts of a result from the store, then say `parts read`. */
  'read parts': { parts: StoredParts }
  'drop bundles': { digests: readonly string[] }
  /** Say `place` soon, at most once per turn. `submitted` is the size of a new list, or 0. */
  'place soon': { submitted: number }
  /** Say `turn` in the next turn of the event loop. */
  'next turn': unknown
  warn: { code: string; text: string }
}>
