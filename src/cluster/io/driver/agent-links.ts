/** Exchanges messages of a driver's session with its agents, and reads what they have stored. */

import type { Clock } from '../../../foundation/clock.ts'
import { messageOf } from '../../../foundation/errors.ts'
import type { Log } from '../../../foundation/log.ts'
import { retry } from '../../../runtime/retry.ts'
import type { Broker, StreamPosition } from '../../broker/broker.ts'
import type {
  AttachRequest,
  DriverStimulus,
  PostedMessage,
  StoredParts,
} from '../../protocol/driver/driver-interface.ts'
import { supersededError } from '../../protocol/driver/driver.ts'
import type { RemoteAgent } from '../../protocol/driver/remote-agent.ts'
import { decode, encode } from '../../wire/codec.ts'
import { type Header, open, readHeader, seal, sealBytes } from '../../wire/envelope.ts'
import { encodeReferences, payloadLimit } from '../../wire/job-batches.ts'
import {
  type Attach,
  expectMessage,
  type Heartbeat,
  type Message,
  isStoredResult,
  type ResultsMessage,
} from '../../wire/messages.ts'
import type { SessionUse } from '../../wire/subjects.ts'
import type { AgentDirectory, KnownAgent } from './agent-directory.ts'
import type { SessionData } from './session-data.ts'

export interface AgentLinksOptions {
  readonly use: SessionUse
  readonly data: SessionData
  readonly broker: Broker
  readonly directory: AgentDirectory
  readonly clock: Clock
  readonly log: Log
  readonly times: Pick<Attach, 'ownerTtlSeconds' | 'resultTtlSeconds' | 'agentTimeoutSeconds'>
  readonly tell: (stimulus: DriverStimulus) => void
  readonly onFailed: (error: unknown) => void
}

const requestTimeoutMs = 5000
/** How many times to try to read the stream. The server may be restarting. */
const maxReadAttempts = 5
const readDelayMs = 200
const messageKinds = ['report', 'ends', 'idle'] as const

export class AgentLinks {
  readonly #options: AgentLinksOptions
  /** By subject: the names of agents. */
  readonly #senders = new Map<string, string>()
  /** By agent: the last link that was requested. */
  readonly #links = new Map<string, number>()
  #position: StreamPosition | null = null
  #beats = 0
  #refusedMessages = 0

  constructor(options: AgentLinksOptions) {
    this.#options = options
  }

  add({ announcement: { name } }: KnownAgent): void {
    const { subjects } = this.#options.data
    this.#senders.set(subjects.fromAgent(name), name)
    this.#senders.set(subjects.agentResults(name), name)
  }

  /** Returns a function that ends the subscriptions. `onMessage` is called after each message. */
  subscribe(onMessage: () => void): () => void {
    const { broker, data } = this.#options
    const { allResults, fromAllAgents } = data.subjects
    const stops = [allResults, fromAllAgents].map((all) =>
      broker.subscribe(all, ({ subject, data: bytes }) => {
        this.#receive(subject, bytes)
        onMessage()
      }),
    )
    return () => {
      for (const stop of stops) stop()
    }
  }

