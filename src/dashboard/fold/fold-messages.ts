/** The messages between a dashboard and the thread that reads its record. */

import type { ViewQuery } from '../protocol.ts'
import type { TelemetryFacts } from '../queries/query-source.ts'

export interface FoldThreadData {
  readonly path: string
}

export type FoldRequest =
  | { readonly kind: 'refresh' }
  | {
      readonly kind: 'answer'
      readonly query: ViewQuery
      readonly telemetry: TelemetryFacts | null
    }
  /** The next piece of the report; the first one if `isFirst` is set. */
  | { readonly kind: 'report'; readonly isFirst: boolean }

/** The messages to the thread. */
export type ToFold =
  | { readonly kind: 'request'; readonly id: number; readonly request: FoldRequest }
  /** Nobody needs the reply to this request any more. */
  | { readonly kind: 'cancel'; readonly id: number }
  | { readonly kind: 'writing'; readonly id: number; readonly isWriting: boolean }

/** The messages from the thread. */
export type FromFold =
  | { readonly kind: 'reply'; readonly id: number; readonly text: string | null }
  | { readonly kind: 'failure'; readonly id: number; readonly message: string }
  /** Asks whether the process that holds the lock of a session is alive. */
  | {
      readonly kind: 'isWriting'
      readonly id: number
      readonly folder: string
      readonly sessionId: string
    }
