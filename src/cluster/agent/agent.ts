/** The agent of a node: makes a local backend available to the sessions that use it. */

import type { Backend } from '../../backends/backend.ts'
import type { LocalConnection } from '../../backends/local/concurrent-backend.ts'
import { NamedSamplers } from '../../backends/sampling/named-samplers.ts'
import type { ResourceSampler } from '../../backends/sampling/sampler.ts'
import type { Clock } from '../../foundation/clock.ts'
import { messageOf } from '../../foundation/errors.ts'
import type { Log } from '../../foundation/log.ts'
import type { TaskSpec } from '../../tasks/spec.ts'
import type { Broker, BrokerMessage } from '../broker/broker.ts'
import { sealAnswer } from '../wire/cut-answer.ts'
import {
  Challenges,
  deriveKeys,
  type Keys,
  newEpoch,
  open,
  VersionMismatchError,
} from '../wire/envelope.ts'
import {
  agentClosed,
  type AgentRequest,
  type AgentRules,
  type Attach,
  type Attached,
  type Challenged,
  type Detach,
  type Detached,
  type NodeFacts,
  type NotAllowed,
  type Offer,
  type Pong,
} from '../wire/messages.ts'
import { payloadLimit } from '../wire/job-batches.ts'
import { agentSubject, discoverySubject, toUseId } from '../wire/subjects.ts'
import { AgentSession } from './agent-session.ts'
import { NodeShares } from './node-shares.ts'
import type { AgentWatcher } from './presence/agent-watcher.ts'
import { Announcer } from './presence/announcer.ts'
import { claimName, TokenCheck } from './presence/start-checks.ts'
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
  /** The folder of this start of the agent. */
  readonly folder: string
  /** Called when the agent leaves. */
  readonly removeFolder: () => void
  readonly bundles: UnpackedBundles
  readonly clock: Clock
  readonly log: Log
  readonly createSampler: () => ResourceSampler
  /** Why the agent's rules forbid a task, or `null`. */
  readonly refuse: (spec: TaskSpec) => NotAllowed | null
  /** Closed by the agent; `null` if its parent process reports its end. */
  readonly watcher: AgentWatcher | null
}

const tickMs = 500
const announceEveryTicks = 4
/** The most closed runs that are remembered; older ones are forgotten. */
const mostClosedRuns = 1000

export class Agent {
  readonly name: string
  readonly #options: AgentOptions
  readonly #keys: Keys
  /** Identifies this start of the agent. */
  readonly #epoch: number
  readonly #sessions = new Map<string, AgentSession>()
  /** The driver's epoch that closed each run of a session: earlier drivers may still attach. */
  readonly #closedRuns = new Map<string, number>()
  readonly #shares: NodeShares
  readonly #samplers: NamedSamplers
  readonly #unsubscribe: (() => void)[] = []
  readonly #left = Promise.withResolvers<number>()
  readonly #challenges = new Challenges()
  /** Protocol versions of drivers that this agent cannot understand. */
  readonly #otherVersions = new Set<number>()
  #refusedMessages = 0
  #ticks = 0
  #isFeedDue = false
  #isDraining = false
  #cancelTick: () => void = () => {}
  #closing: Promise<void> | null = null
  #tokenCheck: TokenCheck | null = null
  readonly #announcer: Announcer

