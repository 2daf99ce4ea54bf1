/**
 * One session on the cluster: carries out what the driver's machine decides, and tells it what has
 * happened.
 */

import type {
  BackendListener,
  ConnectedSession,
  Job,
  SampledNode,
} from '../../../backends/backend.ts'
import { toEventNotice } from '../../../backends/backend.ts'
import { BackendThrottled } from '../../../events/library-events.ts'
import { catchErrors, type Clock, readMoment } from '../../../foundation/clock.ts'
import { BackendError, messageOf } from '../../../foundation/errors.ts'
import type { Log } from '../../../foundation/log.ts'
import { once } from '../../../foundation/service.ts'
import { retry } from '../../../runtime/retry.ts'
import { Fifo } from '../../../runtime/fifo.ts'
import type { ProgramOutput } from '../../../tasks/task-record.ts'
import type { Broker } from '../../broker/broker.ts'
import { SentModules } from '../../bundles/sent-modules.ts'
import { Driver, type DriverOptions, supersededError } from '../../protocol/driver/driver.ts'
import type { DriverInstruction, DriverStimulus } from '../../protocol/driver/driver-interface.ts'
import type { ClusterLoad } from '../../protocol/placement/placement-state.ts'
import type { GroupOptions } from '../../protocol/driver/remote-agent.ts'
import { newScope } from '../../wire/envelope.ts'
import type { Handlers } from '../../wire/forms.ts'
import { isOutput } from '../../wire/messages.ts'
import type { SessionUse } from '../../wire/subjects.ts'
import { AgentLinks } from './agent-links.ts'
import type { AgentDirectory, DirectoryListener, KnownAgent } from './agent-directory.ts'
import type { ClusterConnection, ClusterSettings } from './cluster-connection.ts'
import { JobSender } from './job-sender.ts'
import { PlacementTrigger } from './placement-trigger.ts'
import { claimSession, restoreStream } from './session-owner.ts'
import { SessionData } from './session-data.ts'
import { detachAgents, waitUntilSilent } from './session-release.ts'

export interface DriverSessionOptions
  extends Omit<DriverOptions, 'known' | 'url'>, Pick<ClusterSettings, 'modules'> {
  readonly use: SessionUse
  readonly session: Pick<ConnectedSession, 'begun' | 'flushed'>
  readonly listener: BackendListener
  readonly broker: Broker
  readonly directory: AgentDirectory
  readonly token: string
  readonly clock: Clock
  readonly log: Log
  readonly ownerTtlSeconds: number
  readonly resultTtlSeconds: number
  readonly toNode: (agent: KnownAgent) => SampledNode
  /** Called when the session has released everything. */
  readonly onReleased: () => void
}

const tickIntervalMs = 500
const outputTimeoutMs = 5000

