/** One session on an agent: carries out what the session's machine decides. */

import {
  type BackendListener,
  type Job,
  type Notice,
  type TaskReport,
  toEventNotice,
} from '../../../backends/backend.ts'
import type { LocalConnection } from '../../../backends/local/concurrent-backend.ts'
import { BackendThrottled } from '../../../events/library-events.ts'
import type { Clock } from '../../../foundation/clock.ts'
import { mapErrorTexts, toErrorRecord } from '../../../foundation/error-record.ts'
import { messageOf } from '../../../foundation/errors.ts'
import { once } from '../../../foundation/service.ts'
import { Fifo } from '../../../runtime/fifo.ts'
import type { TaskSpec } from '../../../tasks/spec.ts'
import type { ProgramOutput } from '../../../tasks/task-record.ts'
import type { Broker, BrokerMessage } from '../../broker/broker.ts'
import type { UnpackedBundles } from '../../bundles/unpacked-bundles.ts'
import { AgentMachine } from '../../protocol/agent/agent.ts'
import type { SharingPart } from '../../protocol/agent/agent-shares.ts'
import type { AgentInstruction, AgentStimulus } from '../../protocol/agent/agent-stimuli.ts'
import { HeldAttempt } from '../../protocol/agent/held-attempts.ts'
import { type Keys, newScope, open, sealBytes } from '../../wire/envelope.ts'
import type { Handlers } from '../../wire/forms.ts'
import { payloadLimit } from '../../wire/job-batches.ts'
import {
  type AgentStart,
  type Attach,
  type Attached,
  expectMessage,
  type NotAllowed,
  type Offer,
} from '../../wire/messages.ts'
import {
  type SessionSubjects,
  sessionSubjects,
  type SessionUse,
  toSessionUseId,
} from '../../wire/subjects.ts'
import { JobPreparation } from './job-preparation.ts'
import { SessionStore } from './session-store.ts'
import { SessionFolder, type WorkFolder } from './work-folder.ts'

export interface AgentSessionOptions {
  /** The first `attach`, which names the session and its run. */
  readonly attach: Attach
  readonly self: AgentStart
  /** The keys of the run, and those of the cluster. */
  readonly keys: Keys
  readonly cluster: Keys
  readonly broker: Broker
  readonly clock: Clock
  /** The parent of temporary folders, for sessions whose working folder is not on this node. */
  readonly folder: WorkFolder
  readonly bundles: UnpackedBundles
  readonly connect: (listener: BackendListener) => LocalConnection
  readonly refuse: (spec: TaskSpec) => NotAllowed | null
  readonly offer: (session: AgentSession, nowMs: number) => Offer
  readonly on: AgentSessionListener
}

export interface AgentSessionListener {
  readonly arrival: () => void
  /** A job has been queued or resources have become free. */
  readonly change: () => void
  /** The driver is gone for good. */
  readonly abandoned: () => void
  readonly refusedMessage: (reason: string) => void
  /** The broker's store has begun to refuse results. */
  readonly storeProblem: (error: unknown) => void
  /** Called with an unexpected error. The session cannot continue after it. */
  readonly failed: (error: unknown) => void
  readonly droppedEvent: (why: string) => void
}

const driverMessageKinds = ['jobs', 'cancel', 'recall', 'recorded', 'restore', 'idle'] as const

