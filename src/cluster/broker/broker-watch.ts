/** Reports outages of the broker and their end. Without a report, an outage looks like a hang. */

import type { Clock } from '../../foundation/clock.ts'
import type { Log } from '../../foundation/log.ts'
import type { Broker } from './broker.ts'

export interface BrokerWatchOptions {
  readonly broker: Broker
  readonly clock: Clock
  readonly log: Log
  /** The owner of the connection, such as `agent "first"`. */
  readonly owner: string
  /** Called once per outage, with a reason that can be shown to users. */
  readonly onOutage?: (reason: string) => void
}

/** The delay before the warning. A restarting server is back within this time. */
const warnDelayMs = 2000

export class BrokerWatch {
  readonly #options: BrokerWatchOptions
  readonly #unsubscribe: () => void
  #cancelWarning: () => void = () => {}
  /** When the reported outage began, in seconds since the epoch; `null` if there is none. */
  #awaySince: number | null = null

  constructor(options: BrokerWatchOptions) {
    this.#options = options
    this.#unsubscribe = options.broker.onConnection((isConnected) =>
      this.#handleChange(isConnected),
    )
  }

  close(): void {
    this.#unsubscribe()
    this.#cancelWarning()
  }

  #handleChange(isConnected: boolean): void {
    this.#cancelWarning()
    const { clock } = this.#options
    const lostAt = clock.now()
    if (isConnected) return this.#reportBack()
    this.#cancelWarning = clock.after(warnDelayMs, () => this.#reportAway(lostAt), {
      background: true,
    })
  }

  #reportAway(lostAt: number): void {
    this.#awaySince = lostAt
    const { broker, log, owner, onOutage } = this.#options
    const reason = `the broker at ${broker.url} cannot be reached since ${formatTime(lostAt)}`
    log.warn('BrokerAway', `${owner}: ${reason}; it is tried again until it is back`)
    onOutage?.(reason)
  }

  #reportBack(): void {
    if (this.#awaySince === null) return
    const { broker, log, owner, clock } = this.#options
    const seconds = Math.round(clock.now() - this.#awaySince)
    this.#awaySince = null
    const text = `the broker at ${broker.url} is back since ${formatTime(clock.now())}`
    log.warn('BrokerBack', `${owner}: ${text}, after ${seconds} s`)
  }
}

const formatTime = (seconds: number): string => new Date(seconds * 1000).toISOString()
