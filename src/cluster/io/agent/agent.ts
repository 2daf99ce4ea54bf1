/** The agent of a node. It lets the drivers of sessions run tasks on the node's local backend. */

import type { Backend } from '../../../backends/backend.ts'
import type { LocalConnection } from '../../../backends/local/concurrent-backend.ts'
import { NamedSamplers } from '../../../backends/sampling/named-samplers.ts'
import { createLocalSampler } from '../../../backends/sampling/node-sampler.ts'
import { catchErrors, type Clock } from '../../../foundation/clock.ts'
import { messageOf } from '../../../foundation/errors.ts'
import type { Log } from '../../../foundation/log.ts'
import { maskSecrets } from '../../../foundation/secrets.ts'
import { once } from '../../../foundation/service.ts'
import type { TaskSpec } from '../../../tasks/spec.ts'
import type { ProgramOutput } from '../../../tasks/task-record.ts'
import type { Broker, BrokerMessage } from '../../broker/broker.ts'
import { sealAnswer } from '../../wire/answers.ts'
import {
  Challenges,
  deriveKeys,
  type Key,
  type Keys,
  newScope,
  open,
  type OpenedMessage,
  VersionMismatchError,
} from '../../wire/envelope.ts'
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
} from '../../wire/messages.ts'
import { payloadLimit } from '../../wire/job-batches.ts'
import { agentSubject, discoverySubject, toSessionUseId } from '../../wire/subjects.ts'
import { AgentSession, type AgentSessionListener } from './agent-session.ts'
import { AgentRuns } from '../../protocol/agent/agent-runs.ts'
import { AgentShares } from '../../protocol/agent/agent-shares.ts'
import type { AgentWatcher } from './presence/agent-watcher.ts'
import { Announcer } from './presence/announcer.ts'
import { claimName, TokenCheck } from './presence/start-checks.ts'
import type { WorkFolder } from './work-folder.ts'
import type { UnpackedBundles } from '../../bundles/unpacked-bundles.ts'

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
  readonly refuse: (spec: TaskSpec) => NotAllowed | null
  /** Closed by the agent. `null` if the parent process notifies drivers of the agent's exit. */
  readonly watcher: AgentWatcher | null
}

type Respond = (answer: unknown) => void

const tickIntervalMs = 500
const requestKinds = ['ping', 'challenge', 'attach', 'detach', 'sample', 'output'] as const
const announceEveryTicks = 4

export class Agent {
  readonly name: string
  readonly #options: AgentOptions
  readonly #keys: Keys
  /** Identifies this start of the agent. */
  readonly #start: number
  readonly #sessions = new Map<string, AgentSession>()
  readonly #runs: AgentRuns
  readonly #shares: AgentShares<AgentSession>
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
    this.#runs = new AgentRuns(options.name)
    this.#shares = new AgentShares(options.facts, () => this.#sessions.values())
    const { clock, log } = options
    const samplerOptions = { clock, log, pollSeconds: 5 }
    this.#samplers = new NamedSamplers(() => createLocalSampler(samplerOptions))
    this.name = options.name
    this.#start = newScope()
    this.#keys = deriveKeys(options.token, null)
    const { name, facts, rules } = options
    this.#messages = new ReceivedMessages(options, this.#keys.toAgent)
    this.#announcer = new Announcer({
      ...options,
      keys: this.#keys,
      identity: { name, start: this.#start, facts, ...rules },
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
    this.#forEachSession((session) => session.tell({ kind: 'drain' }))
    this.#announcer.announce()
    this.#leaveWhenIdle()
  }

  /**
   * Cancels tasks, and leaves when the broker has stored all results, or after `ownerTtlSeconds`
   * without progress. With `waitForResults: false`, leaves immediately, even if an earlier call is
   * still waiting.
   */
  close({ waitForResults = true }: { readonly waitForResults?: boolean } = {}): Promise<void> {
    if (!waitForResults) this.#forEachSession((session) => session.tell({ kind: 'drop' }))
    return this.#close(waitForResults)
  }

  /** Calls `close` without waiting. An error rejects `left` only. */
  leave(options: { readonly waitForResults?: boolean } = {}): void {
    this.close(options).catch(() => {})
  }

  async #closeOnce(waitForResults: boolean): Promise<void> {
    this.#isDraining = true
    this.#tokenCheck?.close()
    const sessions = [...this.#sessions.values()]
    if (waitForResults) for (const session of sessions) session.tell({ kind: 'limit-wait' })
    await Promise.allSettled(
      sessions.map((session) => session.end(agentClosedReason, waitForResults)),
    )
    this.#cancelTick()
    this.#announcer.announce('gone')
    for (const unsubscribe of this.#unsubscribe) unsubscribe()
    await this.#samplers.close()
    await this.#options.backend.close()
    await this.#options.folder.close()
    await this.#options.broker.close()
    await this.#options.watcher?.close()
    this.#left.resolve(sessions.reduce((sum, { undelivered }) => sum + undelivered, 0))
  }

  #subscribe(): void {
    const { broker, name } = this.#options
    this.#unsubscribe.push(
      broker.subscribe(agentSubject(name), (message) => this.#handleRequest(message)),
      broker.subscribe(discoverySubject, ({ subject, data }) => {
        this.#announcer.answer(this.#messages.open(subject, data) !== null)
      }),
      broker.onConnection((isConnected) => {
        this.#forEachSession((session) => session.tell({ kind: 'link', isUp: isConnected }))
        if (isConnected) this.#announcer.announce()
      }),
    )
  }

