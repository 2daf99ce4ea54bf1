/** An agent of a simulation: the machines of an agent, and a shell that uses no promises. */

import { AgentRuns } from '../../../src/cluster/protocol/agent/agent-runs.ts'
import { AgentShares } from '../../../src/cluster/protocol/agent/agent-shares.ts'
import type { Announcement, Attach, Attached, Message } from '../../../src/cluster/wire/messages.ts'
import type { SimulatedAgentOptions } from '../simulated-agent.ts'
import { SimulatedBackend } from '../simulated-backend.ts'
import { SimulatedConnection } from '../simulated-connection.ts'
import { SimulatedProcess } from '../virtual-time.ts'
import { MachinePart, use } from './machine-part.ts'
import { contentOf, toParcel } from './parcel.ts'

export type AgentRequest =
  | { readonly kind: 'ping' }
  | { readonly kind: 'challenge' }
  | Attach
  | Message<'detach'>

const startDelayMs = 500
const tickMs = 500
const announceEveryTicks = 4

/** A node. Its agent may die, and start again under the same name. */
export class MachineAgent {
  readonly name: string
  readonly #options: SimulatedAgentOptions
  #process: SimulatedProcess
  #running: RunningAgent | null = null
  #starts = 0

  constructor(options: SimulatedAgentOptions) {
    this.#options = options
    this.name = options.name
    this.#process = new SimulatedProcess(options.time)
  }

  get process(): SimulatedProcess {
    return this.#process
  }

  get connection(): SimulatedConnection | null {
    return this.#running?.connection ?? null
  }

  /** The sessions for which the agent still holds something. */
  get openSessions(): number {
    return this.#running?.backend.connections ?? 0
  }

  start(): void {
    const { time, server } = this.#options
    // The name is taken.
    if (this.#running !== null) return
    const process = new SimulatedProcess(time)
    this.#process = process
    const startLater = (): void => void process.clock.after(startDelayMs, () => this.start())
    if (!server.isUp) return startLater()
    const running = new RunningAgent(this.#options, process, ++this.#starts, () => {
      this.#options.trace(`${this.name} has left`)
      if (this.#running !== running) return
      this.#running = null
      startLater()
    })
    this.#running = running
    this.#options.trace(`${this.name}/${this.#starts} is ready`)
  }

  kill(): void {
    this.#process.kill()
    this.#running?.connection.break()
    this.#running?.backend.kill()
    this.#running = null
  }

  drain(): void {
    this.#process.do(() => this.#running?.drain())
  }
}

/** One start of an agent. */
class RunningAgent {
  readonly connection: SimulatedConnection
  readonly backend: SimulatedBackend
  readonly #options: SimulatedAgentOptions
  readonly #process: SimulatedProcess
  readonly #start: number
  readonly #runs: AgentRuns
  readonly #shares: AgentShares<MachinePart>
  readonly #onLeft: () => void
  #part: MachinePart | null = null
  #ticks = 0
  #state: Announcement['state'] = 'ready'
  #isFeedScheduled = false
  readonly #links = new Set<number>()
  #nonce = 0

  constructor(
    options: SimulatedAgentOptions,
    process: SimulatedProcess,
    starts: number,
    onLeft: () => void,
  ) {
    const { name, cores, server, time, random, maxPayload, executions } = options
    this.#options = options
    this.#process = process
    this.#start = random.integer(1, 2 ** 40)
    this.#runs = new AgentRuns(name)
    this.#shares = new AgentShares(this.#facts, () => (this.#part === null ? [] : [this.#part]))
    this.#onLeft = onLeft
    const nodeName = `${name}/${starts}`
    this.backend = new SimulatedBackend({ name: nodeName, cores, process, executions })
    const own = { server, time, random: random.fork(), process, maxPayload }
    this.connection = new SimulatedConnection(own)
    this.connection.subscribe('discover', () => this.#announce())
    this.connection.subscribe(`agent.${name}`, (message) =>
      this.#answer(contentOf(message.data) as AgentRequest, (answer) =>
        message.respond(toParcel(answer)),
      ),
    )
    this.connection.onConnection((isUp) => {
      this.#part?.tell({ kind: 'link', isUp })
      if (isUp) this.#announce()
    })
    this.#tick()
  }

  get #facts() {
    return { cores: this.#options.cores, gpus: 0, memoryMb: 1000, labels: {} }
  }

