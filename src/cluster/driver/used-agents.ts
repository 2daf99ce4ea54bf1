/** Notes in a session's stream which agents it uses, so that a later start can contact them. */

import type { Clock } from '../../foundation/clock.ts'
import { BackendError, messageOf } from '../../foundation/errors.ts'
import type { Log } from '../../foundation/log.ts'
import { retry } from '../../runtime/retry.ts'
import type { Broker, StreamState } from '../broker/broker.ts'
import type { SessionStream } from '../broker/session-stream.ts'
import { encode } from '../wire/codec.ts'
import { deriveKeys, type Keys, noHeader, open, seal } from '../wire/envelope.ts'
import { payloadLimit } from '../wire/job-batches.ts'
import { expectMessage, expectNote } from '../wire/message-forms.ts'
import {
  type AgentNote,
  type AgentStart,
  type Challenge,
  type JobReference,
  type LostAttempt,
  silenceMs,
} from '../wire/messages.ts'
import { askOwner, type Owner, processId } from '../wire/owner-request.ts'
import type { SessionSubjects, SessionUse } from '../wire/subjects.ts'
import type { AgentDirectory } from './directory/agent-directory.ts'

export interface NotedAgents {
  /** The highest driver epoch in the notes. No agent knows a later one. 0 without notes. */
  readonly latestEpoch: number
  /** Agents that earlier starts of the session used and did not leave. */
  readonly used: readonly AgentStart[]
  /** Agents that were gone when a later start of the session looked for them. */
  readonly missing: readonly AgentStart[]
  /** Agents that hold no more jobs of the session. */
  readonly left: readonly AgentStart[]
  readonly lost: readonly LostAttempt[]
  /** Attempts whose numbers must not be used again, because their tasks have moved. */
  readonly moved: readonly JobReference[]
}

/** The empty result for a session that has not been started before. */
export const nothingNoted: NotedAgents = {
  latestEpoch: 0,
  used: [],
  missing: [],
  left: [],
  lost: [],
  moved: [],
}

/** Reads the notes of earlier starts of the session, and of agents that left. */
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
      const note = expectNote(payload)
      latestEpoch = Math.max(latestEpoch, start)
      if (!notes.add(note, start, number)) continue
      lost.push(...(note.lost ?? []))
      moved.push(...(note.moved ?? []))
    } catch {
      // The note is not signed with the token, or is malformed.
    }
  }
  const { all } = notes
  const used = all.filter(({ state }) => state === 'used')
  const missing = all.filter(({ state }) => state === 'missing')
  const left = all.filter(({ state }) => state === 'left')
  return { latestEpoch, used, missing, left, lost, moved }
}

const keyOf = ({ name, epoch }: AgentStart): string => `${epoch} ${name}`

/** The last note of each agent. Each note counts once, because any client may replay notes. */
class LatestNotes {
  readonly #latest = new Map<
    string,
    { readonly start: number; readonly number: number; readonly note: AgentNote }
  >()
  readonly #seen = new Set<string>()