  /** Rejects with `BackendError` when the name is taken. */
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
    const { name, facts, rules, watcher } = options
    this.#announcer = new Announcer({
      ...options,
      keys: this.#keys,
      identity: { name, epoch: this.#epoch, facts, ...rules },
      watcher,
      describe: () => ({
        state: this.#isDraining ? 'draining' : 'ready',
        sessions: this.#sessions.size,
        refusedMessages: this.#refusedMessages,
      }),
    })
  }

  /**
   * Resolves when the agent has left the cluster, with the number of ends that the broker did not
   * store. Rejects when the agent leaves because its token is wrong.
   */
  get left(): Promise<number> {
    return this.#left.promise
  }

  /** Finishes what runs, accepts no new jobs, then leaves. */
  drain(): void {
    if (this.#isDraining) return
    this.#isDraining = true
    for (const session of this.#sessions.values()) session.drain()
    this.#announcer.announce()
    this.#leaveWhenIdle()
  }

  /**
   * Ends what runs. Leaves when the broker has stored all ends, or has stored none for the
   * `ownerTtlSeconds` of their session; at once with `needsEnds: false`, also if that comes in a
   * later call. Idempotent, same promise.
   */
  close({ needsEnds = true }: { readonly needsEnds?: boolean } = {}): Promise<void> {
    if (!needsEnds) for (const { outbox } of this.#sessions.values()) outbox.close()
    this.#closing ??= this.#closeOnce(needsEnds)
    return this.#closing
  }

  async #closeOnce(needsEnds: boolean): Promise<void> {
    this.#isDraining = true
    this.#cancelTick()
    this.#tokenCheck?.close()
    const sessions = [...this.#sessions.values()]
    if (needsEnds) for (const session of sessions) session.limitWait()
    await Promise.allSettled(sessions.map((session) => session.end(agentClosed, needsEnds)))
    const undelivered = sessions.reduce((sum, { outbox }) => sum + outbox.undelivered, 0)
    this.#announcer.announce('gone')
    for (const unsubscribe of this.#unsubscribe) unsubscribe()
    await this.#samplers.close()
    await this.#options.backend.close()
    this.#options.bundles.close()
    this.#options.removeFolder()
    await this.#options.broker.close()
    await this.#options.watcher?.close()
    this.#left.resolve(undelivered)
  }

  #subscribe(): void {
    const { broker, name } = this.#options
    this.#unsubscribe.push(
      broker.subscribe(agentSubject(name), (message) => this.#takeRequest(message)),
      broker.subscribe(discoverySubject, ({ subject, data }) => {
        this.#announcer.answer(this.#open(subject, data) !== null)
      }),
      broker.onConnection((isConnected) => {
        if (!isConnected) return
        for (const session of this.#sessions.values()) session.reconnected()
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
      onRefused: (reason) => this.#refuseMessage(reason),
      onMismatch: (error) => {
        this.#left.reject(error)
        void this.close()
      },
    })
  }

  #open(subject: string, data: Uint8Array): { epoch: number; payload: unknown } | null {
    try {
      return open(this.#keys.toAgent, subject, data)
    } catch (error) {
      const theirs = error instanceof VersionMismatchError ? error.theirs : null
      const isNew = theirs !== null && !this.#otherVersions.has(theirs)
      if (theirs !== null) this.#otherVersions.add(theirs)
      this.#refuseMessage(messageOf(error), isNew)
      return null
    }
  }

  #refuseMessage(reason: string, isNewVersion = false): void {
    if (this.#refusedMessages++ > 0 && !isNewVersion) return
    const text = `agent "${this.name}" refused a message: ${reason}`
    this.#options.log.warn('MessageRefused', `${text}; further ones are counted`)
  }

  #takeRequest(message: BrokerMessage): void {
    const receivedMs = this.#options.clock.monotonicMs()
    const opened = this.#open(message.subject, message.data)
    if (opened === null) return
    this.#tokenCheck?.close()
    const request = opened.payload as AgentRequest
    const { broker } = this.#options
    const respond = (answer: unknown): void => {
      const limitBytes = payloadLimit(broker.maxPayload)
      const { toDriver } = this.#keys
      const parts = sealAnswer(toDriver, message.subject, opened.epoch, answer, limitBytes)
      for (const part of parts) message.respond(part)
    }
    if (request.kind === 'ping') {
      const sentMs = this.#options.clock.monotonicMs()
      respond({ kind: 'pong', epoch: this.#epoch, receivedMs, sentMs } satisfies Pong)
    } else if (request.kind === 'challenge') {
      const { use } = request
      const known = use === undefined ? undefined : this.#sessions.get(toUseId(use))
      const latestStart = known?.driver.epoch ?? 0
      const nonce = this.#challenges.issue()
      respond({ kind: 'challenged', nonce, latestStart } satisfies Challenged)
    } else if (request.kind === 'attach') {
      if (this.#challenges.take(request.nonce)) void this.#attach(request).then(respond)
      else this.#refuseMessage('it was sent before')
    } else if (request.kind === 'detach') void this.#detach(request).then(respond)
    else if (request.kind === 'sample')
      void this.#samplers.ask(request.sampler, request.step).then(respond)
    else this.#refuseMessage('its kind is not known')
  }

  async #attach(attach: Attach): Promise<Attached> {
    const { sessionId, epoch } = attach
    const id = toUseId(attach)
    const ending = this.#sessions.get(id)
    if (ending?.isEnding === true) await this.#removeSession(ending, '', true)
    else if (ending?.driver.hasClosedBefore(attach) === true) {
      // The stream now belongs to another session.
      ending.outbox.close()
      await this.#removeSession(ending, 'its session was closed', false)
    }
    const known = this.#sessions.get(id)
    const later = `a later start of session "${sessionId}"`
    if (known !== undefined && known.driver.epoch > epoch) {
      const message = `${later} uses agent "${this.name}"`
      return { kind: 'refused', code: 'SessionInUseError', message }
    }
    if ((this.#closedRuns.get(attach.run) ?? 0) > epoch) {
      return { kind: 'refused', code: 'SessionInUseError', message: `${later} has closed it` }
    }
    // A draining agent that holds jobs of the session still accepts its returning driver.
    if (this.#isDraining && known === undefined) {
      const message = `agent "${this.name}" is leaving`
      return { kind: 'refused', code: 'AgentDrainingError', message }
    }
    if (known === undefined) this.#addSession(attach)
    else known.attachTo(attach)
    const session = this.#sessions.get(id)
    if (session === undefined) return { kind: 'refused', code: 'AgentError', message: 'it ended' }
    return {
      kind: 'attached',
      epoch: this.#epoch,
      offer: this.#offer(session),
      // An end that was not sent yet is listed as a held job, so that the driver waits for it.
      held: [...session.held.jobs, ...session.outbox.unsent],
      endsEpoch: session.endsEpoch,
      endMessages: session.outbox.state.endMessages,
      unrecorded: session.outbox.unrecorded,
    }
  }

  #addSession(attach: Attach): void {
    const { broker, clock, folder, bundles, token, backend, name } = this.#options
    const session = new AgentSession({
      attach,
      self: { name, epoch: this.#epoch },
      deriveKeys: (run) => deriveKeys(token, run),
      cluster: this.#keys,
      broker,
      clock,
      workDir: folder,
      bundles,
      connect: (listener) =>
        backend.connect(listener, { id: toUseId(attach), closureOf: () => null }),
      refuse: (spec) => this.#options.refuse(spec),
      offer: (one) => this.#offer(one),
      onArrival: () => this.#feedArrived(),
      onChange: () => this.#feedSoon(),
      onRefusedMessage: (reason) => this.#refuseMessage(reason),
      onProblem: (error) => this.#problem(error),
      onDroppedEvent: (why) => {
        const text = `agent "${name}" has dropped the event ${why}; further ones are counted`
        this.#options.log.warn('EventDropped', text)
      },
    })
    this.#sessions.set(session.id, session)
  }

  async #detach(detach: Detach): Promise<Detached> {
    const { epoch, run, reason } = detach
    const session = this.#sessions.get(toUseId(detach))
    // Anybody may replay the detach of a run that is closed.
    if (session === undefined || session.run !== run)
      return { kind: 'detached', isSuperseded: false }
    const isSuperseded = session.driver.epoch > epoch
    if (isSuperseded) return { kind: 'detached', isSuperseded }
    this.#closedRuns.set(run, epoch)
    const [oldest = ''] = this.#closedRuns.keys()
    if (this.#closedRuns.size > mostClosedRuns) this.#closedRuns.delete(oldest)
    await this.#removeSession(session, reason, false)
    return { kind: 'detached', isSuperseded }
  }

  async #removeSession(session: AgentSession, reason: string, isAbandoned: boolean): Promise<void> {
    await session.end(reason, isAbandoned)
    if (this.#sessions.get(session.id) === session) this.#sessions.delete(session.id)
    if (this.#isDraining) this.#leaveWhenIdle()
  }

  #offer(session: AgentSession): Offer {
    if (this.#isDraining) return { cores: 0, gpus: 0, memoryMb: 0, ahead: 0 }
    return this.#shares.offer(session)
  }

  /** Feeds at once if the node is idle: a single job need not wait for others. */
  #feedArrived(): void {
    if (this.#shares.isIdle && !this.#isFeedDue) this.#feed()
    else this.#feedSoon()
  }

  #feedSoon(): void {
    // Without a waiting job there is nothing to feed; the next arrival feeds again.
    if (this.#isFeedDue || !(this.#isDraining || this.#shares.hasWaiting)) return
    this.#isFeedDue = true
    this.#options.clock.nextTurn(() => {
      this.#isFeedDue = false
      this.#feed()
    })
  }

  #feed(): void {
    this.#shares.feed()
    if (this.#isDraining) this.#leaveWhenIdle()
  }

  #tick(): void {
    const { clock } = this.#options
    this.#cancelTick = clock.after(tickMs, () => this.#tick())
    const nowMs = clock.monotonicMs()
    for (const session of this.#sessions.values()) {
      if (session.tick(nowMs)) void this.#removeSession(session, 'the driver is gone', true)
    }
    this.#feed()
    if (this.#ticks++ % announceEveryTicks === 0) this.#announcer.announce()
  }

  #leaveWhenIdle(): void {
    const isIdle = [...this.#sessions.values()].every(({ held }) => held.size === 0)
    if (isIdle) void this.close()
  }

  #problem(error: unknown): void {
    const text = `the broker does not store results of tasks: ${messageOf(error)}`
    this.#options.log.warn('EndsNotStored', `${text}; they are sent again`)
  }
}
