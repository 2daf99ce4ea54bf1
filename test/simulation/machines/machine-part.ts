/** An agent's part in the session of a simulation: carries out what the agent's machine decides. */

import type { BackendListener, Job, TaskReport } from '../../../src/backends/backend.ts'
import { NoRoomError, StoreFullError } from '../../../src/cluster/broker/broker.ts'
import type { ObjectToStore } from '../../../src/cluster/broker/stored-objects.ts'
import { AgentMachine } from '../../../src/cluster/protocol/agent/agent.ts'
import type {
  AgentInstruction,
  AgentStimulus,
} from '../../../src/cluster/protocol/agent/agent-stimuli.ts'
import { HeldAttempt } from '../../../src/cluster/protocol/agent/held-attempts.ts'
import { decode } from '../../../src/cluster/wire/codec.ts'
import type { Header } from '../../../src/cluster/wire/envelope.ts'
import { decodeSpec, payloadLimit } from '../../../src/cluster/wire/job-batches.ts'
import type {
  Attach,
  Attached,
  DriverMessage,
  Heartbeat,
  Message,
  Offer,
} from '../../../src/cluster/wire/messages.ts'
import { toErrorRecord } from '../../../src/foundation/error-record.ts'
import { Fifo } from '../../../src/runtime/fifo.ts'
import type { SimulatedBackend } from '../simulated-backend.ts'
import type { SimulatedConnection } from '../simulated-connection.ts'
import type { SimulatedProcess } from '../virtual-time.ts'
import { contentOf, streamName, streamSubjects, toParcel } from './parcel.ts'

/** What a driver sends on an agent's subject. */
export interface SentMessage {
  readonly header: Header
  readonly message: DriverMessage | Message<'idle'>
}

const ownerTimeoutMs = 1000
const putDelayMs = 300
export const use = { sessionId: 'simulated', backend: 'cluster' }

interface PartOptions {
  readonly attach: Attach
  readonly self: { readonly name: string; readonly start: number }
  readonly use: number
  readonly connection: SimulatedConnection
  readonly process: SimulatedProcess
  readonly backend: SimulatedBackend
  readonly offer: (nowMs: number) => Offer
  readonly onArrival: () => void
  readonly onChange: () => void
  readonly onEnded: () => void
  readonly trace: (text: string) => void
}

/** The agent's part in the session. */
export class MachinePart implements BackendListener {
  readonly run: string
  readonly #options: PartOptions
  readonly #machine: AgentMachine
  readonly #local: ReturnType<SimulatedBackend['connect']>
  readonly #stimuli = new Fifo<AgentStimulus>()
  readonly #unsubscribe: (() => void)[]
  readonly #puts = new Set<number>()
  readonly #onEnd: (() => void)[] = []
  #attach: Attach
  #respond: (answer: Attached) => void = () => {}
  #isAdvancing = false
  #hasArrived = false
  #cancelWake: () => void = () => {}
  #isEnding = false

