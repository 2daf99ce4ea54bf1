/** What the driver's machine is told, and what it wants to be done. Plain data. */

import type { Job, Notice, TaskReport } from '../../../backends/backend.ts'
import type { Header } from '../../wire/envelope.ts'
import type {
  AgentReport,
  AgentStart,
  Attach,
  Heartbeat,
  JobReference,
  Message,
  ResultsMessage,
} from '../../wire/messages.ts'
import type { ReceivedMessage, ResultsReport } from './agent-results.ts'
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

export type DriverStimulus =
  | { readonly kind: 'submit'; readonly jobs: readonly Job[] }
  | {
      readonly kind: 'submit together'
      readonly jobs: readonly Job[]
      readonly options: GroupOptions
    }
  | { readonly kind: 'cancel'; readonly job: Job; readonly reason: string }
  /** The record has the outcomes of these jobs. */
  | { readonly kind: 'recorded'; readonly jobs: readonly Job[] }
  /** This process owns the session. `earlier` is `null` for a new run. Links count from `links`. */
  | {
      readonly kind: 'claimed'
      readonly driverStart: number
      readonly links: number
      readonly earlier: readonly AgentStart[] | null
    }
  | { readonly kind: 'agent joined'; readonly agent: AnnouncedAgent }
  | { readonly kind: 'agent draining'; readonly agent: AgentStart }
  | { readonly kind: 'agent lost'; readonly agent: AgentStart; readonly reason: string }
  | { readonly kind: 'attached'; readonly link: number; readonly answer: Message<'attached'> }
  | { readonly kind: 'not attached'; readonly link: number; readonly problem: string }
  /** The record names the agent. */
  | { readonly kind: 'agent recorded'; readonly agent: RemoteAgent }
  | { readonly kind: 'message'; readonly agent: string; readonly message: LinkMessage }
  /** Results from the stream, in order: of a lost agent, or of all agents (`agent: null`). */
  | {
      readonly kind: 'stored results'
      readonly agent: RemoteAgent | null
      readonly messages: readonly ResultsMessage[]
    }
  /** `end` has the stored parts. `isLost`: the value was not found. */
  | { readonly kind: 'parts read'; readonly parts: StoredParts; readonly isLost: boolean }
  /** The job cannot be sent. */
  | {
      readonly kind: 'unsendable'
      readonly one: DriverJob
      readonly error: unknown
      readonly isFinal: boolean
    }
  | { readonly kind: 'reconnected' }
  | { readonly kind: 'place' }
  | { readonly kind: 'turn' }
  | { readonly kind: 'tick' }
  | { readonly kind: 'failed'; readonly error: Error }
  | { readonly kind: 'close'; readonly reason: string }
  /** No agent holds jobs of the session anymore. */
  | { readonly kind: 'closed'; readonly reason: string }

export type AttachRequest = Pick<Attach, 'driverStart' | 'link' | 'applied' | 'use' | 'taken'>

export type DriverInstruction =
  | { readonly kind: 'report'; readonly job: Job; readonly report: TaskReport }
  | { readonly kind: 'notice'; readonly notice: Notice }
  /** `reason` is `null` if the agent has left normally. */
  | {
      readonly kind: 'report left'
      readonly nodeId: string
      readonly reason: string | null
      readonly tasks: readonly string[]
    }
  | { readonly kind: 'attach'; readonly agent: RemoteAgent; readonly request: AttachRequest }
  /** Wait until the record has everything so far, then say `agent recorded`. */
  | { readonly kind: 'flush'; readonly agent: RemoteAgent }
  | {
      readonly kind: 'send jobs'
      readonly agent: RemoteAgent
      readonly jobs: readonly DriverJob[]
    }
  | { readonly kind: 'abort sending'; readonly one: DriverJob }
  | {
      readonly kind: 'send cancel'
      readonly agent: RemoteAgent
      readonly jobs: readonly JobReference[]
      readonly reason: string
    }
  | {
      readonly kind: 'send recall'
      readonly agent: RemoteAgent
      readonly jobs: readonly JobReference[]
    }
  | {
      readonly kind: 'send recorded'
      readonly agent: RemoteAgent
      readonly report: ResultsReport
    }
  | { readonly kind: 'send restore'; readonly agent: RemoteAgent; readonly number: number }
  | {
      readonly kind: 'send idle'
      readonly agent: RemoteAgent
      readonly header: Header
      readonly message: Message<'idle'>
    }
  | { readonly kind: 'send beat'; readonly beat: Heartbeat }
  /** Read the stored results of a lost agent, or of all agents (`agent: null`). */
  | { readonly kind: 'read results'; readonly agent: RemoteAgent | null }
  /** Read the parts of a result from the store, then say `parts read`. */
  | { readonly kind: 'read parts'; readonly parts: StoredParts }
  | { readonly kind: 'drop bundles'; readonly digests: readonly string[] }
  /** Say `place` soon, at most once per turn. `submitted` is the size of a new list, or 0. */
  | { readonly kind: 'place soon'; readonly submitted: number }
  /** Say `turn` in the next turn of the event loop. */
  | { readonly kind: 'next turn' }
  | { readonly kind: 'warn'; readonly code: string; readonly text: string }
  /** The session cannot continue: say `failed`. */
  | { readonly kind: 'fail'; readonly error: Error }
