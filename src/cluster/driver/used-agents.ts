/** Notes the agents of a session in its stream, for a later start of the driver to contact them. */

import type { Clock } from '../../foundation/clock.ts'
import { BackendError, messageOf } from '../../foundation/errors.ts'
import type { Log } from '../../foundation/log.ts'
import { once } from '../../foundation/service.ts'
import { retry } from '../../runtime/retry.ts'
import type { Broker, StreamState } from '../broker/broker.ts'
import type { SessionStream } from '../broker/session-stream.ts'
import { encode } from '../wire/codec.ts'
import { deriveKeys, type Keys, emptyHeader, open, seal } from '../wire/envelope.ts'
import { payloadLimit } from '../wire/job-batches.ts'
import {
  type AgentNote,
  type AgentStart,
  expectMessage,
  expectNote,
  type JobReference,
  type LostAttempt,
  maxSilenceMs,
  type Message,
} from '../wire/messages.ts'
import { requestOwner, type Owner, processId } from '../wire/owner-request.ts'
import type { SessionSubjects, SessionUse } from '../wire/subjects.ts'
import type { AgentDirectory } from './agent-directory.ts'

export interface NotedAgents {
  /** The highest driver epoch in the notes; 0 without notes. */
  readonly latestEpoch: number
  /** Agents that earlier starts of the session used and that have not left. */
  readonly used: readonly AgentStart[]
  /** Agents that were gone when a later start of the session looked for them. */
  readonly missing: readonly AgentStart[]
  readonly left: readonly AgentStart[]
  readonly lost: readonly LostAttempt[]
  /** Attempts whose numbers must not be used again, because their tasks have moved. */
  readonly moved: readonly JobReference[]
}