export class DriverSession implements ClusterConnection {
  readonly #options: DriverSessionOptions
  readonly #driver: Driver
  readonly #data: SessionData
  readonly #links: AgentLinks
  readonly #modules: SentModules | null
  readonly #sender: JobSender
  readonly #trigger: PlacementTrigger
  readonly #stimuli = new Fifo<DriverStimulus>()
  #isAdvancing = false
  readonly #handlers: Handlers<DriverInstruction, []> = {
    report: ({ job, report }) => this.#options.listener.report(job, report),
    notice: ({ notice }) => this.#options.listener.notice(notice),
    'report left': (one) => this.#reportLeft(one),
    attach: ({ agent, request }) => this.#failWith(this.#links.attach(agent, request)),
    flush: ({ agent }) => {
      const tell = (): void => this.#tell({ kind: 'agent recorded', agent })
      this.#failWith(Promise.resolve(this.#options.session.flushed?.()).then(tell))
    },
    'send jobs': ({ agent, jobs }) => this.#sender.send(agent, jobs),
    'abort sending': ({ one }) => this.#sender.abort(one),
    send: ({ agent, message }) => this.#links.post(agent, message),
    'send idle': ({ agent, header, message }) => this.#links.sendIdle(agent, header, message),
    'send beat': ({ beat }) => this.#links.sendBeat(beat),
    'read results': ({ agent }) => this.#failWith(this.#links.readResults(agent)),
    'read parts': ({ parts }) => this.#failWith(this.#links.readParts(parts)),
    'drop bundles': ({ digests }) => this.#modules?.dropLost(digests),
    'place soon': ({ submitted }) => {
      if (submitted === 0) this.#trigger.schedule()
      else this.#trigger.handleSubmit(submitted, this.#driver.waiting)
    },
    'next turn': () => this.#options.clock.nextTurn(() => this.#tell({ kind: 'turn' })),
    warn: ({ code, text }) => this.#options.log.warn(code, text),
  }
  #failure: Error | null = null
  readonly #stops: (() => void)[] = []
  #cancelTick: () => void = () => {}
  readonly #started: Promise<void>
  #isOwner = false
  /** The agents that may hold jobs of an earlier start, by name. */
  #earlierAgents: readonly string[] = []
  #streamCreated = ''

  constructor(rawOptions: DriverSessionOptions) {
    const onFailed = (error: unknown): void => this.#fail(error)
    const options = { ...rawOptions, clock: catchErrors(rawOptions.clock, onFailed) }
    const { broker, clock, directory } = options
    const { ownerTtlSeconds, resultTtlSeconds, agentTimeoutSeconds } = options
    this.#options = options
    this.#driver = new Driver({ ...options, url: broker.url, known: directory })
    this.#data = new SessionData({ ...options, makeRoom: () => this.#driver.makeRoom() })
    this.#trigger = new PlacementTrigger(clock, () => this.#tell({ kind: 'place' }))
    this.#links = new AgentLinks({
      ...options,
      data: this.#data,
      times: { ownerTtlSeconds, resultTtlSeconds, agentTimeoutSeconds },
      tell: (stimulus) => this.#tell(stimulus),
      onFailed,
    })
    const { objects } = this.#data
    this.#modules = options.modules === 'bundle' ? new SentModules(objects, clock) : null
    this.#sender = new JobSender({
      broker,
      objects,
      modules: this.#modules,
      send: (agent, payload) => this.#links.send(agent, payload),
      onUnsendable: (one, error, isFinal) =>
        this.#tell({ kind: 'unsendable', one, error, isFinal }),
      onFailed,
    })
    this.#started = this.#start().catch(onFailed)
  }

  submit(jobs: readonly Job[]): void {
    this.#tell({ kind: 'submit', jobs })
  }

  submitTogether(jobs: readonly Job[], options: GroupOptions): void {
    this.#tell({ kind: 'submit together', jobs, options })
  }

  cancel(job: Job, reason: string): void {
    this.#tell({ kind: 'cancel', job, reason })
  }

  recorded(jobs: readonly Job[]): void {
    this.#tell({ kind: 'recorded', jobs })
  }

  async output(job: Job): Promise<ProgramOutput | null> {
    const one = this.#driver.find(job)
    if (one === null || one.agent === null) return null
    const { directory, use } = this.#options
    const { uid, wireAttempt: attempt } = one
    const request = { kind: 'output', ...use, run: this.#data.run, uid, attempt } as const
    const answer = await directory.request(one.agent.name, request, outputTimeoutMs)
    return isOutput(answer) ? answer : null
  }

  get load(): ClusterLoad {
    return this.#driver.load
  }

  readonly release = once(async (reason: string) => {
    await this.#releaseOnce(reason)
    this.#options.onReleased()
  })

  get #isOpen(): boolean {
    return this.#failure === null && !this.release.isCalled
  }

  /** Stimuli that arise while instructions are carried out are handled afterwards, in order. */
  #tell(stimulus: DriverStimulus): void {
    this.#stimuli.push(stimulus)
    if (this.#isAdvancing) return
    this.#isAdvancing = true
    try {
      for (let next = this.#stimuli.shift(); next !== undefined; next = this.#stimuli.shift()) {
        const instructions = this.#driver.advance(next, readMoment(this.#options.clock))
        for (const instruction of instructions) {
          const carryOut: (one: never) => void = this.#handlers[instruction.kind]
          carryOut(instruction as never)
        }
      }
    } finally {
      this.#isAdvancing = false
    }
  }

  /** A restarted agent joins before the loss of its predecessor is reported, so it joins again. */
  #reportLeft({
    nodeId,
    reason,
    tasks,
  }: Extract<DriverInstruction, { readonly kind: 'report left' }>): void {
    const { listener, directory, toNode } = this.#options
    const lost = reason === null ? {} : { lost: { reason, tasks } }
    listener.notice({ kind: 'node-left', nodeId, ...lost })
    const next = directory.find(nodeId)
    if (next !== undefined) listener.notice({ kind: 'node-joined', node: toNode(next) })
  }

  /** Claims the session. Retries for `agentTimeoutSeconds`: the broker may be restarting. */
  async #start(): Promise<void> {
    const { clock, agentTimeoutSeconds, directory, session } = this.#options
    // Listens before the session is claimed, because nodes that join before are also reported.
    this.#stops.push(directory.listen(this.#listener))
    for (const agent of directory.agents) this.#listener.agentJoined(agent)
    const earlier = (await session.begun) ?? null
    this.#earlierAgents = earlier?.nodes.map(({ nodeId }) => nodeId) ?? []
    const policy = { delayMs: tickIntervalMs, timeoutMs: agentTimeoutSeconds * 1000 }
    const mayRetry = (error: unknown): boolean => !(error instanceof BackendError)
    const claim = async (): Promise<void> => (this.#isOpen ? this.#claim(earlier) : undefined)
    await retry(policy, claim, { clock, mayRetry }).catch((error: unknown) => this.#fail(error))
  }

  readonly #listener: DirectoryListener = {
    agentJoined: (agent) => {
      this.#links.add(agent)
      this.#tell({ kind: 'agent joined', agent })
    },
    agentDraining: ({ announcement }) =>
      this.#tell({ kind: 'agent draining', agent: announcement }),
    agentLost: ({ announcement }, reason) =>
      this.#tell({ kind: 'agent lost', agent: announcement, reason }),
  }

  async #claim(earlier: Awaited<ConnectedSession['begun']> | null): Promise<void> {
    const { broker, listener } = this.#options
    const { stream, subjects, cluster } = this.#data
    let isReported = false
    const claimed = await claimSession({
      ...this.#options,
      stream,
      subjects,
      cluster,
      isReturning: earlier !== null && earlier !== undefined,
      isOpen: () => this.#isOpen,
      onRun: (run) => this.#data.setRun(run),
      onFull: ({ message }) => {
        if (isReported || this.#driver.waiting === 0) return
        isReported = true
        const reason = `the store of the broker is full: ${message}`
        listener.notice(toEventNotice(BackendThrottled, { reason, limit: 0 }))
      },
    })
    this.#isOwner = true
    this.#data.driverStart = claimed.driverStart
    this.#streamCreated = claimed.streamCreated
    this.#stops.push(
      claimed.stop,
      this.#links.subscribe(() => this.#trigger.schedule()),
      broker.onConnection((isConnected) => {
        if (isConnected) this.#handleReconnect()
      }),
    )
    if (this.release.isCalled) return
    const nodes = earlier?.nodes.map(({ nodeId, start }) => ({ name: nodeId, start })) ?? null
    const { driverStart } = claimed
    this.#tell({ kind: 'claimed', driverStart, links: newScope(), earlier: nodes })
    this.#tick()
  }

  #handleReconnect(): void {
    this.#tell({ kind: 'reconnected' })
    const { broker, directory, use } = this.#options
    const { stream, subjects, cluster } = this.#data
    restoreStream({ broker, directory, use, stream, subjects, cluster }, this.#data)
      .then((created) => this.#handleStream(created))
      .catch(() => {
        // The connection was lost again.
      })
  }

  #handleStream(created: string | null): void {
    const { use, broker, log } = this.#options
    if (created === null) return this.#fail(supersededError(use.sessionId))
    // After a failure, the stream is not opened.
    if (!this.#isOpen || created === this.#streamCreated) return
    this.#streamCreated = created
    const text = `the broker at ${broker.url} has lost its data of session "${use.sessionId}"`
    log.warn('StoreLost', `${text}: agents send unrecorded results again`)
  }

  #tick(): void {
    const { clock } = this.#options
    this.#cancelTick = clock.after(tickIntervalMs, () => this.#tick(), { background: true })
    this.#tell({ kind: 'tick' })
  }

  #fail(cause: unknown): void {
    if (!this.#isOpen) return
    const error = cause instanceof Error ? cause : new BackendError(messageOf(cause))
    this.#failure = error
    this.#stop()
    this.#tell({ kind: 'failed', error })
    this.#data.objects.close()
    this.#data.stream.close().catch(() => {})
  }

  /** The session fails if the work does. */
  #failWith(work: Promise<unknown>): void {
    work.catch((error: unknown) => this.#fail(error))
  }

  #stop(): void {
    this.#cancelTick()
    for (const stop of this.#stops.splice(0)) stop()
  }

  /** Removes the session's data and ends its jobs. Only warns if the broker does not answer. */
  async #releaseOnce(reason: string): Promise<void> {
    const { broker, clock, log, ownerTtlSeconds, resultTtlSeconds, use } = this.#options
    const done = new AbortController()
    const silent = waitUntilSilent(broker, this.#data.subjects, clock, done.signal)
    const removed = this.#removeAll(reason, done.signal).then(() => false)
    const isBrokerSilent = await Promise.race([removed, silent])
    done.abort()
    this.#tell({ kind: 'closed', reason })
    this.#data.objects.close()
    this.#stop()
    if (!isBrokerSilent) return
    const result = `agents end its tasks after ${ownerTtlSeconds} s, and a later driver removes its`
    log.warn(
      'SessionNotRemoved',
      `the broker at ${broker.url} does not answer, so session "${use.sessionId}" ` +
        `is not removed: ${result} results after ${resultTtlSeconds} s`,
    )
  }

  async #removeAll(reason: string, signal: AbortSignal): Promise<void> {
    this.#tell({ kind: 'close', reason })
    // Waits for `#start`, which would otherwise create again what is removed here.
    await this.#started
    const { stream } = this.#data
    // The stored data belongs to the driver that owns the session. That may be another driver.
    if (this.#failure !== null || !this.#isOwner) return stream.close()
    const agents = [...new Set([...this.#driver.usedAgents, ...this.#earlierAgents])]
    const isOwn = await detachAgents(agents, reason, {
      ...this.#options,
      run: this.#data.run,
      driverStart: this.#data.driverStart,
    })
    this.#tell({ kind: 'closed', reason })
    await stream.close()
    if (!isOwn) return
    try {
      await stream.remove(this.#options.clock)
    } catch (error) {
      if (signal.aborted) return
      const { use, broker, log } = this.#options
      const text = `the stream of session "${use.sessionId}" at ${broker.url} could not be removed`
      log.warn('StreamNotRemoved', `${text}: ${messageOf(error)}`)
    }
  }
}
