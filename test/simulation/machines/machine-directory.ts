/** The agents that a simulated driver hears: those that answer, until they leave or are silent. */

import type { Clock } from '../../../src/foundation/clock.ts'
import { ClockOffset } from '../../../src/cluster/protocol/driver/clock-offset.ts'
import type { AnnouncedAgent } from '../../../src/cluster/protocol/driver/remote-agent.ts'
import type { KnownAgents } from '../../../src/cluster/protocol/driver/unplaceable-jobs.ts'
import type { Announcement, Message } from '../../../src/cluster/wire/messages.ts'
import type { SimulatedConnection } from '../simulated-connection.ts'
import { contentOf, toParcel } from './parcel.ts'

interface HeardAgent extends AnnouncedAgent {
  announcement: Announcement
  lastHeardMs: number
  /** Counted in checks, not in time: a suspended process hears nobody. */
  silentMs: number
}

export interface MachineDirectoryOptions {
  readonly connection: SimulatedConnection
  readonly clock: Clock
  readonly lossSeconds: number
  readonly onJoined: (agent: AnnouncedAgent) => void
  readonly onDraining: (agent: AnnouncedAgent) => void
  readonly onLost: (agent: AnnouncedAgent, reason: string) => void
}

const checkMs = 500
const pingTimeoutMs = 2000

export class MachineDirectory implements KnownAgents {
  readonly unusable = []
  readonly allHeardMs = 0
  readonly #options: MachineDirectoryOptions
  readonly #agents = new Map<string, HeardAgent>()
  readonly #ended = new Set<number>()
  readonly #pinged = new Set<number>()
  #isClosed = false

  constructor(options: MachineDirectoryOptions) {
    const { connection } = options
    this.#options = options
    connection.subscribe('agents', ({ data }) => this.#hear(contentOf(data) as Announcement))
    connection.onConnection((isConnected) => {
      for (const agent of this.#agents.values()) agent.silentMs = 0
      if (isConnected) this.#discover()
    })
    this.#discover()
    options.clock.after(checkMs, () => this.#check())
  }

  get agents(): readonly HeardAgent[] {
    return [...this.#agents.values()]
  }

  get gone(): readonly never[] {
    return []
  }

  find(name: string): HeardAgent | undefined {
    return this.#agents.get(name)
  }

  close(): void {
    this.#isClosed = true
  }

  #discover(): void {
    this.#options.connection.publish('discover', toParcel(null))
  }

  #hear(announcement: Announcement): void {
    const { name, start, state } = announcement
    if (this.#ended.has(start) || this.#isClosed) return
    const known = this.#agents.get(name)
    if (known?.announcement.start !== start) {
      if (state !== 'gone') this.#ping(announcement)
      return
    }
    const before = known.announcement.state
    known.announcement = announcement
    this.#markHeard(known)
    if (state === 'gone') this.#lose(known, 'it left')
    else if (state === 'draining' && before === 'ready') this.#options.onDraining(known)
  }

  #markHeard(agent: HeardAgent): void {
    agent.lastHeardMs = this.#options.clock.monotonicMs()
    agent.silentMs = 0
  }

  #ping(announcement: Announcement): void {
    const { connection } = this.#options
    const { name, start } = announcement
    if (this.#pinged.has(start)) return
    this.#pinged.add(start)
    const onAnswer = (data: Uint8Array): boolean => {
      if ((contentOf(data) as Message<'pong'>).start !== start) return false
      this.#pinged.delete(start)
      this.#handlePong(announcement)
      return true
    }
    const onError = (): void => void this.#pinged.delete(start)
    connection.ask(`agent.${name}`, toParcel({ kind: 'ping' }), onAnswer, onError, pingTimeoutMs)
  }

  #handlePong(announcement: Announcement): void {
    const { name, start } = announcement
    if (this.#ended.has(start) || this.#isClosed) return
    const known = this.#agents.get(name)
    if (known?.announcement.start === start) return this.#markHeard(known)
    if (known !== undefined) this.#lose(known, 'it was started again')
    const added = { announcement, offset: new ClockOffset(), lastHeardMs: 0, silentMs: 0 }
    this.#markHeard(added)
    this.#agents.set(name, added)
    this.#options.onJoined(added)
    if (announcement.state === 'draining') this.#options.onDraining(added)
  }

  #lose(agent: HeardAgent, reason: string): void {
    const { name, start } = agent.announcement
    this.#agents.delete(name)
    if (reason !== silentReason) this.#ended.add(start)
    this.#options.onLost(agent, reason)
  }

  #check(): void {
    if (this.#isClosed) return
    const { clock, connection, lossSeconds } = this.#options
    clock.after(checkMs, () => this.#check())
    if (!connection.isConnected) return
    for (const agent of this.#agents.values()) {
      agent.silentMs += checkMs
      if (agent.silentMs > lossSeconds * 1000) this.#lose(agent, silentReason)
      else this.#ping(agent.announcement)
    }
  }
}

const silentReason = 'it was silent'
