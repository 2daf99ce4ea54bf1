/** The agent of a node. It lets the drivers of sessions run tasks on the node's local backend. */

import type { Backend } from '../../backends/backend.ts'
import type { LocalConnection } from '../../backends/local/concurrent-backend.ts'
import { NamedSamplers } from '../../backends/sampling/named-samplers.ts'
import type { ResourceSampler } from '../../backends/sampling/sampler.ts'
import { catchErrors, type Clock } from '../../foundation/clock.ts'
import { messageOf } from '../../foundation/errors.ts'
import type { Log } from '../../foundation/log.ts'
import { maskSecrets } from '../../foundation/secrets.ts'
import { once } from '../../foundation/service.ts'
import type { TaskSpec } from '../../tasks/spec.ts'
import type { ProgramOutput } from '../../tasks/task-record.ts'
import type { Broker, BrokerMessage } from '../broker/broker.ts'
import { sealAnswer } from '../wire/answers.ts'
import {
  Challenges,
  deriveKeys,
  type Key,
  type Keys,
  newEpoch,
  open,
  type OpenedMessage,
  VersionMismatchError,
} from '../wire/envelope.ts'
import {
  agentClosedReason,
  type AgentRules,
  type Attach,
  type Attached,
  type Detached,
  expectMessage,
  type Message,
  type NodeFacts,
  type NotAllowed,
  type Offer,
} from '../wire/messages.ts'
import { payloadLimit } from '../wire/job-batches.ts'
import { agentSubject, discoverySubject, toSessionUseId } from '../wire/subjects.ts'
import { AgentSession } from './agent-session.ts'
import { NodeShares } from './node-shares.ts'
import type { AgentWatcher } from './presence/agent-watcher.ts'
import { Announcer } from './presence/announcer.ts'
import { claimName, TokenCheck } from './presence/start-checks.ts'
import type { WorkFolder } from './work-folder.ts'
import type { UnpackedBundles } from '../bundles/unpacked-bundles.ts'

export interface AgentOptions {
  readonly name: string
  readonly token: string
  readonly broker: Broker
  readonly facts: NodeFacts
  readonly rules: AgentRules
  /** Runs the tasks. Closed by the agent. */
  readonly backend: Pick<Backend, 'close'> & {
    connect(...args: Parameters<Backend['connect']>): LocalConnection
  }
  /** Closed by the agent. */
  readonly folder: WorkFolder
  readonly bundles: UnpackedBundles
  readonly clock: Clock
  readonly log: Log
  readonly createSampler: () => ResourceSampler
  readonly refuse: (spec: TaskSpec) => NotAllowed | null
  /** Closed by the agent. `null` if the parent process notifies drivers of the agent's exit. */
  readonly watcher: AgentWatcher | null
}

const tickIntervalMs = 500
const requestKinds = ['ping', 'challenge', 'attach', 'detach', 'sample', 'output'] as const
const announceEveryTicks = 4
const maxClosedRuns = 1000

