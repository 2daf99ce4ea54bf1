/** A driver of a simulation: the driver's machine, and a shell that uses no promises. */

import { Fifo } from '../../../src/runtime/fifo.ts'
import { StoreFullError } from '../../../src/cluster/broker/broker.ts'
import { Driver } from '../../../src/cluster/protocol/driver/driver.ts'
import type {
  AttachRequest,
  DriverInstruction,
  DriverStimulus,
  LinkMessage,
  StoredParts,
} from '../../../src/cluster/protocol/driver/driver-interface.ts'
import { noHeldNodes } from '../../../src/cluster/protocol/placement/held-nodes.ts'
import type { DriverJob, RemoteAgent } from '../../../src/cluster/protocol/driver/remote-agent.ts'
import { decode } from '../../../src/cluster/wire/codec.ts'
import { encodeJobs, encodeLargeJob, payloadLimit } from '../../../src/cluster/wire/job-batches.ts'
import type {
  AgentReport,
  Attached,
  DriverMessage,
  Message,
  ResultsMessage,
} from '../../../src/cluster/wire/messages.ts'
import { SimulatedConnection } from '../simulated-connection.ts'
import { type SimulatedDriverOptions, resultTtlSeconds } from '../simulated-driver.ts'
import { sessionId, SimulatedSession } from '../simulated-session.ts'
import { SimulatedProcess } from '../virtual-time.ts'
import type { SentMessage } from './machine-part.ts'
import { MachineDirectory } from './machine-directory.ts'
import { contentOf, contentsOf, streamName, streamSubjects, toParcel } from './parcel.ts'

const tickMs = 500
const requestTimeoutMs = 5000
const claimDelayMs = 300
const retryMs = 500
const restoreDelayMs = 500
const maxReads = 5
const secondsPerStart = 1000
const use = { sessionId, backend: 'cluster' }

interface UpMessage {
  readonly header: LinkMessage['header']
  readonly payload: AgentReport | ResultsMessage | Message<'idle'>
  readonly run?: string
}

export class MachineDriver {
  readonly process: SimulatedProcess
  readonly connection: SimulatedConnection
  readonly #options: SimulatedDriverOptions
  readonly #session: SimulatedSession
  readonly #directory: MachineDirectory
  readonly #driver: Driver
  readonly #stimuli = new Fifo<DriverStimulus>()
  readonly #storing = new Set<DriverJob>()
  #isAdvancing = false
  #isPlacing = false
  #isReleased = false
  #isClosing = false
  #run = ''
  #driverStart = 0
  #beats = 0

