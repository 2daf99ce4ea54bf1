/** What an agent knows about the driver of a session, and its link to the driver. */

import type { Header } from '../../wire/envelope.ts'
import {
  type Attach,
  type Heartbeat,
  maxSilenceMs,
  type PriorityRange,
} from '../../wire/messages.ts'
import { Link } from '../link.ts'

export class KnownDriver {
  link: Link
  isConnected = true
  /** Counts connections, because answers over an earlier connection may be late. */
  connection = 1
  #attach: Attach | null = null
  #beats = 0
  #beat: Heartbeat | null = null
  #beatMs = -Infinity
  #connectedMs = -Infinity

  constructor(nowMs: number) {
    this.link = new Link(0, nowMs)
  }

  /** The driver's start; 0 before the first one attaches. */
  get start(): number {
    return this.#attach?.driverStart ?? 0
  }

  get ownerTtlMs(): number {
    return (this.#attach?.ownerTtlSeconds ?? 0) * 1000
  }

  get lastHeardMs(): number {
    return Math.max(this.#beatMs, this.link.lastHeardMs)
  }

  isSilent(nowMs: number): boolean {
    return nowMs - this.lastHeardMs > maxSilenceMs
  }

  /**
   * Whether results may be stored without finding out first whether the stream still belongs to
   * this run. Another run may have taken it over while the driver was not heard.
   */
  hasStream(nowMs: number): boolean {
    return this.isConnected && this.lastHeardMs > this.#connectedMs && !this.isSilent(nowMs)
  }

  get hasWaiting(): boolean {
    return this.#beat?.hasWaiting ?? false
  }

  /** Whether the driver can place returned jobs on other agents, and the priorities of its jobs. */
  get placing(): { readonly canPlace: boolean; readonly range: PriorityRange | null } {
    const canPlace = !this.hasWaiting || this.#beat?.hasIdle === true
    return { canPlace, range: this.#beat?.waitingPriorities ?? null }
  }

  get agents(): number {
    return this.#beat?.agents ?? 1
  }

  attach(attach: Attach, nowMs: number): void {
    if (attach.driverStart !== this.start) this.#beats = 0
    this.#attach = attach
    this.link = new Link(attach.link, nowMs)
  }

  /** Returns `false` if the beat was sent before. */
  receiveBeat({ number }: Header, beat: Heartbeat, nowMs: number): boolean {
    if (number <= this.#beats) return false
    this.#beats = number
    this.#beatMs = nowMs
    this.#beat = beat
    return true
  }

  setConnected(isUp: boolean, nowMs: number): void {
    this.isConnected = isUp
    if (!isUp) return
    this.connection++
    this.#connectedMs = nowMs
    this.link.break()
  }

  /** The header of results that are stored again, which are not part of the link. */
  get storedHeader(): Header {
    return { scope: this.link.id, number: 0, acknowledged: this.link.received }
  }
}
