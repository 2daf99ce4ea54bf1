/** The agents that a session uses, noted in its stream: a later start of the session asks them. */

import { type Clock, sleep } from '../../foundation/clock.ts'
import { messageOf } from '../../foundation/errors.ts'
import type { Log } from '../../foundation/log.ts'
import type { Broker, StreamState } from '../broker/broker.ts'
import type { SessionStream } from '../broker/session-stream.ts'
import { encode } from '../wire/codec.ts'
import { deriveKeys, type Keys, noHeader, open, seal } from '../wire/envelope.ts'
import { payloadLimit } from '../wire/job-batches.ts'
import {
  type AgentNote,
  type AgentStart,
  type JobReference,
  type LostAttempt,
  silenceMs,
} from '../wire/messages.ts'
import { askOwner, type Owner, processId } from '../wire/owner-question.ts'
import type { SessionSubjects, SessionUse } from '../wire/subjects.ts'

export interface NotedAgents {
  /** The latest start that has noted an agent: no agent knows a later one. 0 if none has. */
  readonly latestEpoch: number
  /** The agents that earlier starts of the session have used and not given up. */
  readonly used: readonly AgentStart[]
  /** Those that were gone when a later start of the session came. */
  readonly missing: readonly AgentStart[]
  /** Those that have nothing more. */
  readonly left: readonly AgentStart[]
  readonly lost: readonly LostAttempt[]
  /** Attempts whose numbers are used, because their tasks have moved. */
  readonly moved: readonly JobReference[]
}

/** Of a session that has not been started before. */
export const nothingNoted: NotedAgents = {
  latestEpoch: 0,
  used: [],
  missing: [],
  left: [],
  lost: [],
  moved: [],
}

/** What earlier starts of the session, and the agents that left them, have noted. */
export async function readNotedAgents(
  { store }: Broker,
  { stream, used: subject }: SessionSubjects,
  { toDriver }: Keys,
): Promise<NotedAgents> {
  const notes = new LatestNotes()
  const lost: LostAttempt[] = []
  const moved: JobReference[] = []
  let latestEpoch = 0
  const { messages } = await store.read(stream, subject, null)
  for (const { data } of messages) {
    try {
      const { epoch: start, number, payload } = open(toDriver, subject, data)
      const note = payload as AgentNote
      latestEpoch = Math.max(latestEpoch, start)
      if (!notes.add(note, start, number)) continue
      lost.push(...(note.lost ?? []))
      moved.push(...(note.moved ?? []))
    } catch {
      // Not signed with the token.
    }
  }
  const { all } = notes
  const used = all.filter(({ state }) => state === 'used')
  const missing = all.filter(({ state }) => state === 'missing')
  const left = all.filter(({ state }) => state === 'left')
  return { latestEpoch, used, missing, left, lost, moved }
}

const keyOf = ({ name, epoch }: AgentStart): string => `${epoch} ${name}`

/** The last note of each agent. Notes may be sent again by anybody: each counts once. */
class LatestNotes {
  readonly #latest = new Map<
    string,
    { readonly start: number; readonly number: number; readonly note: AgentNote }
  >()
  readonly #seen = new Set<string>()