  constructor(options: SimulatedDriverOptions) {
    const { time, server, random, maxPayload, lossSeconds, agentTimeoutSeconds } = options
    this.#options = options
    this.process = new SimulatedProcess(time)
    const own = { server, time, random: random.fork(), process: this.process, maxPayload }
    this.connection = new SimulatedConnection(own)
    this.#session = new SimulatedSession(options)
    const session = this.#session
    this.#directory = new MachineDirectory({
      connection: this.connection,
      clock: this.process.clock,
      lossSeconds,
      onJoined: (agent) => {
        session.noteNode(agent.announcement.name, agent.announcement.start)
        this.#tell({ kind: 'agent joined', agent })
      },
      onDraining: ({ announcement }) => this.#tell({ kind: 'agent draining', agent: announcement }),
      onLost: ({ announcement }, reason) =>
        this.#tell({ kind: 'agent lost', agent: announcement, reason }),
    })
    this.#driver = new Driver({
      secondsLeft: () => Infinity,
      held: noHeldNodes,
      known: this.#directory,
      explainNoAgent: null,
      url: 'simulated',
      agentTimeoutSeconds,
      lossSeconds,
    })
    const connection = {
      submit: (jobs) => this.#tell({ kind: 'submit', jobs }),
      cancel: (job, reason) => this.#tell({ kind: 'cancel', job, reason }),
      recorded: (jobs) => this.#tell({ kind: 'recorded', jobs }),
    } as Parameters<SimulatedSession['start']>[0]['connection']
    const findStart = (name: string): number | undefined =>
      this.#directory.find(name)?.announcement.start
    session.start({ process: this.process, connection, findStart, onDone: () => this.#release() })
    this.process.clock.after(claimDelayMs, () => this.#claim())
  }

  get isFinished(): boolean {
    return this.#isReleased
  }

  get openTasks(): readonly string[] {
    return this.#session.openTasks
  }

  kill(): void {
    this.process.kill()
    this.connection.break()
  }

  cancel(uid: string): void {
    this.#session.cancel(uid)
  }

  #tell(stimulus: DriverStimulus): void {
    this.#stimuli.push(stimulus)
    if (this.#isAdvancing) return
    this.#isAdvancing = true
    const { clock } = this.process
    for (let next = this.#stimuli.shift(); next !== undefined; next = this.#stimuli.shift()) {
      const now = { monotonicMs: clock.monotonicMs(), wallSeconds: clock.now() }
      for (const instruction of this.#driver.advance(next, now)) this.#carryOut(instruction)
    }
    this.#isAdvancing = false
  }

  // The session is claimed.

  #claim(): void {
    const { server } = this.connection
    const agents = this.#directory.agents.map(({ announcement: { name } }) => name)
    let missing = agents.length
    let run: string | null = null
    let latest = 0
    const proceed = (): void => {
      const label = run ?? `run-${this.#options.random.integer(1, 2 ** 40)}`
      const open = (): string => {
        const isKnown = server.streamNames.includes(streamName)
        const isReturning = this.#session.earlier !== null
        if (isKnown && (!isReturning || run !== null)) {
          const found = server.findStream(streamName)
          if (found?.label !== label) server.remove(streamName)
        }
        const settings = { subjects: streamSubjects, maxAgeSeconds: resultTtlSeconds, label }
        const opened = server.openStream(streamName, settings)
        server.appendAfter('claim', toParcel(null), server.lastSequence(streamName, 'claim'))
        return opened.label
      }
      const again = (): void => void this.process.clock.after(retryMs, () => this.#claim())
      this.connection.call(open, (opened) => this.#begin(opened, latest), again)
    }
    if (missing === 0) return proceed()
    for (const name of agents) {
      const end = (known: Pick<Message<'challenged'>, 'run' | 'latestStart'>): void => {
        if (known.latestStart >= latest && this.#session.earlier !== null) run = known.run ?? run
        latest = Math.max(latest, known.latestStart)
        if (--missing === 0) proceed()
      }
      const onAnswer = (answer: Uint8Array): boolean => {
        end(contentOf(answer) as Message<'challenged'>)
        return true
      }
      const request = toParcel({ kind: 'challenge' })
      const none = { run: null, latestStart: 0 }
      this.connection.ask(`agent.${name}`, request, onAnswer, () => end(none), 2000)
    }
  }

  #begin(run: string, latestStart: number): void {
    const { process, connection } = this
    this.#run = run
    this.#driverStart = Math.max(process.clock.now() * secondsPerStart, latestStart + 1)
    connection.subscribe('owner', (message) => message.respond(toParcel('here')))
    for (const subject of ['up.*', 'ends.*']) {
      connection.subscribe(subject, ({ subject: from, data }) => this.#receive(from, data))
    }
    connection.onConnection((isConnected) => {
      if (!isConnected) return
      this.#tell({ kind: 'reconnected' })
      this.#restoreStream()
    })
    const links = this.#options.random.integer(1, 2 ** 40)
    const earlier = this.#session.earlier?.nodes.map(({ nodeId: name, start }) => ({ name, start }))
    const driverStart = this.#driverStart
    this.#tell({ kind: 'claimed', driverStart, links, earlier: earlier ?? null })
    this.#tick()
  }

  #restoreStream(): void {
    const { server } = this.connection
    const restore = (): void => {
      const found = server.findStream(streamName)
      if (found === null || found.label === this.#run) return
      server.remove(streamName)
      const settings = { subjects: streamSubjects, maxAgeSeconds: 1, label: this.#run }
      server.openStream(streamName, settings)
    }
    this.connection.call(restore, nothing, nothing)
  }

  #receive(subject: string, data: Uint8Array): void {
    const { header, payload, run } = contentOf(data) as UpMessage
    // A message of another run has another key.
    if (run !== undefined && run !== this.#run) return
    const agent = subject.slice(subject.indexOf('.') + 1)
    this.#tell({ kind: 'message', agent, message: { header, payload, size: data.length } })
    this.#placeSoon()
  }

  #tick(): void {
    if (this.#isReleased) return
    this.process.clock.after(tickMs, () => this.#tick())
    this.#tell({ kind: 'tick' })
  }

  #placeSoon(): void {
    if (this.#isPlacing) return
    this.#isPlacing = true
    this.process.clock.nextTurn(() => {
      this.#isPlacing = false
      this.#tell({ kind: 'place' })
    })
  }

  // Instructions.

  #carryOut(instruction: DriverInstruction): void {
    const { listener } = this.#session
    switch (instruction.kind) {
      case 'report':
        return listener.report(instruction.job, instruction.report)
      case 'notice':
        return listener.notice(instruction.notice)
      case 'place soon':
        return this.#placeSoon()
      case 'next turn':
        return this.process.clock.nextTurn(() => this.#tell({ kind: 'turn' }))
      case 'report left': {
        const { nodeId, reason, tasks } = instruction
        const lost = reason === null ? {} : { lost: { reason, tasks } }
        listener.notice({ kind: 'node-left', nodeId, ...lost })
        if (this.#directory.find(nodeId) === undefined) return
        return listener.notice({ kind: 'node-joined', node: { nodeId } })
      }
      case 'flush': {
        const { agent } = instruction
        return this.#session.afterFlush(() => this.#tell({ kind: 'agent recorded', agent }))
      }
      case 'send jobs':
        return this.#sendJobs(instruction.agent, instruction.jobs)
      case 'abort sending':
        return void this.#storing.delete(instruction.one)
      case 'attach':
        return this.#attach(instruction.agent, instruction.request)
      case 'read results':
        return this.#readResults(instruction.agent, 1)
      case 'read parts':
        return this.#readParts(instruction.parts)
      case 'warn':
        return this.#options.trace(`${instruction.code}: ${instruction.text}`)
      default:
        return this.#send(instruction)
    }
  }

  #send(instruction: DriverInstruction): void {
    switch (instruction.kind) {
      case 'send':
        return this.#post(instruction.agent, instruction.message)
      case 'send idle': {
        const { agent, header, message } = instruction
        return this.#publish(agent, { header, message })
      }
      case 'send beat': {
        const header = { scope: this.#driverStart, number: ++this.#beats, acknowledged: 0 }
        const beat = { header, beat: instruction.beat, run: this.#run }
        return this.connection.publish('beat', toParcel(beat))
      }
      default:
    }
  }

  #post(agent: RemoteAgent, message: DriverMessage): void {
    const { link, state } = agent
    if (link === null || state === 'attaching' || state === 'lost') return
    const header = link.nextHeader(this.process.clock.monotonicMs())
    this.#publish(agent, { header, message })
  }

  #publish({ name }: RemoteAgent, sent: SentMessage): void {
    this.connection.publish(`down.${name}`, toParcel(sent))
  }

  #sendJobs(agent: RemoteAgent, jobs: readonly DriverJob[]): void {
    const limit = payloadLimit(this.connection.maxPayload)
    const { payloads, large } = encodeJobs(jobs, limit, (url) => url)
    for (const payload of payloads) this.#post(agent, decode(payload) as DriverMessage)
    for (const { job, spec } of large) this.#store(agent, job, spec)
  }

  /** Stores the input of a job, then sends the job. */
  #store(agent: RemoteAgent, one: DriverJob, spec: Buffer): void {
    const { wireAttempt } = one
    const { server } = this.connection
    const name = `${one.uid}/${wireAttempt}/spec`
    one.isUnsent = true
    this.#storing.add(one)
    const isWanted = (): boolean =>
      this.#storing.has(one) && one.agent === agent && one.wireAttempt === wireAttempt
    const stored = (): void => {
      const mustSend = isWanted()
      this.#storing.delete(one)
      one.isUnsent = false
      if (mustSend) this.#post(agent, decode(encodeLargeJob(one, name)) as DriverMessage)
    }
    const again = (error: unknown): void => {
      if (error instanceof StoreFullError) this.#driver.makeRoom()
      this.process.clock.after(retryMs, () => {
        if (isWanted()) this.#openStream(put)
      })
    }
    const put = (): void =>
      this.connection.call(() => server.putObject(`objects.${name}`, spec), stored, again)
    put()
  }

  #openStream(then: () => void): void {
    const settings = { subjects: streamSubjects, maxAgeSeconds: 1, label: this.#run }
    const open = () => this.connection.server.openStream(streamName, settings)
    this.connection.call(open, then, then)
  }

  #attach({ name }: RemoteAgent, request: AttachRequest): void {
    const { link } = request
    const { ownerTtlSeconds, agentTimeoutSeconds } = this.#options
    const times = { ownerTtlSeconds, agentTimeoutSeconds, resultTtlSeconds }
    const own = { ...use, run: this.#run, nonce: 0, folder: '/', ...times, ...request }
    const onAnswer = (data: Uint8Array): boolean => {
      const answer = contentOf(data) as Attached
      if (answer.kind === 'attached') this.#tell({ kind: 'attached', link, answer })
      else if (answer.code === 'SessionInUseError') {
        this.#tell({ kind: 'failed', error: new Error(answer.message) })
      } else this.#tell({ kind: 'not attached', link, problem: answer.message })
      return true
    }
    const onError = (error: unknown): void =>
      this.#tell({ kind: 'not attached', link, problem: (error as Error).message })
    const parcel = toParcel({ kind: 'attach', ...own })
    this.connection.ask(`agent.${name}`, parcel, onAnswer, onError, requestTimeoutMs)
  }

  #readResults(agent: RemoteAgent | null, attempt: number): void {
    const { server } = this.connection
    const subject = agent === null ? 'ends.*' : `ends.${agent.name}`
    const tell = (messages: readonly ResultsMessage[]): void =>
      this.#tell({ kind: 'stored results', agent, messages })
    const again = (): void => {
      if (attempt === maxReads) return tell([])
      this.process.clock.after(200, () => this.#readResults(agent, attempt + 1))
    }
    const onRead = ({ messages }: ReturnType<typeof server.read>): void => {
      const all = (contentsOf(messages) as readonly UpMessage[]).filter(
        ({ run }) => run === this.#run,
      )
      tell(all.map(({ payload }) => payload as ResultsMessage))
    }
    this.connection.call(() => server.read(streamName, subject, null), onRead, again)
  }

  #readParts(parts: StoredParts): void {
    const { server } = this.connection
    const { outcome } = parts.end
    if (outcome.kind !== 'stored') return
    const name = `objects.${outcome.object}`
    const read = (): Uint8Array | null => server.getObject(streamName, name)?.data ?? null
    const onRead = (data: Uint8Array | null): void => {
      this.connection.call(() => server.deleteObject(streamName, name), nothing, nothing)
      const stored = data === null ? {} : (decode(data) as Partial<StoredParts['end']>)
      const whole = { ...parts, end: { ...parts.end, ...stored } }
      const tell = (): void =>
        this.#tell({ kind: 'parts read', parts: whole, isLost: data === null })
      if (data === null) this.process.clock.after(restoreDelayMs, tell)
      else tell()
    }
    const again = (): void => {
      if (!this.#isReleased) this.process.clock.after(retryMs, () => this.#readParts(parts))
    }
    this.connection.call(read, onRead, again)
  }

  // The session is closed.

  #release(): void {
    if (this.#isClosing) return
    this.#isClosing = true
    this.#tell({ kind: 'close', reason: 'session closed' })
    const names = this.#driver.usedAgents
    let missing = names.length
    if (missing === 0) return this.#removeStream()
    const end = (): void => {
      if (--missing === 0) this.#removeStream()
    }
    for (const name of names) this.#detach(name, end, 5)
  }

  #detach(name: string, onEnd: () => void, attempts: number): void {
    const own = { ...use, run: this.#run, driverStart: this.#driverStart }
    const detach = toParcel({ kind: 'detach', reason: 'session closed', ...own })
    const onAnswer = (): boolean => {
      onEnd()
      return true
    }
    const onError = (): void => {
      if (attempts === 1 || this.#directory.find(name) === undefined) onEnd()
      else this.process.clock.after(retryMs, () => this.#detach(name, onEnd, attempts - 1))
    }
    this.connection.ask(`agent.${name}`, detach, onAnswer, onError, requestTimeoutMs)
  }

  #removeStream(): void {
    this.#tell({ kind: 'closed', reason: 'session closed' })
    const finish = (): void => {
      this.#directory.close()
      this.connection.close().catch(() => {})
      this.#isReleased = true
    }
    const again = (): void => void this.process.clock.after(retryMs, () => this.#removeStream())
    this.connection.call(() => this.connection.server.remove(streamName), finish, again)
  }
}

const nothing = (): void => {}
