/** The agents that a session uses, noted in its stream: a later start of the session asks them. */

import { type Clock, sleep } from '../../foundation/clock.ts'
import { messageOf } from '../../foundation/errors.ts'
import type { Log } from '../../foundation/log.ts'
import type { Broker } from '../broker/broker.ts'
import type { SessionStream } from '../broker/session-stream.ts'
import { type Keys, noHeader, open, seal } from '../wire/envelope.ts'
import type { SessionSubjects, SessionUse } from '../wire/subjects.ts'

/** An attempt that the driver has failed because its node was lost. */
export interface LostAttempt {
  readonly uid: string
  /** Its number at the agents. */
  readonly attempt: number
  /** Of the error. */
  readonly message: string
}

/** An agent that a session uses, or has given up, with what was lost with it. */
interface UsedAgent {
  readonly name: string
  readonly isUsed: boolean
  readonly lost?: readonly LostAttempt[]
}

export interface NotedAgents {
  /** The latest start that has noted an agent: no agent knows a later one. 0 if none has. */
  readonly latestEpoch: number
  /** The agents that earlier starts of the session have used and not given up. */
  readonly names: readonly string[]
  readonly lost: readonly LostAttempt[]
}

/** What earlier starts of the session have noted. */
export async function readNotedAgents(
  { store }: Broker,
  { stream, used }: SessionSubjects,
  { toDriver }: Keys,
): Promise<NotedAgents> {
  const names = new Set<string>()
  const lost: LostAttempt[] = []
  let latestEpoch = 0
  const { messages } = await store.read(stream, used, null)
  for (const { data } of messages) {
    try {
      const { epoch, payload } = open(toDriver, used, data)
      const agent = payload as UsedAgent
      latestEpoch = Math.max(latestEpoch, epoch)
      if (agent.isUsed) names.add(agent.name)
      else names.delete(agent.name)
      lost.push(...(agent.lost ?? []))
    } catch {
      // Of a stranger.
    }
  }
  return { latestEpoch, names: [...names], lost }
}

export interface UsedAgentsOptions {
  readonly use: SessionUse
  /** The driver's start, once it has claimed the session. */
  readonly epoch: () => number
  readonly keys: Keys
  readonly subjects: SessionSubjects
  readonly broker: Broker
  readonly stream: SessionStream
  readonly clock: Clock
  readonly log: Log
  readonly resultTtlSeconds: number
}

const appendMs = 5000
/** The server may be about to start again. */
const mostTries = 5
const retryMs = 200

export class UsedAgents {
  readonly #options: UsedAgentsOptions
  /** Agents that a later start of the session would wait for. */
  readonly #noted = new Set<string>()
  #notedMs: number
  #isClosed = false

  constructor(options: UsedAgentsOptions) {
    this.#options = options
    this.#notedMs = options.clock.monotonicMs()
  }

  /** Before the first job: a later start of the session has to ask this agent. */
  async add(name: string): Promise<void> {
    // A server that was started again may have lost it.
    await this.#options.stream.open()
    this.#noted.add(name)
    await this.#note({ name, isUsed: true })
  }

  /**
   * A later start of the session need not wait for it, and counts these attempts. Resolves when the
   * stream has them.
   */
  async lose(name: string, lost: readonly LostAttempt[]): Promise<void> {
    if (!this.#noted.delete(name) && lost.length === 0) return
    const { broker, stream, clock, log } = this.#options
    for (let failed = 0; !this.#isClosed;) {
      try {
        await stream.open()
        // It may be used again by now.
        const isUsed = this.#noted.has(name)
        return await this.#note({ name, isUsed, lost })
      } catch (error) {
        // A later start of the session waits for the agent, and then does without.
        if (lost.length === 0) return
        if (broker.isConnected && ++failed === mostTries) {
          const text = `attempts that were lost with "${name}": ${messageOf(error)}`
          return log.warn('LossNotNoted', `${text}; a later start of the session repeats them`)
        }
      }
      await sleep(clock, retryMs)
    }
  }

  /** A server that was started with an empty store does not know which agents are used. */
  async noteMissing(used: () => readonly string[]): Promise<void> {
    const { broker, subjects, keys, stream, log, use } = this.#options
    await stream.open()
    if (this.#isClosed) return
    const { names: noted } = await readNotedAgents(broker, subjects, keys)
    const missing = used().filter((name) => !noted.includes(name))
    if (missing.length === 0 || this.#isClosed) return
    await Promise.all(missing.map((name) => this.#note({ name, isUsed: true })))
    const text = `the broker at ${broker.url} has lost what it had of session "${use.sessionId}"`
    log.warn('StoreLost', `${text}: agents send again what no driver has recorded`)
  }

  /** Notes them again before the stream forgets them, and with them this start of the driver. */
  tick(nowMs: number): void {
    if (this.#isClosed || nowMs - this.#notedMs < this.#options.resultTtlSeconds * 250) return
    this.#notedMs = nowMs
    for (const name of this.#noted) {
      this.#note({ name, isUsed: true }).catch(() => {
        // There is another time before that.
      })
    }
  }

  /** Notes nothing more. */
  close(): void {
    this.#isClosed = true
  }

  async #note(agent: UsedAgent): Promise<void> {
    const { broker, subjects, keys, epoch } = this.#options
    const { used } = subjects
    const data = seal(keys.toDriver, used, { ...noHeader, epoch: epoch() }, agent)
    await broker.store.append(used, data, appendMs)
  }
}