  get all(): readonly AgentNote[] {
    return Array.from(this.#latest.values(), ({ note }) => note)
  }

  /** `number`: among the notes of a start of the driver. `false` for a note that was here. */
  add(note: AgentNote, start: number, number: number): boolean {
    const agent = keyOf(note)
    const once = `${start} ${note.endsEpoch === undefined ? number : `use ${note.endsEpoch}`}`
    if (this.#seen.has(once)) return false
    this.#seen.add(once)
    const known = this.#latest.get(agent)
    // An agent may tell late that it has left an earlier driver. It does not number its notes.
    const at = note.endsEpoch === undefined ? number : (known?.number ?? 0)
    const isLater =
      known === undefined || known.start < start || (known.start === start && known.number <= at)
    if (isLater) this.#latest.set(agent, { start, number: at, note })
    return true
  }
}

export interface UsedAgentsOptions {
  readonly use: SessionUse
  readonly token: string
  /** That of the session. */
  readonly run: () => string
  /** The driver's start, once it has claimed the session. */
  readonly epoch: () => number
  readonly keys: () => Keys
  readonly subjects: SessionSubjects
  readonly broker: Broker
  readonly stream: SessionStream
  readonly clock: Clock
  readonly log: Log
  readonly resultTtlSeconds: number
  /** What waited for a note may be sent. */
  readonly onChange: () => void
}

const appendMs = 5000
/** How often it is looked whether the stream is there. */
const lookMs = 1000
/** The server may be about to start again. */
const mostTries = 5
const retryMs = 200

export class UsedAgents {
  readonly #options: UsedAgentsOptions
  /** Agents that a later start of the session would wait for. */
  readonly #noted = new Map<string, AgentStart>()
  #notedMs: number
  #noting = 0
  /** Of the last note. */
  #number = 0
  /** How often the stream may have been lost, and how often it had when it was seen. */
  #possibleLosses = 0
  #seenLosses = 0
  #isLooking = false
  #lookedMs = -Infinity
  /** The stream as it was when it was seen to know the agents that are used. */
  #seen: StreamState | null = null
  #lostStreams = 0
  #isClosed = false
  #leaving: Promise<void> | null = null

  constructor(options: UsedAgentsOptions) {
    this.#options = options
    this.#notedMs = options.clock.monotonicMs()
  }

  /** Before the first job: a later start of the session has to ask this agent. */
  async add(agent: AgentStart): Promise<void> {
    // A server that was started again may have lost it.
    await this.#options.stream.open()
    this.#noted.set(keyOf(agent), agent)
    await this.#note(agent, 'used')
  }

  /**
   * A later start of the session need not wait for it, counts the attempts that were lost, and does
   * not use the numbers of those that moved. Resolves when the stream has them.
   */
  async lose(
    agent: AgentStart,
    lost: readonly LostAttempt[],
    moved: readonly JobReference[] = [],
  ): Promise<void> {
    if (!this.#noted.delete(keyOf(agent)) && lost.length + moved.length === 0) return
    await this.#noteAttempts(agent, 'left', lost, moved)
  }

  /**
   * An agent that is missing may have begun these attempts, which are begun under other numbers: a
   * later start does not use these either, even if the agent comes back.
   */
  async skip(agent: AgentStart, moved: readonly JobReference[]): Promise<void> {
    await this.#noteAttempts(agent, 'missing', [], moved)
  }

  /** Numbers are being noted: nothing may be begun under the next ones before. */
  get isNoting(): boolean {
    return this.#noting > 0
  }

  async #noteAttempts(
    agent: AgentStart,
    state: 'left' | 'missing',
    lost: readonly LostAttempt[],
    moved: readonly JobReference[],
  ): Promise<void> {
    const { broker, stream, clock, log, onChange } = this.#options
    const count = lost.length + moved.length
    if (moved.length > 0) this.#noting++
    for (let failed = 0; !this.#isClosed;) {
      try {
        await stream.open()
        // It may be used again by now.
        const isUsed = this.#noted.has(keyOf(agent))
        await this.#note(agent, isUsed ? 'used' : state, lost, moved)
        break
      } catch (error) {
        // A later start of the session waits for the agent, and then does without.
        if (count === 0) break
        if (broker.isConnected && ++failed === mostTries) {
          const text = `the loss of agent "${agent.name}" could not be stored: ${messageOf(error)}`
          log.warn('LossNotNoted', `${text}; a later start of the session runs its tasks again`)
          break
        }
      }
      await sleep(clock, retryMs)
    }
    if (moved.length === 0) return
    this.#noting--
    onChange()
  }

  /** It is gone. A later start does not wait for it, and knows that it may have begun tasks. */
  async miss(agent: AgentStart): Promise<void> {
    await this.#note(agent, 'missing').catch(() => {
      // It is found missing once more.
    })
  }

  /** Whether the stream is known to be there, and to know the agents that are used. */
  get hasStream(): boolean {
    return this.#seenLosses === this.#possibleLosses
  }

  /** To a server that may have been started again. */
  reconnected(): void {
    this.#possibleLosses++
  }

  /** How often the stream, or what it knew of agents, was lost. */
  get lostStreams(): number {
    return this.#lostStreams
  }