  #receive(subject: string, data: Uint8Array): void {
    const agent = this.#senders.get(subject)
    if (agent === undefined) return
    try {
      const { payload: decoded, ...header } = open(this.#options.data.keys.toDriver, subject, data)
      const payload = expectMessage(decoded, ...messageKinds)
      this.#options.tell({
        kind: 'message',
        agent,
        message: { header, payload, size: data.length },
      })
    } catch (error) {
      // An agent signs for the earlier run of the session until it is attached.
      const scope = readHeader(data)?.scope
      if (scope === undefined || scope === this.#links.get(agent)) this.#refuse(error)
    }
  }

  #refuse(error: unknown): void {
    if (this.#refusedMessages++ > 0) return
    const text = `a message of an agent was refused: ${messageOf(error)}; further ones are counted`
    this.#options.log.warn('MessageRefused', text)
  }

  post(agent: RemoteAgent, message: PostedMessage): void {
    if (!('jobs' in message)) return this.send(agent, encode(message))
    const limitBytes = payloadLimit(this.#options.broker.maxPayload)
    for (const payload of encodeReferences(message, limitBytes)) this.send(agent, payload)
  }

  sendIdle(agent: RemoteAgent, header: Header, message: Message<'idle'>): void {
    this.#publish(agent, seal(this.#key, this.#subject(agent), header, message))
  }

  /** Sends a numbered message, unless a new link is being made: it would not be received. */
  send(agent: RemoteAgent, payload: Buffer): void {
    const { link, state } = agent
    if (link === null || state === 'attaching' || state === 'lost') return
    const header = link.nextHeader(this.#options.clock.monotonicMs())
    this.#publish(agent, sealBytes(this.#key, this.#subject(agent), header, payload))
  }

  get #key() {
    return this.#options.data.keys.toAgent
  }

  #subject({ name }: RemoteAgent): string {
    return this.#options.data.subjects.toAgent(name)
  }

  #publish(agent: RemoteAgent, data: Buffer): void {
    this.#options.broker.publish(this.#subject(agent), data)
  }

  sendBeat(beat: Heartbeat): void {
    const { broker, data } = this.#options
    const { heartbeat } = data.subjects
    const header = { scope: data.driverStart, number: ++this.#beats, acknowledged: 0 }
    broker.publish(heartbeat, seal(this.#key, heartbeat, header, beat))
  }

  async attach({ name }: RemoteAgent, request: AttachRequest): Promise<void> {
    const { directory, use, data, times, tell, onFailed } = this.#options
    const { link } = request
    this.#links.set(name, link)
    const challenge = { kind: 'challenge', use } as const
    try {
      const challenged = await directory.request(name, challenge, requestTimeoutMs)
      const { nonce } = expectMessage(challenged, 'challenged')
      const run = { ...use, run: data.run, folder: process.cwd() }
      const attach = { kind: 'attach', nonce, ...run, ...times, ...request } as const
      const attached = await directory.request(name, attach, requestTimeoutMs)
      const answer = expectMessage(attached, 'attached', 'refused')
      if (answer.kind === 'attached') return tell({ kind: 'attached', link, answer })
      if (answer.code === 'SessionInUseError') onFailed(supersededError(use.sessionId))
      tell({ kind: 'not attached', link, problem: answer.message })
    } catch (error) {
      tell({ kind: 'not attached', link, problem: messageOf(error) })
    }
  }

  /** If the stream cannot be read, its results count as lost. */
  async readResults(agent: RemoteAgent | null): Promise<void> {
    const { data, clock, log, tell, broker } = this.#options
    const { stream, allResults, agentResults } = data.subjects
    const subject = agent === null ? allResults : agentResults(agent.name)
    const after = agent === null ? this.#position : null
    const messages: ResultsMessage[] = []
    const read = async (): Promise<void> => {
      const found = await broker.store.read(stream, subject, after)
      if (agent === null) this.#position = found.position
      for (const one of found.messages) {
        try {
          const { payload } = open(data.keys.toDriver, one.subject, one.data)
          messages.push(expectMessage(payload, 'ends'))
        } catch (error) {
          this.#refuse(error)
        }
      }
    }
    const mayRetry = (): boolean => !data.objects.closed.aborted
    try {
      const policy = { delayMs: readDelayMs, maxAttempts: maxReadAttempts }
      await retry(policy, read, { clock, mayRetry })
    } catch (error) {
      const what = agent === null ? 'earlier results' : `results of agent "${agent.name}"`
      const text = `${what} cannot be read: ${messageOf(error)}`
      if (mayRetry()) log.warn('StreamUnreadable', text)
    }
    tell({ kind: 'stored results', agent, messages })
  }

  async readParts(parts: StoredParts): Promise<void> {
    const { outcome } = parts.end
    if (outcome.kind !== 'stored') return
    const { data, tell } = this.#options
    const found = await data.objects.readAndDelete(outcome.object).catch(() => null)
    const stored = found === null ? null : decode(found)
    if (!isStoredResult(stored)) return tell({ kind: 'parts read', parts, isLost: true })
    const read = { ...parts, end: { ...parts.end, ...stored } }
    tell({ kind: 'parts read', parts: read, isLost: false })
  }
}