  constructor(options: PartOptions) {
    const { attach, self, use: id, connection, process, backend, offer } = options
    this.#options = options
    this.#attach = attach
    this.run = attach.run
    const machine = {
      sessionId: use.sessionId,
      agent: self,
      use: id,
      limitBytes: () => payloadLimit(connection.maxPayload),
      offer,
      toRecord: toErrorRecord,
    }
    this.#machine = new AgentMachine(machine, process.clock.monotonicMs())
    this.#local = backend.connect(this)
    this.#unsubscribe = [
      connection.subscribe(`down.${self.name}`, ({ data }) => {
        const { header, message } = contentOf(data) as SentMessage
        if (message.kind === 'idle') this.tell({ kind: 'idle', header, message })
        else this.tell({ kind: 'message', header, message })
      }),
      connection.subscribe('beat', ({ data }) => {
        const { header, beat, run } = contentOf(data) as {
          readonly header: Header
          readonly beat: Heartbeat
          readonly run: string
        }
        if (run === this.run) this.tell({ kind: 'beat', header, beat })
      }),
    ]
  }

  get held() {
    return this.#machine.held
  }

  get isActive(): boolean {
    return this.#machine.isActive
  }

  get agents(): number {
    return this.#machine.agents
  }

  get isEnding(): boolean {
    return this.#isEnding
  }

  attach(attach: Attach, respond: (answer: Attached) => void): void {
    this.#attach = attach
    this.#respond = respond
    this.tell({ kind: 'attach', attach })
  }

  end(reason: string, keepsResults: boolean, onEnd: () => void): void {
    this.#onEnd.push(onEnd)
    if (this.#isEnding) return
    this.#isEnding = true
    this.tell({ kind: 'end', reason, keepsResults })
  }

  report(job: Job, report: TaskReport): void {
    if (job instanceof HeldAttempt) this.tell({ kind: 'report', job, report })
  }

  notice(): void {}

  tell(stimulus: AgentStimulus): void {
    this.#stimuli.push(stimulus)
    if (this.#isAdvancing) return
    this.#isAdvancing = true
    const { clock } = this.#options.process
    for (let next = this.#stimuli.shift(); next !== undefined; next = this.#stimuli.shift()) {
      const now = { monotonicMs: clock.monotonicMs(), wallSeconds: clock.now() }
      for (const instruction of this.#machine.advance(next, now)) this.#carryOut(instruction)
    }
    this.#isAdvancing = false
    if (!this.#hasArrived) return
    this.#hasArrived = false
    this.#options.onArrival()
  }

  #carryOut(instruction: AgentInstruction): void {
    const { self, connection, process, trace } = this.#options
    switch (instruction.kind) {
      case 'changed':
        return this.#options.onChange()
      case 'submit':
        return this.#local.submit(instruction.jobs)
      case 'send': {
        const { header, payload } = instruction
        const parcel = toParcel({ header, payload: decode(payload) }, payload.length)
        return connection.publish(`up.${self.name}`, parcel)
      }
      case 'append':
        return this.#append(instruction)
      case 'wake': {
        this.#cancelWake()
        this.#cancelWake = process.clock.after(instruction.afterMs, () =>
          this.tell({ kind: 'wake' }),
        )
        return
      }
      case 'prepare': {
        const { jobs } = instruction
        return this.tell({ kind: 'ready', jobs, specs: jobs.map(({ spec }) => spec) })
      }
      case 'arrived':
        this.#hasArrived = true
        return
      case 'cancel':
        return this.#local.cancel(instruction.job, instruction.reason)
      case 'withdraw': {
        const jobs = this.#local.withdraw().filter((job) => job instanceof HeldAttempt)
        return this.tell({ kind: 'withdrawn', jobs })
      }
      case 'release':
        return this.#options.backend.release(this, instruction.reason, () =>
          this.tell({ kind: 'released' }),
        )
      case 'answer':
        return this.#respond(instruction.answer)
      case 'give-up':
        return this.end('the driver is gone', true, () => {})
      case 'done':
        return this.#finish()
      case 'throttled':
        return trace('the store refuses results')
      case 'refused-message':
        return trace(`refused a message: ${instruction.reason}`)
      default:
        return this.#useStore(instruction)
    }
  }

  #finish(): void {
    this.#cancelWake()
    this.#puts.clear()
    for (const unsubscribe of this.#unsubscribe) unsubscribe()
    this.#options.onEnded()
    for (const end of this.#onEnd.splice(0)) end()
  }

  get #server() {
    return this.#options.connection.server
  }

  #append({
    header,
    payload,
    number,
    connection: link,
  }: Extract<AgentInstruction, { readonly kind: 'append' }>): void {
    const { self, connection } = this.#options
    const subject = `ends.${self.name}`
    const parcel = toParcel({ header, payload: decode(payload), run: this.run }, payload.length)
    const deliver = (): void => {
      // As with NATS, subscribers get the message whether the stream takes it or not.
      for (const one of this.#server.connections) {
        one.deliver({ subject, data: parcel, respond() {} })
      }
      this.#server.append(subject, parcel)
    }
    const tell = (stimulus: AgentStimulus): void => this.tell(stimulus)
    connection.call(
      deliver,
      () => tell({ kind: 'appended', number, connection: link }),
      (error) => {
        const isFull = error instanceof NoRoomError
        tell({ kind: 'append-refused', number, connection: link, error, isFull })
      },
      5000,
    )
  }

  #useStore(instruction: AgentInstruction): void {
    const { connection, self } = this.#options
    const server = this.#server
    const fail = (): void => {}
    if (instruction.kind === 'load-spec') {
      const { request } = instruction
      const answer = (data: Uint8Array | null): void =>
        this.tell({ kind: 'spec', request, spec: data === null ? null : decodeSpec(data) })
      connection.call(
        () => this.#take(request.object),
        answer,
        () => answer(null),
      )
    } else if (instruction.kind === 'put') this.#put(instruction.id, instruction.object)
    else if (instruction.kind === 'cancel-put') this.#puts.delete(instruction.id)
    else if (instruction.kind === 'delete') {
      const { name } = instruction
      connection.call(() => server.deleteObject(streamName, `objects.${name}`), fail, fail)
    } else if (instruction.kind === 'open-stream') this.#openStream()
    else if (instruction.kind === 'make-room') {
      const mayRemove = (data: Uint8Array): boolean => {
        const { payload, run } = contentOf(data) as {
          readonly payload: Message<'ends'>
          readonly run: string
        }
        const isOwn = run === this.run && payload.use === this.#options.use
        return isOwn && this.#machine.isRecorded(payload.number)
      }
      const remove = () => server.removeFirst(streamName, `ends.${self.name}`, 1, mayRemove)
      const answer = (removed: number): void => this.tell({ kind: 'room', isMade: removed > 0 })
      connection.call(
        remove,
        ({ removed }) => answer(removed),
        () => answer(0),
      )
    }
  }

  #take(name: string): Uint8Array | null {
    const found = this.#server.getObject(streamName, `objects.${name}`)
    if (found !== null) this.#server.deleteObject(streamName, `objects.${name}`)
    return found?.data ?? null
  }

  #put(id: number, object: ObjectToStore): void {
    const { connection, process } = this.#options
    this.#puts.add(id)
    const { prefix: name, data } = object
    const again = (error: unknown): void => {
      const isFull = error instanceof StoreFullError
      this.tell({ kind: 'store-problem', error, isFull })
      process.clock.after(putDelayMs, () => {
        if (!this.#puts.has(id)) return
        this.#openStream()
        this.#put(id, object)
      })
    }
    const put = (): void => this.#server.putObject(`objects.${name}`, data)
    connection.call(put, () => this.tell({ kind: 'put', id, name }), again)
  }

  #openStream(): void {
    const { connection } = this.#options
    const server = this.#server
    const tell = (found: { readonly label: string; readonly created: string } | null): void =>
      this.tell({
        kind: 'stream',
        isOurs: found?.label === this.run,
        created: found?.created ?? null,
      })
    const unknown = (): void => this.tell({ kind: 'stream', isOurs: true, created: null })
    const create = (): void => {
      const open = () => {
        const maxAgeSeconds = this.#attach.resultTtlSeconds
        const settings = { subjects: streamSubjects, maxAgeSeconds, label: this.run }
        return server.openStream(streamName, settings)
      }
      this.#findDriver((hasDriver) =>
        hasDriver ? connection.call(open, tell, unknown) : tell(null),
      )
    }
    const found = (stream: { readonly label: string; readonly created: string } | null): void =>
      stream === null ? create() : tell(stream)
    connection.call(() => server.findStream(streamName), found, unknown)
  }

  /** Calls back with whether the session has a driver. A suspended driver counts. */
  #findDriver(then: (hasDriver: boolean) => void): void {
    const { connection } = this.#options
    const onAnswer = (): boolean => {
      then(true)
      return true
    }
    const onError = (error: unknown): void => then((error as Error).name !== 'NoResponderError')
    connection.ask('owner', toParcel(null), onAnswer, onError, ownerTimeoutMs)
  }
}
