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
/** After this time without progress, the agent checks whether the stream still exists. */
const streamCheckMs = 1000

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
  #checkedMs = -Infinity
  #undelivered = 0
  #isChecking = false

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

  /** Results are given up only after the stream was looked for. */
  handleStreamChecked(isGone: boolean, nowMs: number): void {
    this.#isChecking = false
    this.#checkedMs = nowMs
    const { outbox, driver } = this.#options
    const { unstoredResults } = outbox
    const isLate = nowMs - Math.max(this.#progressMs, this.#limitFromMs) >= driver.ownerTtlMs
    if (!isGone && !isLate) return
    if (!isGone) this.#undelivered = unstoredResults
    outbox.close()
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
    const { outbox, out } = this.#options
    if (!outbox.hasUnstored) {
      outbox.close()
      this.#phase = 'done'
      out.push({ kind: 'done', undelivered: this.#undelivered })
    } else if (!this.#isChecking && nowMs - this.#progressMs >= streamCheckMs) {
      if (nowMs - this.#checkedMs < streamCheckMs) return
      this.#isChecking = true
      out.push({ kind: 'check-stream' })
    }
  }

  get #progressMs(): number {
    return Math.max(this.#sinceMs, this.#options.outbox.progressMs)
  }
}
