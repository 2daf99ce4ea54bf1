/** The machine of a session on an agent, and a driver and a node that do what a test says. */

import { encodeJobs } from '../../../src/cluster/wire/job-batches.ts'
import { decode } from '../../../src/cluster/wire/codec.ts'
import { AgentMachine } from '../../../src/cluster/protocol/agent/agent.ts'
import type {
  AgentInstruction,
  AgentStimulus,
} from '../../../src/cluster/protocol/agent/agent-stimuli.ts'
import type { HeldAttempt } from '../../../src/cluster/protocol/agent/held-attempts.ts'
import type {
  AgentReport,
  Attach,
  DriverMessage,
  Message,
  ResultsMessage,
} from '../../../src/cluster/wire/messages.ts'
import { unpackCompletions } from '../../../src/cluster/wire/completions.ts'
import { toErrorRecord } from '../../../src/foundation/error-record.ts'
import { jobOf } from '../../backends/local/fake-executor.ts'
import { runOf } from '../test-token.ts'

type Kind = AgentInstruction['kind']
type Instruction<K extends Kind> = Extract<AgentInstruction, { readonly kind: K }>
type Sent = Instruction<'send'> | Instruction<'append'>

export const use = 77

/** Says what happens, and keeps the instructions until they are taken. */
export class AgentUnderTest {
  readonly machine: AgentMachine
  nowMs = 1000
  /** Whether jobs that arrive can run, and jobs that go back are given back, at once. */
  isHelpful = true
  /** The kinds of all instructions. */
  readonly kinds: Kind[] = []
  driverStart = 0
  limitBytes = 100_000
  #link = 0
  #numbers = 0
  #beats = 0
  #instructions: AgentInstruction[] = []

  constructor() {
    this.machine = new AgentMachine(
      {
        sessionId: 'session/cluster',
        agent: { name: 'first', start: 5 },
        use,
        limitBytes: () => this.limitBytes,
        offer: () => ({ cores: 2, gpus: 0, memoryMb: 1, ahead: 2 }),
        toRecord: toErrorRecord,
      },
      this.nowMs,
    )
  }

  tell(stimulus: AgentStimulus): void {
    const now = { monotonicMs: this.nowMs, wallSeconds: this.nowMs / 1000 }
    const instructions = [...this.machine.advance(stimulus, now)]
    this.#instructions.push(...instructions)
    this.kinds.push(...instructions.map(({ kind }) => kind))
    if (!this.isHelpful) return
    for (const one of instructions) {
      if (one.kind === 'withdraw') this.tell({ kind: 'withdrawn', jobs: [] })
      if (one.kind === 'prepare') {
        const specs = one.jobs.map(({ spec }) => spec)
        this.tell({ kind: 'ready', jobs: one.jobs, specs })
      }
    }
  }

  /** Takes the instructions of a kind that were given since they were last taken. */
  take<K extends Kind>(kind: K): readonly Instruction<K>[] {
    const taken = this.#instructions.filter((one) => one.kind === kind)
    this.#instructions = this.#instructions.filter((one) => one.kind !== kind)
    return taken as Instruction<K>[]
  }

  /** Takes the messages to the driver and its stream, in their order. */
  takeSent(): readonly Sent[] {
    const isSent = ({ kind }: AgentInstruction): boolean => kind === 'send' || kind === 'append'
    const taken = this.#instructions.filter(isSent)
    this.#instructions = this.#instructions.filter((one) => !isSent(one))
    return taken as Sent[]
  }

  takeReports(): readonly AgentReport[] {
    return this.takeSent()
      .map(({ payload }) => decode(payload) as AgentReport)
      .filter(({ kind }) => kind === 'report')
  }