  #checkToken(): void {
    // Prevents an unhandled rejection if nobody awaits `left`.
    this.#left.promise.catch(() => {})
    this.#tokenCheck = new TokenCheck({
      ...this.#options,
      start: this.#start,
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
      const parts = sealAnswer(toDriver, message.subject, opened.scope, answer, limitBytes)
      for (const part of parts) message.respond(part)
    }
    this.#answer(opened.payload, receivedMs, respond).catch((error: unknown) =>
      this.#messages.refuse(messageOf(error)),
    )
  }

  async #answer(payload: unknown, receivedMs: number, respond: Respond): Promise<void> {
    const request = expectMessage(payload, ...requestKinds)
    switch (request.kind) {
      case 'ping': {
        const sentMs = this.#options.clock.monotonicMs()
        const pong = { kind: 'pong', start: this.#start, receivedMs, sentMs } as const
        return respond(pong satisfies Message<'pong'>)
      }
      case 'challenge': {
        const known = this.#runs.describe(request.use)
        const nonce = this.#challenges.issue()
        return respond({ kind: 'challenged', nonce, ...known } satisfies Message<'challenged'>)
      }
      case 'detach':
        return respond(await this.#detach(request))
      case 'output':
        return respond(await this.#readOutput(request))
      case 'sample':
        return respond(await this.#samplers.handleRequest(request.sampler, request.step))
      case 'attach':
        if (!this.#challenges.redeem(request.nonce)) throw new Error('it was sent before')
        return this.#attach(request, respond)
    }
  }

  async #readOutput(request: Message<'output'>): Promise<ProgramOutput | null> {
    const { uid, attempt, run } = request
    const session = this.#sessions.get(toSessionUseId(request))
    return session?.run === run ? session.output(uid, attempt) : null
  }

  async #attach(attach: Attach, respond: (answer: Attached) => void): Promise<void> {
    const id = toSessionUseId(attach)
    for (;;) {
      const session = this.#sessions.get(id)
      const admission = this.#runs.admit(attach, session, this.#isDraining)
      if (admission.kind === 'refuse') return respond(admission.answer)
      if (admission.kind === 'begin') return this.#addSession(attach).attach(attach, respond)
      if (session === undefined) throw new Error(`the agent has no session ${id}`)
      if (admission.kind === 'continue') return session.attach(attach, respond)
      if (admission.kind !== 'wait') session.tell({ kind: 'drop' })
      await this.#removeSession(session, 'its session was closed', true)
    }
  }

  #addSession(attach: Attach): AgentSession {
    const { clock, token, backend, name } = this.#options
    const session: AgentSession = new AgentSession({
      ...this.#options,
      attach,
      self: { name, start: this.#start },
      keys: deriveKeys(token, attach),
      cluster: this.#keys,
      clock: catchErrors(clock, (error) => this.#failSession(session, error)),
      connect: (listener) =>
        backend.connect(listener, { id: toSessionUseId(attach), closureOf: () => null }),
      offer: (one, nowMs) => this.#offer(one, nowMs),
      on: this.#createListener(() => session),
    })
    this.#sessions.set(session.id, session)
    return session
  }

  #createListener(session: () => AgentSession): AgentSessionListener {
    return {
      arrival: () => this.#feedAfterArrival(),
      change: () => this.#scheduleFeed(),
      abandoned: () => this.#startRemoval(session(), 'the driver is gone'),
      refusedMessage: (reason) => this.#messages.refuse(reason),
      storeProblem: (error) => {
        const text = `the broker does not store results of tasks: ${messageOf(error)}`
        this.#options.log.warn('EndsNotStored', `${text}; they are sent again`)
      },
      failed: (error) => this.#failSession(session(), error),
      droppedEvent: (why) =>
        this.#warn('EventDropped', `has dropped the event ${why}; further ones are counted`),
    }
  }

  async #detach(detach: Message<'detach'>): Promise<Detached> {
    const session = this.#sessions.get(toSessionUseId(detach))
    const what = this.#runs.detach(detach, session)
    if (what === 'ends' && session !== undefined) {
      await this.#removeSession(session, detach.reason, false)
    }
    return { kind: 'detached', isSuperseded: what === 'superseded' }
  }

  async #removeSession(
    session: AgentSession,
    reason: string,
    keepsResults: boolean,
  ): Promise<void> {
    await session
      .end(reason, keepsResults)
      .catch((error: unknown) => this.#warnOfFailure(session, error))
    if (this.#sessions.get(session.id) === session) {
      this.#sessions.delete(session.id)
      this.#runs.close(session.use)
    }
    if (this.#isDraining) this.#leaveWhenIdle()
  }

  #failSession(session: AgentSession, error: unknown): void {
    if (session.isEnding) return
    this.#warnOfFailure(session, error)
    session.tell({ kind: 'limit-wait' })
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

  #offer(session: AgentSession, nowMs: number): Offer {
    if (this.#isDraining) return { cores: 0, gpus: 0, memoryMb: 0, ahead: 0 }
    return this.#shares.offer(session, nowMs)
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
    const nowMs = this.#options.clock.monotonicMs()
    this.#shares.feed((session, maxCores) => session.tell({ kind: 'begin', maxCores }), nowMs)
    if (this.#isDraining) this.#leaveWhenIdle()
  }

  #tick(): void {
    this.#cancelTick = this.#options.clock.after(tickIntervalMs, () => this.#tick())
    this.#forEachSession((session) => session.tell({ kind: 'tick' }))
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
    if (this.#shares.isEmpty) this.leave()
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