  get all(): readonly AgentNote[] {
    return Array.from(this.#latest.values(), ({ note }) => note)
  }

  /** `number` counts the notes of a driver's start. `false` for a note that was already added. */
  add(note: AgentNote, start: number, number: number): boolean {
    const agent = keyOf(note)
    const once = `${start} ${note.endsEpoch === undefined ? number : `use ${note.endsEpoch}`}`
    if (this.#seen.has(once)) return false
    this.#seen.add(once)
    const known = this.#latest.get(agent)
    // An agent may note late that it has left an earlier driver. Agents do not number their notes.
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
  readonly run: () => string
  /** The driver's epoch, once it has claimed the session. */
  readonly epoch: () => number
  readonly keys: () => Keys
  readonly subjects: SessionSubjects
  readonly broker: Broker
  readonly directory: Pick<AgentDirectory, 'request'>
  readonly stream: SessionStream
  readonly clock: Clock
  readonly log: Log
  readonly resultTtlSeconds: number
  /** Called when attempts have been noted, so that jobs waiting for the note may be sent. */
  readonly onChange: () => void
  /** Called when another process has continued the session. */
  readonly onFailed: (error: BackendError) => void
}

const appendMs = 5000
/** How often the stream is checked. */
const lookMs = 1000
/** Notes are retried, because the server may be restarting. */
const maxTries = 5
const retryMs = 200

export class UsedAgents {
  readonly #options: UsedAgentsOptions
  /** Agents for which a later start of the session would wait. */
  readonly #noted = new Map<string, AgentStart>()
  #notedMs: number
  #noting = 0
  /** The number of the last note. */
  #number = 0
  /** How often the stream may have been lost, now and when it was last verified. */
  #possibleLosses = 0
  #seenLosses = 0
  #isLooking = false
  #lookedMs = -Infinity
  /** The state of the stream when it was last verified to have notes of all used agents. */
  #seen: StreamState | null = null
  #lostStreams = 0
  #isClosed = false
  #leaving: Promise<void> | null = null

  constructor(options: UsedAgentsOptions) {
    this.#options = options
    this.#notedMs = options.clock.monotonicMs()
  }

  /** Called before the first job, because a later start of the session must contact this agent. */
  async add(agent: AgentStart): Promise<void> {
    // A restarted server may have lost the stream.
    await this.#options.stream.open()
    this.#noted.set(keyOf(agent), agent)
    await this.#note(agent, 'used')
  }

  /**
   * Notes that a later start need not wait for the agent, must count the lost attempts, and must
   * not reuse the numbers of moved ones. Resolves when the stream has the note.
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
   * Notes attempts that a missing agent may have begun, and that get other numbers. A later start
   * does not use their numbers, even if the agent comes back.
   */
  async skip(agent: AgentStart, moved: readonly JobReference[]): Promise<void> {
    await this.#noteAttempts(agent, 'missing', [], moved)
  }

  /** Whether attempt numbers are being noted. Attempts with later numbers must not begin before. */
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
    const note = async (): Promise<void> => {
      if (this.#isClosed) return
      await stream.open()
      // The agent may have been added again meanwhile.
      const isUsed = this.#noted.has(keyOf(agent))
      await this.#note(agent, isUsed ? 'used' : state, lost, moved)
    }
    let failed = 0
    // Without the note, a later start waits for the agent before it continues.
    const mayRetry = (): boolean => count > 0 && !(broker.isConnected && ++failed === maxTries)
    await retry({ delayMs: retryMs }, note, { clock, mayRetry }).catch((error: unknown) => {
      const text = `the loss of agent "${agent.name}" could not be stored: ${messageOf(error)}`
      const result = 'a later start of the session runs its tasks again'
      if (count > 0) log.warn('LossNotNoted', `${text}; ${result}`)
    })
    if (moved.length === 0) return
    this.#noting--
    onChange()
  }

  /**
   * Notes that the agent is gone. A later start does not wait for it, but it may have begun tasks.
   */
  async addMissing(agent: AgentStart): Promise<void> {
    await this.#note(agent, 'missing').catch(() => {
      // A later start will notice again that the agent is missing.
    })
  }

  /** Whether the stream is known to exist and to have notes of all used agents. */
  get hasStream(): boolean {
    return this.#seenLosses === this.#possibleLosses
  }

  /** Called after a reconnect, because the server may have been restarted. */
  reconnected(): void {
    this.#possibleLosses++
  }

  /** How often the stream, or its notes of agents, were lost. */
  get lostStreams(): number {
    return this.#lostStreams
  }

  /**
   * Checks whether the stream has notes of all used agents, after each reconnect and regularly,
   * because a server may restart with an empty store, and any client may delete the stream.
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

  /** Whether it is the same stream, with no fewer notes. Also `false` if old notes have expired. */
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
    const { broker, subjects, keys, run, stream, log, use, directory, epoch } = this.#options
    const opened = await stream.open()
    if (this.#isClosed || opened === null) return
    if (opened.label !== run() && !(await this.#replaceStream())) return
    const seen = await broker.store.findStream(subjects.stream, subjects.used)
    const { used, left, latestEpoch } = await readNotedAgents(broker, subjects, keys())
    if (latestEpoch > epoch()) return this.#fail()
    this.#seen = seen
    // An agent that left normally has noted that, but this driver may not know it yet.
    const noted = new Set([...used, ...left].map(keyOf))
    const missing = attached().filter((agent) => !noted.has(keyOf(agent)))
    if (missing.length === 0 || this.#isClosed) return
    // A later start that closed the session has removed the stream, and the agents know that start.
    const names = missing.map(({ name }) => name)
    const latestStart = await askLatestStart(directory, names, { use, run: run() })
    if (latestStart > epoch()) return this.#fail()
    if (this.#isClosed) return
    await Promise.all(missing.map((agent) => this.#note(agent, 'used')))
    this.#lostStreams++
    const text = `the broker at ${broker.url} has lost its data of session "${use.sessionId}"`
    log.warn('StoreLost', `${text}: agents send unrecorded results again`)
  }

  /**
   * Replaces the stream of a closed run, which exists after an older store was restored. `false` if
   * another process owns the session, and thus the stream.
   */
  async #replaceStream(): Promise<boolean> {
    const { broker, subjects, stream } = this.#options
    if (await this.#hasOtherOwner()) this.#fail()
    if (this.#isClosed) return false
    await broker.store.remove(subjects.stream)
    await stream.open()
    return true
  }

  /** Called when another process has continued the session, and owns the stored data. */
  #fail(): void {
    const { use, onFailed } = this.#options
    this.close()
    const text = `another process has continued session "${use.sessionId}"`
    onFailed(
      new BackendError(`${text} while this one was suspended or disconnected`, {
        code: 'SessionInUseError',
      }),
    )
  }

  async #hasOtherOwner(): Promise<boolean> {
    const { broker, subjects, token } = this.#options
    const isOther = ({ process }: Owner): boolean => process !== processId
    const cluster = deriveKeys(token, null)
    const { answer } = await askOwner(broker, subjects.owner, cluster, silenceMs, isOther)
    return answer === 'signed'
  }

  /** Writes the notes again before they expire, which also repeats this driver's epoch. */
  tick(nowMs: number): void {
    if (this.#isClosed || nowMs - this.#notedMs < this.#options.resultTtlSeconds * 250) return
    this.#notedMs = nowMs
    for (const agent of this.#noted.values()) {
      this.#note(agent, 'used').catch(() => {
        // Retried at the next repetition, which also comes before the notes expire.
      })
    }
  }

  close(): void {
    this.#isClosed = true
  }

  /**
   * Called when the session has a later start. If that start has closed the session, it removed the
   * stream, and this driver may have recreated the stream before it knew.
   */
  leave(): Promise<void> {
    this.close()
    this.#leaving ??= this.#removeRecreated().catch(() => {
      // Another driver removes the stream after its messages have expired.
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

/** Splits a note by size. Only the last part has `left`, because a driver may die between parts. */
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

/**
 * Asks agents for the latest start of a session's driver that they know. Returns its epoch; 0 if
 * none of the agents knows one, or answers.
 */
export async function askLatestStart(
  directory: Pick<AgentDirectory, 'request'>,
  agents: readonly string[],
  asked: Pick<Challenge, 'use' | 'run'>,
): Promise<number> {
  const ask = async (name: string): Promise<number> => {
    try {
      const answer = await directory.request(name, { kind: 'challenge', ...asked }, silenceMs)
      return expectMessage(answer, 'challenged').latestStart ?? 0
    } catch {
      // The agent refuses an earlier driver when that attaches to it.
      return 0
    }
  }
  return Math.max(0, ...(await Promise.all(agents.map(ask))))
}