export class AgentSession implements BackendListener, SharingPart {
  /** Identifies the session and the backend of its driver. */
  readonly id: string
  readonly use: SessionUse
  readonly run: string
  readonly #options: AgentSessionOptions
  readonly #use = newScope()
  readonly #subjects: SessionSubjects
  readonly #machine: AgentMachine
  readonly #connection: LocalConnection
  readonly #store: SessionStore
  readonly #folder: SessionFolder
  readonly #preparation: JobPreparation
  readonly #unsubscribe: (() => void)[]
  readonly #done = Promise.withResolvers<number>()
  /** What happens while instructions are carried out waits for its turn. */
  readonly #stimuli = new Fifo<AgentStimulus>()
  #isAdvancing = false
  #hasArrived = false
  #attach: Attach
  #respond: (answer: Attached) => void = () => {}
  #cancelWake: () => void = () => {}
  #undelivered = 0
  readonly #handlers: Handlers<AgentInstruction, []> = {
    changed: () => this.#options.on.change(),
    submit: ({ jobs }) => this.#connection.submit(jobs),
    send: ({ header, payload }) => {
      const { self, broker, keys } = this.#options
      const subject = this.#subjects.fromAgent(self.name)
      broker.publish(subject, sealBytes(keys.toDriver, subject, header, payload))
    },
    append: ({ header, payload, number, connection }) => {
      const { self, keys } = this.#options
      const subject = this.#subjects.agentResults(self.name)
      const data = sealBytes(keys.toDriver, subject, header, payload)
      this.#start(this.#store.append(subject, data, number, connection))
    },
    wake: ({ afterMs }) => this.#wakeAfter(afterMs),
    prepare: ({ jobs }) => this.#start(this.#preparation.prepare(jobs)),
    arrived: () => {
      this.#hasArrived = true
    },
    cancel: ({ job, reason }) => this.#connection.cancel(job, reason),
    withdraw: () => {
      const jobs = this.#connection.withdraw().filter((job) => job instanceof HeldAttempt)
      this.tell({ kind: 'withdrawn', jobs })
    },
    release: ({ reason }) => this.#release(reason),
    answer: ({ answer }) => this.#respond(answer),
    throttled: ({ error }) => this.#reportThrottling(error),
    'dropped-event': ({ why }) => this.#options.on.droppedEvent(why),
    'refused-message': ({ reason }) => this.#options.on.refusedMessage(reason),
    'give-up': () => this.#options.on.abandoned(),
    done: ({ undelivered }) => this.#done.resolve(undelivered),
    'load-spec': ({ request }) => this.#start(this.#store.loadSpec(request)),
    put: ({ id, object }) => this.#start(this.#store.put(id, object)),
    'cancel-put': ({ id }) => this.#store.cancelPut(id),
    delete: ({ name }) => this.#store.objects.delete(name),
    'open-stream': () => this.#start(this.#store.openStream()),
    'make-room': () => this.#start(this.#store.makeRoom()),
  }

  constructor(options: AgentSessionOptions) {
    const { attach, self, broker, clock, bundles, keys, offer } = options
    this.#options = options
    this.#attach = attach
    this.id = toSessionUseId(attach)
    this.use = attach
    this.run = attach.run
    this.#subjects = sessionSubjects(attach)
    this.#folder = new SessionFolder(options.folder, this.#subjects.stream, self.name)
    const tell = (stimulus: AgentStimulus): void => this.tell(stimulus)
    const machine = new AgentMachine(
      {
        sessionId: this.id,
        agent: self,
        use: this.#use,
        limitBytes: () => payloadLimit(broker.maxPayload),
        offer: (nowMs) => offer(this, nowMs),
        toRecord: (error) =>
          mapErrorTexts(toErrorRecord(error), (text) => bundles.restorePaths(text)),
      },
      clock.monotonicMs(),
    )
    this.#machine = machine
    this.#store = new SessionStore({
      ...options,
      agent: self.name,
      key: keys.toDriver,
      subjects: this.#subjects,
      attach: () => this.#attach,
      isRecorded: (use, number) => use === this.#use && machine.isRecorded(number),
      tell,
    })
    this.#preparation = new JobPreparation({
      ...options,
      sessionId: this.id,
      agent: self.name,
      folder: this.#folder,
      wantedFolder: () => this.#attach.folder,
      objects: this.#store.objects,
      tell,
    })
    this.#connection = options.connect(this)
    const { toAgent, heartbeat } = this.#subjects
    this.#unsubscribe = [
      broker.subscribe(toAgent(self.name), (message) => this.#receive(message)),
      broker.subscribe(heartbeat, (message) => this.#receiveBeat(message)),
    ]
  }

  get held(): AgentMachine['held'] {
    return this.#machine.held
  }

  get isActive(): boolean {
    return this.#machine.isActive
  }

  get agents(): number {
    return this.#machine.agents
  }

  /** Whether `end` has been called. A driver that attaches now gets a new `AgentSession`. */
  get isEnding(): boolean {
    return this.end.isCalled
  }

  /** The number of results that the stream lacks at the end. */
  get undelivered(): number {
    return this.#undelivered
  }

  /** Calls `respond` before messages are sent to the driver. */
  attach(attach: Attach, respond: (answer: Attached) => void): void {
    this.#attach = attach
    this.#respond = respond
    this.tell({ kind: 'attach', attach })
  }

  report(job: Job, report: TaskReport): void {
    if (!(job instanceof HeldAttempt)) return
    const named = this.#preparation.addNodeName(report, job.spec)
    this.tell({ kind: 'report', job, report: named })
  }

  notice(notice: Notice): void {
    if (notice.kind === 'event') this.tell({ kind: 'notice', notice })
  }

  async output(uid: string, attempt: number): Promise<ProgramOutput | null> {
    const held = this.held.get(uid)
    if (held?.attempt !== attempt) return null
    return (await this.#connection.output?.(held)) ?? null
  }

  /** Cancels all jobs. With `keepsResults`, waits until the stream has all results. */
  readonly end = once(async (reason: string, keepsResults: boolean): Promise<void> => {
    this.tell({ kind: 'end', reason, keepsResults })
    try {
      this.#undelivered = await this.#done.promise
    } finally {
      this.#cancelWake()
      for (const unsubscribe of this.#unsubscribe) unsubscribe()
      await this.#store.close()
      await Promise.all([this.#folder.remove(), this.#preparation.release()])
    }
  })

  #receive({ subject, data }: BrokerMessage): void {
    const { keys, on } = this.#options
    let header
    try {
      header = open(keys.toAgent, subject, data)
      const message = expectMessage(header.payload, ...driverMessageKinds)
      if (message.kind === 'idle') this.tell({ kind: 'idle', header, message })
      else this.tell({ kind: 'message', header, message })
    } catch (error) {
      on.refusedMessage(messageOf(error))
      if (header !== undefined) this.tell({ kind: 'message', header, message: null })
    }
  }

  #receiveBeat({ subject, data }: BrokerMessage): void {
    try {
      const header = open(this.#options.keys.toAgent, subject, data)
      this.tell({ kind: 'beat', header, beat: expectMessage(header.payload, 'beat') })
    } catch (error) {
      this.tell({ kind: 'unreadable-beat', reason: messageOf(error) })
    }
  }

  /** Tells the machine what has happened, and carries out what it decides. */
  tell(stimulus: AgentStimulus): void {
    if (this.#isAdvancing) return this.#stimuli.push(stimulus)
    this.#isAdvancing = true
    const { clock, on } = this.#options
    try {
      let next: AgentStimulus | undefined = stimulus
      for (; next !== undefined; next = this.#stimuli.shift()) {
        const now = { monotonicMs: clock.monotonicMs(), wallSeconds: clock.now() }
        for (const instruction of this.#machine.advance(next, now)) {
          const carryOut: (one: never) => void = this.#handlers[instruction.kind]
          carryOut(instruction as never)
        }
      }
    } catch (error) {
      on.failed(error)
    } finally {
      this.#isAdvancing = false
    }
    if (!this.#hasArrived) return
    this.#hasArrived = false
    on.arrival()
  }

  #wakeAfter(ms: number): void {
    const { clock } = this.#options
    this.#cancelWake()
    const wake = (): void => this.tell({ kind: 'wake' })
    if (ms > 0) this.#cancelWake = clock.after(ms, wake)
    else clock.nextTurn(wake)
  }

  #release(reason: string): void {
    const released = (): void => this.tell({ kind: 'released' })
    this.#connection.release(reason).then(released, (error: unknown) => this.#done.reject(error))
  }

  #reportThrottling(error: unknown): void {
    const reason = `the broker does not store results: ${messageOf(error)}`
    this.notice(toEventNotice(BackendThrottled, { reason, limit: 0 }))
    this.#options.on.storeProblem(error)
  }

  #start(work: Promise<unknown>): void {
    work.catch(this.#options.on.failed)
  }
}