export const emptyNotes: NotedAgents = {
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

const toAgentKey = ({ name, epoch }: AgentStart): string => `${epoch} ${name}`

/** The latest note about each agent. Ignores repeated notes: any client may replay them. */
class LatestNotes {
  readonly #latest = new Map<
    string,
    { readonly start: number; readonly number: number; readonly note: AgentNote }
  >()
  readonly #added = new Set<string>()

  get all(): readonly AgentNote[] {
    return Array.from(this.#latest.values(), ({ note }) => note)
  }

  /**
   * `number` counts the notes of a driver's start. Returns `false` if the note was already added.
   */
  add(note: AgentNote, start: number, number: number): boolean {
    const agent = toAgentKey(note)
    const id = `${start} ${note.endsEpoch === undefined ? number : `use ${note.endsEpoch}`}`
    if (this.#added.has(id)) return false
    this.#added.add(id)
    const known = this.#latest.get(agent)
    // Notes of agents have no number. An agent may note late that it has left an earlier driver.
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
  readonly epoch: () => number
  readonly keys: () => Keys
  readonly subjects: SessionSubjects
  readonly broker: Broker
  readonly directory: Pick<AgentDirectory, 'request'>
  readonly stream: SessionStream
  readonly clock: Clock
  readonly log: Log
  readonly resultTtlSeconds: number
  /** Called when attempts have been noted. Jobs that waited for the note may be sent now. */
  readonly onChange: () => void
  readonly onFailed: (error: BackendError) => void
}

const appendTimeoutMs = 5000
const checkIntervalMs = 1000
/** How many times to try to write a note. The server may be restarting. */
const maxNoteAttempts = 5
const retryDelayMs = 200

export class UsedAgents {
  readonly #options: UsedAgentsOptions
  /** The agents that are noted as used. A later start of the session would wait for them. */
  readonly #noted = new Map<string, AgentStart>()
  #notedMs: number
  #noting = 0
  #number = 0
  /** How many times the stream may have been lost. */
  #possibleLosses = 0
  /** The value of `#possibleLosses` when the stream was last verified. */
  #verifiedLosses = 0
  #isChecking = false
  #checkedMs = -Infinity
  /** The state of the stream when it was last found to have notes of all used agents. */
  #verifiedStream: StreamState | null = null
  #lostStreams = 0
  #isClosed = false

  constructor(options: UsedAgentsOptions) {
    this.#options = options
    this.#notedMs = options.clock.monotonicMs()
  }

  /** Notes a used agent, which a later start must contact. Called before it gets its first job. */
  async add(agent: AgentStart): Promise<void> {
    // Recreates the stream if a restarted server has lost it.
    await this.#options.stream.open()
    this.#noted.set(toAgentKey(agent), agent)
    await this.#note(agent, 'used')
  }

  /**
   * Notes that an agent is lost. A later start does not wait for it, counts the `lost` attempts as
   * failed, and does not reuse the numbers of the `moved` attempts.
   */
  async noteLost(
    agent: AgentStart,
    lost: readonly LostAttempt[],
    moved: readonly JobReference[] = [],
    state: 'left' | 'missing' = 'left',
  ): Promise<void> {
    if (!this.#noted.delete(toAgentKey(agent)) && lost.length + moved.length === 0) return
    await this.#noteAttempts(agent, state, lost, moved)
  }

  /** Notes attempts of a missing agent. A later start does not reuse their numbers. */
  async noteSkipped(agent: AgentStart, moved: readonly JobReference[]): Promise<void> {
    await this.#noteAttempts(agent, 'missing', [], moved)
  }

  /** Whether attempt numbers are being noted. Until that is done, no later attempts may begin. */
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
      // In the meantime, the agent may have been added again.
      const isUsed = this.#noted.has(toAgentKey(agent))
      await this.#note(agent, isUsed ? 'used' : state, lost, moved)
    }
    let failed = 0
    // A note without attempts is not retried: without it, a later start only waits for the agent.
    const mayRetry = (): boolean =>
      count > 0 && !(broker.isConnected && ++failed === maxNoteAttempts)
    await retry({ delayMs: retryDelayMs }, note, { clock, mayRetry }).catch((error: unknown) => {
      const text = `the loss of agent "${agent.name}" could not be stored: ${messageOf(error)}`
      const result = 'a later start of the session runs its tasks again'
      if (count > 0) log.warn('LossNotNoted', `${text}; ${result}`)
    })
    if (moved.length === 0) return
    this.#noting--
    onChange()
  }

  /** Notes a missing agent. A later start does not wait for it, but tasks may have begun on it. */
  async addMissing(agent: AgentStart): Promise<void> {
    await this.#note(agent, 'missing').catch(() => {
      // A later start will notice again that the agent is missing.
    })
  }

  /** Whether the stream is known to exist and to contain notes of all used agents. */
  get hasStream(): boolean {
    return this.#verifiedLosses === this.#possibleLosses
  }

  reconnected(): void {
    this.#possibleLosses++
  }

  get lostStreams(): number {
    return this.#lostStreams
  }

  /**
   * Writes missing notes. Called after each reconnect and at intervals, because a server may
   * restart with an empty store, and any client may delete the stream.
   */
  async restoreNotes(attached: () => readonly AgentStart[]): Promise<void> {
    if (this.#isChecking || this.#isClosed) return
    const nowMs = this.#options.clock.monotonicMs()
    if (this.hasStream && nowMs - this.#checkedMs < checkIntervalMs) return
    this.#checkedMs = nowMs
    this.#isChecking = true
    try {
      if (this.hasStream && (await this.#isUnchanged())) return
      const losses = this.#possibleLosses
      await this.#restoreNotes(attached)
      this.#verifiedLosses = losses
    } finally {
      this.#isChecking = false
    }
  }

  /** Whether the stream is still the same and has lost no notes, for example by expiry. */
  async #isUnchanged(): Promise<boolean> {
    const { broker, subjects } = this.#options
    const found = await broker.store.findStream(subjects.stream, subjects.used)
    const verified = this.#verifiedStream
    if (verified === null) return false
    if (found?.created === verified.created && found.messages >= verified.messages) {
      this.#verifiedStream = found
      return true
    }
    this.#possibleLosses++
    return false
  }

  async #restoreNotes(attached: () => readonly AgentStart[]): Promise<void> {
    const { broker, subjects, keys, run, stream, log, use, directory, epoch } = this.#options
    const opened = await stream.open()
    if (this.#isClosed || opened === null) return
    if (opened.label !== run() && !(await this.#replaceStream())) return
    const found = await broker.store.findStream(subjects.stream, subjects.used)
    const { used, left, latestEpoch } = await readNotedAgents(broker, subjects, keys())
    if (latestEpoch > epoch()) return this.#fail()
    this.#verifiedStream = found
    // An agent that left normally has noted that itself. This driver may not know it yet.
    const noted = new Set([...used, ...left].map(toAgentKey))
    const missing = attached().filter((agent) => !noted.has(toAgentKey(agent)))
    if (missing.length === 0 || this.#isClosed) return
    // The notes may be gone because a later start has closed the session.
    const names = missing.map(({ name }) => name)
    const latestStart = await requestLatestStart(directory, names, { use, run: run() })
    if (latestStart > epoch()) return this.#fail()
    if (this.#isClosed) return
    await Promise.all(missing.map((agent) => this.#note(agent, 'used')))
    this.#lostStreams++
    const text = `the broker at ${broker.url} has lost its data of session "${use.sessionId}"`
    log.warn('StoreLost', `${text}: agents send unrecorded results again`)
  }

  /**
   * Replaces the stream of a closed run, which exists again if an older store was restored.
   * Resolves with `false` if another process owns the session.
   */
  async #replaceStream(): Promise<boolean> {
    const { broker, subjects, stream } = this.#options
    if (await this.#hasOtherOwner()) this.#fail()
    if (this.#isClosed) return false
    await broker.store.remove(subjects.stream)
    await stream.open()
    return true
  }

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
    const isOtherProcess = ({ process }: Owner): boolean => process !== processId
    const cluster = deriveKeys(token, null)
    const { answer } = await requestOwner(
      broker,
      subjects.owner,
      cluster,
      maxSilenceMs,
      isOtherProcess,
    )
    return answer === 'signed'
  }

  /**
   * Writes the notes again before they expire: a later start needs them and this driver's epoch,
   * which they contain.
   */
  tick(nowMs: number): void {
    if (this.#isClosed || nowMs - this.#notedMs < this.#options.resultTtlSeconds * 250) return
    this.#notedMs = nowMs
    for (const agent of this.#noted.values()) {
      this.#note(agent, 'used').catch(() => {
        // There are further attempts before the notes expire.
      })
    }
  }

  close(): void {
    this.#isClosed = true
  }

  /**
   * Removes a stream that this driver recreated and no other driver owns. Called when a later start
   * may have closed the session.
   */
  readonly removeIfUnowned = once(async (): Promise<void> => {
    const { stream, clock } = this.#options
    this.close()
    await stream.close()
    try {
      if (stream.wasRecreated && !(await this.#hasOtherOwner())) await stream.remove(clock)
    } catch {
      // Another driver removes the stream after its messages have expired.
    }
  })

  async #note(
    { name, epoch }: AgentStart,
    state: AgentNote['state'],
    lost: readonly LostAttempt[] = [],
    moved: readonly JobReference[] = [],
  ): Promise<void> {
    const { broker, subjects, keys, epoch: start } = this.#options
    const { used } = subjects
    const limitBytes = payloadLimit(broker.maxPayload)
    for (const note of splitNote({ name, epoch, state, lost, moved }, limitBytes)) {
      const data = seal(
        keys().toDriver,
        used,
        { ...emptyHeader, epoch: start(), number: ++this.#number },
        note,
      )
      await broker.store.append(used, data, appendTimeoutMs)
    }
  }
}

/** Only the last part has the state `left`, because a driver may die between parts. */
function splitNote(note: AgentNote, limitBytes: number): readonly AgentNote[] {
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
  return parts.flatMap((part) => splitNote(part, limitBytes))
}

/** Returns the epoch of the driver's latest start; 0 if no agent knows one. */
export async function requestLatestStart(
  directory: Pick<AgentDirectory, 'request'>,
  agents: readonly string[],
  asked: Pick<Message<'challenge'>, 'use' | 'run'>,
): Promise<number> {
  const ask = async (name: string): Promise<number> => {
    try {
      const answer = await directory.request(name, { kind: 'challenge', ...asked }, maxSilenceMs)
      return expectMessage(answer, 'challenged').latestStart ?? 0
    } catch {
      // If there is a later start that is not known here, the agent refuses the attach request of
      // this driver.
      return 0
    }
  }
  return Math.max(0, ...(await Promise.all(agents.map(ask))))
}
