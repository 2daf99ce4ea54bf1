/** What answers at an address, and what it works with. */

import { hostname } from 'node:os'
import type { Clock } from '../../foundation/clock.ts'
import type { Desk } from '../generation/text-generator.ts'
import type { Exchange } from './exchange.ts'
import type { ServerLimits } from './server-limits.ts'
import type { RequestRules } from './requests/text-request.ts'

/** What answers at a path. A body is read for those that say how long it may be. */
export interface Endpoint {
  readonly method: 'GET' | 'POST'
  readonly path: string
  /** Needs no key. Default `false`. */
  readonly isOpen?: boolean
  readonly bodyBytes?: number
  /** `body` is the parsed JSON, `rest` what the path's `:rest` stands for. */
  answer(exchange: Exchange, body: unknown, rest: string): Promise<void> | void
}

/** What the endpoints work with. */
export interface EndpointTools {
  readonly desk: Desk
  readonly clock: Clock
  readonly limits: ServerLimits
  readonly rules: RequestRules
  readonly batchConfig: { readonly maxBatchSize: number; readonly maxBatchWaitMs: number }
  readonly metrics: () => Promise<string> | string
  /** The server's own address. */
  readonly endpoint: string
  /** Why no request is taken; `null` when they are. */
  readonly unready: () => string | null
}

/** The name that answers give of the machine they come from. */
export const machineName = hostname()