  /**
   * A server that was started with an empty store does not know which agents are used, and somebody
   * may delete the stream: looked for after each new connection, and now and then.
   */
  async noteMissing(attached: () => readonly AgentStart[]): Promise<void> {
    if (this.#isLooking || this.#isClosed) return
    const nowMs = this.#options.clock.monotonicMs()
    if (this.hasStream && nowMs - this.#lookedMs < lookMs) return
    this.#lookedMs = nowMs
    this.#isLooking = true
    try {
      if (this.hasStream && (await this.#isUnchanged())) return
      const losses = this.#possibleLosses
      await this.#noteMissing(attached)
      this.#seenLosses = losses
    } finally {
      this.#isLooking = false
    }
  }

  /** Since it was seen last. Notes may be gone because they are old. */
  async #isUnchanged(): Promise<boolean> {
    const { broker, subjects } = this.#options
    const found = await broker.store.findStream(subjects.stream, subjects.used)
    const seen = this.#seen
    if (seen === null) return false
    if (found?.created === seen.created && found.messages >= seen.messages) {
      this.#seen = found
      return true
    }
    this.#possibleLosses++
    return false
  }

  async #noteMissing(attached: () => readonly AgentStart[]): Promise<void> {
    const { broker, subjects, keys, run, stream, log, use } = this.#options
    const opened = await stream.open()
    if (this.#isClosed || opened === null) return
    if (opened.label !== run() && !(await this.#replaceStream())) return
    const seen = await broker.store.findStream(subjects.stream, subjects.used)
    const { used, left } = await readNotedAgents(broker, subjects, keys())
    this.#seen = seen
    // One that has left by itself has noted that, and this driver has not heard of it yet.
    const noted = new Set([...used, ...left].map(keyOf))
    const missing = attached().filter((agent) => !noted.has(keyOf(agent)))
    if (missing.length === 0 || this.#isClosed) return
    await Promise.all(missing.map((agent) => this.#note(agent, 'used')))
    this.#lostStreams++
    const text = `the broker at ${broker.url} has lost what it had of session "${use.sessionId}"`
    log.warn('StoreLost', `${text}: agents send again what no driver has recorded`)
  }

  /**
   * A server that was given an older store has the stream of a run that was closed: nothing of it
   * is of this one. `false` if another process has the session by now, and the stream is its own.
   */
  async #replaceStream(): Promise<boolean> {
    const { broker, subjects, stream } = this.#options
    if ((await this.#hasOtherOwner()) || this.#isClosed) return false
    await broker.store.remove(subjects.stream)
    await stream.open()
    return true
  }

  async #hasOtherOwner(): Promise<boolean> {
    const { broker, subjects, token } = this.#options
    const isOther = ({ process }: Owner): boolean => process !== processId
    const cluster = deriveKeys(token, null)
    const { answer } = await askOwner(broker, subjects.owner, cluster, silenceMs, isOther)
    return answer === 'signed'
  }

  /** Notes them again before the stream forgets them, and with them this start of the driver. */
  tick(nowMs: number): void {
    if (this.#isClosed || nowMs - this.#notedMs < this.#options.resultTtlSeconds * 250) return
    this.#notedMs = nowMs
    for (const agent of this.#noted.values()) {
      this.#note(agent, 'used').catch(() => {
        // There is another time before that.
      })
    }
  }

  /** Notes nothing more. */
  close(): void {
    this.#isClosed = true
  }

  /**
   * For a driver whose session a later start has. If that one has closed it, its stream was gone,
   * and this driver may have created it again before it knew.
   */
  leave(): Promise<void> {
    this.close()
    this.#leaving ??= this.#removeRecreated().catch(() => {
      // It is removed by another driver when its messages have expired.
    })
    return this.#leaving
  }

  async #removeRecreated(): Promise<void> {
    const { stream, clock } = this.#options
    await stream.close()
    if (stream.isRecreated && !(await this.#hasOtherOwner())) await stream.remove(clock)
  }

  async #note(
    { name, epoch }: AgentStart,
    state: AgentNote['state'],
    lost: readonly LostAttempt[] = [],
    moved: readonly JobReference[] = [],
  ): Promise<void> {
    const { broker, subjects, keys, epoch: start } = this.#options
    const { used } = subjects
    const limitBytes = payloadLimit(broker.maxPayload)
    for (const note of cutNote({ name, epoch, state, lost, moved }, limitBytes)) {
      const data = seal(
        keys().toDriver,
        used,
        { ...noHeader, epoch: start(), number: ++this.#number },
        note,
      )
      await broker.store.append(used, data, appendMs)
    }
  }
}

/** By bytes. The last part alone says that the agent has left: a driver may die between them. */
function cutNote(note: AgentNote, limitBytes: number): readonly AgentNote[] {
  const { lost = [], moved = [] } = note
  const count = lost.length + moved.length
  if (count <= 1 || encode(note).length <= limitBytes) return [note]
  const middle = count >> 1
  const middleMoved = Math.max(0, middle - lost.length)
  const state = note.state === 'left' ? 'used' : note.state
  const parts: AgentNote[] = [
    { ...note, state, lost: lost.slice(0, middle), moved: moved.slice(0, middleMoved) },
    { ...note, lost: lost.slice(middle), moved: moved.slice(middleMoved) },
  ]
  return parts.flatMap((part) => cutNote(part, limitBytes))
}