  #announce(): void {
    const announcement: Announcement = {
      kind: 'announcement',
      name: this.#options.name,
      start: this.#start,
      host: '',
      pid: 0,
      version: '',
      state: this.#state,
      facts: this.#facts,
      sessions: 0,
      refusedMessages: 0,
      only: null,
      allow: null,
    }
    this.connection.publish('agents', toParcel(announcement))
  }

  #tick(): void {
    if (this.#state === 'gone') return
    this.#process.clock.after(tickMs, () => this.#tick())
    this.#part?.tell({ kind: 'tick' })
    this.#feed()
    if (this.#ticks++ % announceEveryTicks === 0) this.#announce()
  }

  #answer(request: AgentRequest, respond: (answer: unknown) => void): void {
    if (this.#state === 'gone') return
    const nowMs = this.#process.clock.monotonicMs()
    if (request.kind === 'ping') {
      respond({ kind: 'pong', start: this.#start, receivedMs: nowMs, sentMs: nowMs })
    } else if (request.kind === 'challenge') {
      respond({ kind: 'challenged', nonce: ++this.#nonce, ...this.#runs.describe(use) })
    } else if (request.kind === 'attach') {
      // The real shell refuses a request that was repeated by its nonce.
      if (this.#links.has(request.link)) return
      this.#links.add(request.link)
      this.#attach(request, respond)
    } else {
      const part = this.#part
      const what = this.#runs.detach(request, part ?? undefined)
      const answer = { kind: 'detached', isSuperseded: what === 'superseded' }
      if (what === 'ends' && part !== null) part.end(request.reason, false, () => respond(answer))
      else respond(answer)
    }
  }

  #attach(attach: Attach, respond: (answer: Attached) => void): void {
    const part = this.#part
    const admission = this.#runs.admit(attach, part ?? undefined, this.#state === 'draining')
    if (admission.kind === 'refuse') return respond(admission.answer)
    if (admission.kind === 'begin') {
      this.#part = this.#createPart(attach)
      return this.#part.attach(attach, respond)
    }
    if (part === null) throw new Error('the agent has no part')
    if (admission.kind === 'continue') return part.attach(attach, respond)
    if (admission.kind !== 'wait') part.tell({ kind: 'drop' })
    part.end('its session was closed', true, () => this.#attach(attach, respond))
  }

  #createPart(attach: Attach): MachinePart {
    const { name, random, trace } = this.#options
    const part: MachinePart = new MachinePart({
      attach,
      self: { name, start: this.#start },
      use: random.integer(1, 2 ** 40),
      connection: this.connection,
      process: this.#process,
      backend: this.backend,
      offer: (nowMs) => (this.#state === 'draining' ? noOffer : this.#shares.offer(part, nowMs)),
      onArrival: () =>
        this.#shares.isIdle && !this.#isFeedScheduled ? this.#feed() : this.#feedLater(),
      onChange: () => this.#feedLater(),
      onEnded: () => {
        if (this.#part === part) this.#part = null
        this.#runs.close(use)
        this.#leaveWhenIdle()
      },
      trace: (text) => trace(`${name}: ${text}`),
    })
    return part
  }

  #feedLater(): void {
    if (this.#isFeedScheduled || !(this.#state === 'draining' || this.#shares.hasWaiting)) return
    this.#isFeedScheduled = true
    this.#process.clock.nextTurn(() => {
      this.#isFeedScheduled = false
      this.#feed()
    })
  }

  #feed(): void {
    const nowMs = this.#process.clock.monotonicMs()
    this.#shares.feed((part, maxCores) => part.tell({ kind: 'begin', maxCores }), nowMs)
    this.#leaveWhenIdle()
  }

  drain(): void {
    if (this.#state !== 'ready') return
    this.#state = 'draining'
    this.#part?.tell({ kind: 'drain' })
    this.#announce()
    this.#leaveWhenIdle()
  }

  #leaveWhenIdle(): void {
    if (this.#state !== 'draining' || !this.#shares.isEmpty) return
    if (this.#part !== null) {
      this.#part.tell({ kind: 'limit-wait' })
      return this.#part.end('agent closed', true, () => this.#leaveWhenIdle())
    }
    this.#state = 'gone'
    this.#announce()
    this.connection.close().catch(() => {})
    this.#onLeft()
  }
}

const noOffer = { cores: 0, gpus: 0, memoryMb: 0, ahead: 0 }