  /** The driver attaches, by default for the first time. */
  attach(changes: Partial<Attach> = {}): Message<'attached'> {
    const { driverStart = 10, link = this.#link + 1 } = changes
    this.driverStart = driverStart
    this.#link = link
    this.#numbers = 0
    this.tell({ kind: 'attach', attach: { ...firstAttach, ...changes, driverStart, link } })
    const [answered] = this.take('answer')
    if (answered?.answer.kind !== 'attached') throw new Error('the machine has not answered')
    return answered.answer
  }

  /** A message of the driver. `skipped` messages before it are lost. */
  receive(message: DriverMessage, { skipped = 0, acknowledged = 0 } = {}): void {
    this.#numbers += 1 + skipped
    const header = { scope: this.#link, number: this.#numbers, acknowledged }
    this.tell({ kind: 'message', header, message })
  }

  acknowledge(acknowledged: number): void {
    const header = { scope: this.#link, number: 0, acknowledged }
    const message = { kind: 'idle', isBroken: false } as const
    this.tell({ kind: 'idle', header, message })
  }

  beat(changes: Partial<Message<'beat'>> = {}): void {
    const beat = { hasWaiting: false, hasIdle: false, agents: 1, needsRoom: false, ...changes }
    const header = { scope: this.driverStart, number: ++this.#beats, acknowledged: 0 }
    this.tell({ kind: 'beat', header, beat: { kind: 'beat', ...beat } })
  }

  /** The driver sends jobs, by default first attempts. */
  send(uids: readonly string[], attempt = 1): void {
    const jobs = uids.map((uid, index) => ({ index, job: jobOf(uid), wireAttempt: attempt }))
    const { payloads } = encodeJobs(jobs, 1_000_000, (url) => url)
    for (const payload of payloads) this.receive(decode(payload) as Message<'jobs'>)
  }

  held(uid: string): HeldAttempt {
    const held = this.machine.held.get(uid)
    if (held === undefined) throw new Error(`the agent does not hold ${uid}`)
    return held
  }

  /** The driver sends jobs, and they begin. */
  run(...uids: readonly string[]): readonly HeldAttempt[] {
    this.send(uids)
    this.tell({ kind: 'begin', maxCores: uids.length })
    return uids.map((uid) => this.start(uid))
  }

  start(uid: string): HeldAttempt {
    const job = this.held(uid)
    this.tell({
      kind: 'report',
      job,
      report: { kind: 'start', workerId: 'first/1', nodeId: 'first' },
    })
    return job
  }

  end(job: HeldAttempt, value?: unknown): void {
    const facts = { workerId: 'first/1' }
    this.tell({ kind: 'report', job, report: { kind: 'complete', value, facts } })
  }

  /** Runs a task from the beginning to the end. */
  runToEnd(uid: string, value?: unknown): void {
    const [job] = this.run(uid)
    if (job !== undefined) this.end(job, value)
  }

  /** The time passes, with the machine's deadlines. */
  pass(ms: number): void {
    const untilMs = this.nowMs + ms
    for (;;) {
      const [next] = this.take('wake').toSorted((a, b) => a.afterMs - b.afterMs)
      if (next === undefined || this.nowMs + next.afterMs > untilMs) break
      this.nowMs += next.afterMs
      this.tell({ kind: 'wake' })
    }
    this.nowMs = untilMs
  }

  tick(): void {
    this.pass(500)
    this.tell({ kind: 'tick' })
  }

  /** The broker stores what it was given. Returns the numbers of the messages. */
  store(): readonly number[] {
    const appends = this.take('append')
    for (const { number, connection } of appends)
      this.tell({ kind: 'appended', number, connection })
    return appends.map(({ number }) => number)
  }
}

const firstAttach: Attach = {
  kind: 'attach',
  ...runOf('session'),
  nonce: 1,
  driverStart: 10,
  link: 1,
  applied: { link: 0, number: 0 },
  use: 0,
  taken: 0,
  ownerTtlSeconds: 60,
  resultTtlSeconds: 60,
  agentTimeoutSeconds: 60,
  folder: '/',
}

/** The uids of the results in a message. */
export function endedIn({ payload }: Pick<Sent, 'payload'>): readonly string[] {
  const { kind, completions, ends } = decode(payload) as ResultsMessage
  if (kind !== 'ends') return []
  return [...unpackCompletions(completions), ...ends].map(({ uid }) => uid)
}

/** Something that the test has caused. */
export function given<T>(value: T | undefined): T {
  if (value === undefined) throw new Error('there is none')
  return value
}