export class Agent {
  readonly name: string
  readonly #options: AgentOptions
  readonly #keys: Keys
  readonly #epoch: number
  readonly #sessions = new Map<string, AgentSession>()
  /** For each closed run, the epoch of the driver that closed it. Earlier drivers are refused. */
  readonly #closedRuns = new Map<string, number>()
  readonly #shares: NodeShares
  readonly #samplers: NamedSamplers
  readonly #unsubscribe: (() => void)[] = []
  readonly #left = Promise.withResolvers<number>()
  readonly #challenges = new Challenges()
  readonly #messages: ReceivedMessages
  #ticks = 0
  #isFeedScheduled = false
  #isDraining = false
  #cancelTick: () => void = () => {}
  readonly #close = once((waitForResults: boolean) =>
    this.#closeOnce(waitForResults).catch((error: unknown) => {
      this.#left.reject(error)
      throw error
    }),
  )
  #tokenCheck: TokenCheck | null = null
  readonly #announcer: Announcer

  /** Starts an agent. Rejects with `BackendError` if another agent has the same name. */
  static async start(options: AgentOptions): Promise<Agent> {
    const agent = new Agent(options)
    const hasWatcher = options.watcher !== null
    await claimName(options.broker, agent.#keys, options.name, hasWatcher)
    agent.#subscribe()
    agent.#tick()
    agent.#announcer.announce()
    agent.#checkToken()
    return agent
  }

  private constructor(options: AgentOptions) {
    this.#options = options
    this.#shares = new NodeShares(options.facts, this.#sessions)
    this.#samplers = new NamedSamplers(options.createSampler)
    this.name = options.name
    this.#epoch = newEpoch()
    this.#keys = deriveKeys(options.token, null)
    const { name, facts, rules } = options
    this.#messages = new ReceivedMessages(options, this.#keys.toAgent)
    this.#announcer = new Announcer({
      ...options,
      keys: this.#keys,
      identity: { name, epoch: this.#epoch, facts, ...rules },
      describe: () => ({
        state: this.#isDraining ? 'draining' : 'ready',
        sessions: this.#sessions.size,
        refusedMessages: this.#messages.refused,
      }),
    })
  }

  /**
   * Resolves when the agent has left, with the number of results that the broker has not stored.
   * Rejects if the token is wrong or `close` fails.
   */
  get left(): Promise<number> {
    return this.#left.promise
  }

  drain(): void {
    if (this.#isDraining) return
    this.#isDraining = true
    this.#forEachSession((session) => session.drain())
    this.#announcer.announce()
    this.#leaveWhenIdle()
  }

  /**
   * Cancels tasks, and leaves when the broker has stored all results, or after `ownerTtlSeconds`
   * without progress. With `waitForResults: false`, leaves immediately, even if an earlier call is
   * still waiting.
   */
  close({ waitForResults = true }: { readonly waitForResults?: boolean } = {}): Promise<void> {
    if (!waitForResults) for (const { outbox } of this.#sessions.values()) outbox.close()
    return this.#close(waitForResults)
  }

  /** Calls `close` without waiting. An error rejects `left` only. */
  leave(options: { readonly waitForResults?: boolean } = {}): void {
    this.close(options).catch(() => {})
  }

  async #closeOnce(waitForResults: boolean): Promise<void> {
    this.#isDraining = true
    this.#cancelTick()
    this.#tokenCheck?.close()
    const sessions = [...this.#sessions.values()]
    if (waitForResults) for (const session of sessions) session.limitWait()
    await Promise.allSettled(
      sessions.map((session) => session.end(agentClosedReason, waitForResults)),
    )
    const undelivered = sessions.reduce((sum, { outbox }) => sum + outbox.undelivered, 0)
    this.#announcer.announce('gone')
    for (const unsubscribe of this.#unsubscribe) unsubscribe()
    await this.#samplers.close()
    await this.#options.backend.close()
    await this.#options.folder.close()
    await this.#options.broker.close()
    await this.#options.watcher?.close()
    this.#left.resolve(undelivered)
  }

  #subscribe(): void {
    const { broker, name } = this.#options
    this.#unsubscribe.push(
      broker.subscribe(agentSubject(name), (message) => this.#handleRequest(message)),
      broker.subscribe(discoverySubject, ({ subject, data }) => {
        this.#announcer.answer(this.#messages.open(subject, data) !== null)
      }),
      broker.onConnection((isConnected) => {
        if (!isConnected) return
        this.#forEachSession((session) => session.reconnected())
        this.#announcer.announce()
      }),
    )
  }

  #checkToken(): void {
    // Prevents an unhandled rejection if nobody awaits `left`.
    this.#left.promise.catch(() => {})
    this.#tokenCheck = new TokenCheck({
      ...this.#options,
      epoch: this.#epoch,
      keys: this.#keys,
      onRefused: (reason) => this.#messages.refuse(reason),
      onMismatch: (error) => {
        this.#left.reject(error)
        this.leave()
      },
    })
  }

  #handleRequest(message: BrokerMessage): void {
    const receivedMs = this.#options.clock.monotonicMs()
    const opened = this.#messages.open(message.subject, message.data)
    if (opened === null) return
    this.#tokenCheck?.close()
    const respond = (answer: unknown): void => {
      const limitBytes = payloadLimit(this.#options.broker.maxPayload)
      const { toDriver } = this.#keys
      const parts = sealAnswer(toDriver, message.subject, opened.epoch, answer, limitBytes)
      for (const part of parts) message.respond(part)
    }
    this.#answer(opened.payload, receivedMs)
      .then(respond)
      .catch((error: unknown) => this.#messages.refuse(messageOf(error)))
  }

  async #answer(payload: unknown, receivedMs: number): Promise<unknown> {
    const request = expectMessage(payload, ...requestKinds)
    if (request.kind === 'ping') {
      const sentMs = this.#options.clock.monotonicMs()
      return { kind: 'pong', epoch: this.#epoch, receivedMs, sentMs } satisfies Message<'pong'>
    }
    if (request.kind === 'challenge') {
      const { use, run = '' } = request
      const known = use === undefined ? undefined : this.#sessions.get(toSessionUseId(use))
      const latestStart = Math.max(known?.driver.epoch ?? 0, this.#closedRuns.get(run) ?? 0)
      const nonce = this.#challenges.issue()
      return { kind: 'challenged', nonce, latestStart } satisfies Message<'challenged'>
    }
    if (request.kind === 'detach') return this.#detach(request)
    if (request.kind === 'output') return this.#readOutput(request)
    if (request.kind === 'sample')
      return this.#samplers.handleRequest(request.sampler, request.step)
    if (!this.#challenges.redeem(request.nonce)) throw new Error('it was sent before')
    return this.#attach(request)
  }

  async #readOutput(request: Message<'output'>): Promise<ProgramOutput | null> {
    const { uid, attempt, run, ...use } = request
    const session = this.#sessions.get(toSessionUseId(use))
    return session?.run === run ? session.output(uid, attempt) : null
  }

  async #attach(attach: Attach): Promise<Attached> {
    const { sessionId, epoch } = attach
    const id = toSessionUseId(attach)
    const earlierSession = this.#sessions.get(id)
    if (earlierSession?.isEnding === true) {
      // If the stream now belongs to another run, the results of the earlier session cannot be
      // sent.
      if (earlierSession.run !== attach.run) earlierSession.outbox.close()
      await this.#removeSession(earlierSession, '', true)
    } else if (earlierSession?.driver.wasClosedBefore(attach) === true) {
      // The stream now belongs to another run, so no more results are sent to it.
      earlierSession.outbox.close()
      await this.#removeSession(earlierSession, 'its session was closed', false)
    }
    const known = this.#sessions.get(id)
    const laterStart = `a later start of session "${sessionId}"`
    if (known !== undefined && known.driver.epoch > epoch) {
      const message = `${laterStart} uses agent "${this.name}"`
      return { kind: 'refused', code: 'SessionInUseError', message }
    }
    if ((this.#closedRuns.get(attach.run) ?? 0) > epoch) {
      return { kind: 'refused', code: 'SessionInUseError', message: `${laterStart} has closed it` }
    }
    // A draining agent that holds jobs of the session still accepts its returning driver.
    if (this.#isDraining && known === undefined) {
      const message = `agent "${this.name}" is leaving`
      return { kind: 'refused', code: 'AgentDrainingError', message }
    }
    known?.reattach(attach)
    const session = known ?? this.#addSession(attach)
    return {
      kind: 'attached',
      epoch: this.#epoch,
      offer: this.#offer(session),
      // The driver also waits for ended attempts whose results were not sent yet.
      held: [...session.held.heldJobs, ...session.outbox.unsent],
      endsEpoch: session.endsEpoch,
      endMessages: session.outbox.state.endMessages,
      unrecorded: session.outbox.unrecorded,
    }
  }

  #addSession(attach: Attach): AgentSession {
    const { broker, clock, log, folder, bundles, token, backend, name } = this.#options
    const onFailed = (error: unknown): void => this.#failSession(session, error)
    const session: AgentSession = new AgentSession({
      attach,
      self: { name, epoch: this.#epoch },
      deriveKeys: (run) => deriveKeys(token, run),
      cluster: this.#keys,
      broker,
      clock: catchErrors(clock, onFailed),
      folder,
      bundles,
      connect: (listener) =>
        backend.connect(listener, { id: toSessionUseId(attach), closureOf: () => null }),
      refuse: (spec) => this.#options.refuse(spec),
      offer: (one) => this.#offer(one),
      onArrival: () => this.#feedAfterArrival(),
      onChange: () => this.#scheduleFeed(),
      onRefusedMessage: (reason) => this.#messages.refuse(reason),
      onStoreProblem: (error) => {
        const text = `the broker does not store results of tasks: ${messageOf(error)}`
        log.warn('EndsNotStored', `${text}; they are sent again`)
      },
      onFailed,
      onDroppedEvent: (why) =>
        this.#warn('EventDropped', `has dropped the event ${why}; further ones are counted`),
    })
    this.#sessions.set(session.id, session)
    return session
  }

  async #detach(detach: Message<'detach'>): Promise<Detached> {
    const { epoch, run, reason } = detach
    const session = this.#sessions.get(toSessionUseId(detach))
    // Ignores copies of detach messages from runs that are already closed.
    if (session === undefined || session.run !== run)
      return { kind: 'detached', isSuperseded: false }
    const isSuperseded = session.driver.epoch > epoch
    if (isSuperseded) return { kind: 'detached', isSuperseded }
    this.#closedRuns.set(run, epoch)
    const [oldest = ''] = this.#closedRuns.keys()
    if (this.#closedRuns.size > maxClosedRuns) this.#closedRuns.delete(oldest)
    await this.#removeSession(session, reason, false)
    return { kind: 'detached', isSuperseded }
  }

  async #removeSession(session: AgentSession, reason: string, isAbandoned: boolean): Promise<void> {
    await session
      .end(reason, isAbandoned)
      .catch((error: unknown) => this.#warnOfFailure(session, error))
    if (this.#sessions.get(session.id) === session) this.#sessions.delete(session.id)
    if (this.#isDraining) this.#leaveWhenIdle()
  }

  #failSession(session: AgentSession, error: unknown): void {
    if (session.isEnding) return
    this.#warnOfFailure(session, error)
    session.limitWait()
    this.#startRemoval(session, 'its agent failed')
  }

  #startRemoval(session: AgentSession, reason: string): void {
    this.#removeSession(session, reason, true).catch((error: unknown) => this.#left.reject(error))
  }

  #warnOfFailure({ id }: AgentSession, error: unknown): void {
    const cause = error instanceof Error ? (error.stack ?? error.message) : String(error)
    const text = `ends its part of session "${id}" after an unexpected error: ${cause}`
    this.#warn('AgentSessionFailed', maskSecrets(text))
  }

  #offer(session: AgentSession): Offer {
    if (this.#isDraining) return { cores: 0, gpus: 0, memoryMb: 0, ahead: 0 }
    return this.#shares.offer(session)
  }

  /** Begins jobs immediately if the node is idle, so that a single job is not delayed. */
  #feedAfterArrival(): void {
    if (this.#shares.isIdle && !this.#isFeedScheduled) this.#feed()
    else this.#scheduleFeed()
  }

  #scheduleFeed(): void {
    // If no job is waiting, there is nothing to do: the next arrival calls this again.
    if (this.#isFeedScheduled || !(this.#isDraining || this.#shares.hasWaiting)) return
    this.#isFeedScheduled = true
    this.#options.clock.nextTurn(() => {
      this.#isFeedScheduled = false
      this.#feed()
    })
  }

  #feed(): void {
    this.#shares.feed()
    if (this.#isDraining) this.#leaveWhenIdle()
  }

  #tick(): void {
    this.#cancelTick = this.#options.clock.after(tickIntervalMs, () => this.#tick())
    const nowMs = this.#options.clock.monotonicMs()
    this.#forEachSession((session) => {
      if (session.tick(nowMs)) this.#startRemoval(session, 'the driver is gone')
    })
    this.#feed()
    if (this.#ticks++ % announceEveryTicks === 0) this.#announcer.announce()
  }

  #forEachSession(action: (session: AgentSession) => void): void {
    for (const session of this.#sessions.values()) {
      try {
        action(session)
      } catch (error) {
        this.#failSession(session, error)
      }
    }
  }

  #leaveWhenIdle(): void {
    const isIdle = [...this.#sessions.values()].every(({ held }) => held.size === 0)
    if (isIdle) this.leave()
  }

  #warn(code: string, text: string): void {
    this.#options.log.warn(code, `agent "${this.name}" ${text}`)
  }
}

class ReceivedMessages {
  /**
   * The number of refused messages. Only the first one is logged, and the first one of each other
   * protocol version.
   */
  refused = 0
  readonly #options: Pick<AgentOptions, 'name' | 'log'>
  readonly #key: Key
  readonly #otherVersions = new Set<number>()

  constructor(options: Pick<AgentOptions, 'name' | 'log'>, key: Key) {
    this.#options = options
    this.#key = key
  }

  open(subject: string, data: Uint8Array): OpenedMessage | null {
    try {
      return open(this.#key, subject, data)
    } catch (error) {
      const theirs = error instanceof VersionMismatchError ? error.theirs : null
      const isNew = theirs !== null && !this.#otherVersions.has(theirs)
      if (theirs !== null) this.#otherVersions.add(theirs)
      this.refuse(messageOf(error), isNew)
      return null
    }
  }

  refuse(reason: string, isNewVersion = false): void {
    if (this.refused++ > 0 && !isNewVersion) return
    const { name, log } = this.#options
    const text = `agent "${name}" refused a message: ${reason}`
    log.warn('MessageRefused', `${text}; further ones are counted`)
  }
}
