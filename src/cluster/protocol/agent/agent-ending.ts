/** How a session ends on an agent: its jobs end, and the stream gets what no driver has. */

import { decode } from '../../wire/codec.ts'
import type { AgentReport } from '../../wire/messages.ts'
import type { AgentOutbox } from './agent-outbox.ts'
import type { AgentInstruction } from './agent-stimuli.ts'
import type { KeptMessages } from './kept-messages.ts'
import type { KnownDriver } from './known-driver.ts'

export interface AgentEndingOptions {
  readonly out: AgentInstruction[]
  readonly kept: KeptMessages
  readonly driver: KnownDriver
  readonly outbox: AgentOutbox
}

/** How long to wait for the driver's acknowledgement of events. */
const confirmationTimeoutMs = 3000

/**
 * `releasing`: jobs are ending. `confirming`: events wait for their acknowledgement. `storing`: the
 * stream lacks messages.
 */
type Phase = 'none' | 'releasing' | 'confirming' | 'storing' | 'done'

export class AgentEnding {
  readonly #options: AgentEndingOptions
  #phase: Phase = 'none'
  #keepsResults = false
  #sinceMs = 0
  #limitFromMs = Infinity
  #undelivered = 0

  constructor(options: AgentEndingOptions) {
    this.#options = options
  }

  get hasBegun(): boolean {
    return this.#phase !== 'none'
  }

  get isDone(): boolean {
    return this.#phase === 'done'
  }

  begin(keepsResults: boolean): void {
    this.#phase = 'releasing'
    this.#keepsResults = keepsResults
  }

  handleReleased(nowMs: number): void {
    this.#phase = 'confirming'
    this.#sinceMs = nowMs
    if (!this.#keepsResults) this.#options.outbox.close()
  }

  limitWait(nowMs: number): void {
    this.#limitFromMs = Math.min(this.#limitFromMs, nowMs)
  }

  /** Continues as far as possible. */
  advance(nowMs: number): void {
    if (this.#phase === 'confirming') this.#confirm(nowMs)
    if (this.#phase === 'storing') this.#store(nowMs)
  }

  #confirm(nowMs: number): void {
    const { kept, driver, outbox } = this.#options
    const isLate = nowMs - this.#sinceMs > confirmationTimeoutMs || driver.isSilent(nowMs)
    if (kept.hasEvents && !isLate) return
    const reports = kept.events.map((payload) => decode(payload) as AgentReport)
    kept.clearEvents()
    outbox.sendEvents(reports, nowMs)
    this.#phase = 'storing'
    this.#sinceMs = nowMs
  }

  #store(nowMs: number): void {
    const { outbox, driver, out } = this.#options
    // While the broker is there, results are given up only after the stream was looked for.
    if (!driver.isConnected && this.#isLate(nowMs)) this.#giveUp()
    if (outbox.hasUnstored) return
    outbox.close()
    this.#phase = 'done'
    out.push({ kind: 'done', undelivered: this.#undelivered })
  }

  /** The agent has looked for the stream. Nobody needs results whose stream is gone. */
  handleStream(isOurs: boolean, nowMs: number): void {
    if (!isOurs) this.#options.outbox.close()
    else if (this.#isLate(nowMs)) this.#giveUp()
  }

  #isLate(nowMs: number): boolean {
    if (this.#phase !== 'storing') return false
    const { outbox, driver } = this.#options
    const sinceMs = Math.max(this.#sinceMs, outbox.progressMs, this.#limitFromMs)
    return nowMs - sinceMs >= driver.ownerTtlMs
  }

  #giveUp(): void {
    const { outbox } = this.#options
    this.#undelivered = outbox.unstoredResults
    outbox.close()
  }
}
