/**
 * The worker's side of the pool: runs the jobs of its batches in order and sends their outcomes.
 */

import { isThenable } from '../../../foundation/promises.ts'
import { RunningTask, runInTask, type TaskHost } from '../../../foundation/task-context.ts'
import { findDefined, type TaskDefinition } from '../../../tasks/define-task.ts'
import { expectNoFakeBuiltIn, uncloneablePath } from './cloning.ts'
import {
  type ErrorRecord,
  fromErrorRecord,
  toErrorRecord,
} from '../../../foundation/error-record.ts'
import { toJsonValue } from '../../../foundation/json-value.ts'
import { gpuVariables } from '../gpu-variables.ts'
import { machineMs } from '../machine-time.ts'
import { bankSize, busyPollMs, type Mailbox } from './mailbox.ts'
import { toUpdateRecord } from '../../task-updates.ts'
import type { AbortMessage, BatchMessage, FailureKind, WorkerMessage } from './protocol.ts'

/** A worker's connection to its pool. */
export interface PoolLink {
  /** Throws if the message cannot be cloned. */
  post(message: WorkerMessage): void
  onImport(slot: number): void
  /** Called just before the function, once the start time is in the mailbox. */
  onStart(slot: number): void
  /** Called when the job has ended. Its result is in the mailbox or follows as a message. */
  onEnd(slot: number): void
  /**
   * Returns a batch that has arrived, but was not delivered as an event yet. Always `null` in a
   * process.
   */
  pollBatch(): BatchMessage | null
  exit(): void
}

type TaskFunction = (...args: unknown[]) => unknown

/** How long results may stay in the mailbox before a message announces them. */
const maxUnreportedMs = 1
/**
 * The number of polls between two readings of the clock. One reading takes longer than one poll.
 */
const pollsPerClockRead = 20

export class JobRunner {
  readonly #mailbox: Mailbox
  readonly #link: PoolLink
  readonly #definitions: TaskDefinition[] = []
  readonly #functions = new Map<number, TaskFunction>()
  readonly #waiting: BatchMessage[] = []
  readonly #inheritedGpus = gpuVariables().map((name) => [name, process.env[name]] as const)
  #hasSetGpus = false
  #isBusy = false
  #isShuttingDown = false
  #running: WorkerTask | null = null
  readonly #host: TaskHost<WorkerTask>
  #notifiedAt = 0
  #takenBatches = 0
  #idleSince = 0
  #shouldBusyPoll = false

  constructor(mailbox: Mailbox, link: PoolLink) {
    this.#mailbox = mailbox
    this.#link = link
    this.#host = {
      update(task, update) {
        const record = toUpdateRecord(update)
        task.hasPosted = true
        link.post({ kind: 'update', slot: task.slot, update: record })
      },
      listens: ({ slot }) => link.post({ kind: 'listens', slot }),
    }
  }

  get runningUid(): string | null {
    return this.#running?.uid ?? null
  }

  abort({ abort: slot, reason }: AbortMessage): void {
    if (this.#running?.slot === slot) this.#running.abort(fromErrorRecord(reason))
  }

  addBatch(batch: BatchMessage): void {
    this.#waiting.push(batch)
    if (this.#isBusy) return
    this.#shouldBusyPoll = machineMs() - this.#idleSince < busyPollMs
    void this.#runBatches()
  }

  shutDown(): void {
    this.#isShuttingDown = true
    if (!this.#isBusy) this.#link.exit()
  }

  async #runBatches(): Promise<void> {
    this.#isBusy = true
    for (let batch = this.#nextBatch(); batch !== null; batch = this.#nextBatch()) {
      this.#takenBatches++
      // Under backlog, the runner does not poll, because the next batch follows anyway and the pool
      // needs the core.
      if (batch.jobs.length > 3) this.#shouldBusyPoll = false
      this.#definitions.push(...batch.definitions)
      this.#setGpuVariables(batch.gpus)
      await this.#runBatch(batch)
      if (this.#isShuttingDown) return this.#link.exit()
    }
    this.#idleSince = machineMs()
    this.#isBusy = false
  }

  /** Polls briefly, because waking a thread takes longer than most round trips. */
  #nextBatch(): BatchMessage | null {
    const waiting = this.#waiting.shift()
    if (waiting !== undefined) return waiting
    if (!this.#shouldBusyPoll) return null
    const until = machineMs() + busyPollMs
    do {
      for (let poll = 0; poll < pollsPerClockRead; poll++) {
        if (this.#mailbox.announcedBatches > this.#takenBatches) return this.#link.pollBatch()
      }
    } while (machineMs() < until)
    return null
  }

  async #runBatch({ bank, attempts, jobs }: BatchMessage): Promise<void> {
    const mailbox = this.#mailbox
    const count = jobs.length / 3
    let announced = 0
    let at = machineMs()
    this.#notifiedAt = at
    mailbox.discardTexts()
    for (let index = 0; index < count && !this.#isShuttingDown; index++) {
      const slot = bank * bankSize + index
      const definition = jobs[index * 3] as number
      const run = this.#functions.get(definition)
      mailbox.starts[slot] = run === undefined ? Number.NaN : at
      let isSilent = true
      if (mailbox.claim(slot)) {
        const uid = jobs[index * 3 + 1] as string
        const args = jobs[index * 3 + 2] as unknown[]
        const task = new WorkerTask(uid, attempts?.[index] ?? 1, this.#host, slot)
        this.#running = task
        const ran =
          run === undefined ? this.#import(definition, task, args) : this.#call(run, task, args)
        const end = 'then' in ran ? await ran : ran
        at = machineMs()
        mailbox.ends[slot] = at
        task.close()
        // If the task's code has sent a message, the result must be sent as a message too, to keep
        // the order.
        isSilent = !task.hasPosted && 'value' in end && mailbox.write(slot, end.value)
        if (!isSilent) mailbox.markAsMessage(slot)
        mailbox.setFinishedCount(bank, index + 1)
        this.#link.onEnd(slot)
        if (!isSilent) this.#postEnd(slot, end)
      } else {
        mailbox.setFinishedCount(bank, index + 1)
      }
      if (!isSilent || at - this.#notifiedAt > maxUnreportedMs) {
        if (isSilent) this.#link.post({ kind: 'passed' })
        this.#notifiedAt = at
        announced = index + 1
      }
    }
    if (announced < count && !mailbox.isPolled(bank)) this.#link.post({ kind: 'passed' })
  }

  /** Imports the job's module. The job's duration and time limit begin after the import. */
  async #import(
    definition: number,
    task: WorkerTask,
    args: readonly unknown[],
  ): Promise<JobOutcome> {
    const mailbox = this.#mailbox
    mailbox.importStart = machineMs()
    this.#link.onImport(task.slot)
    try {
      const run = await findFunction(this.#definitions[definition])
      this.#functions.set(definition, run)
      mailbox.starts[task.slot] = machineMs()
      mailbox.importStart = 0
      return await this.#call(run, task, args)
    } catch (error) {
      mailbox.importStart = 0
      return this.#failed('import', error)
    }
  }

  /** Only promises are awaited, because every `await` costs a turn of the microtask queue. */
  #call(
    run: TaskFunction,
    task: WorkerTask,
    args: readonly unknown[],
  ): JobOutcome | Promise<JobOutcome> {
    this.#link.onStart(task.slot)
    try {
      const returned = runInTask(task, () => run(...args))
      return isAwaitable(returned) ? this.#settle(returned) : this.#returned(returned)
    } catch (error) {
      return this.#failed('thrown', error)
    }
  }

  /** Uses `await`, which ignores a `then` that user code has added to the promise. */
  async #settle(returned: PromiseLike<unknown>): Promise<JobOutcome> {
    try {
      return this.#returned(await returned)
    } catch (error) {
      return this.#failed('thrown', error)
    }
  }

  #returned(value: unknown): JobOutcome {
    this.#running = null
    return { value }
  }

  #failed(failure: FailureKind, error: unknown): JobOutcome {
    this.#running = null
    return { failure, error }
  }

  #postEnd(slot: number, end: JobOutcome): void {
    if ('failure' in end) return this.#postFailure(slot, end.failure, end.error)
    try {
      expectNoFakeBuiltIn(end.value)
      this.#link.post({ kind: 'value', slot, value: end.value })
    } catch (error) {
      this.#postFailure(slot, 'result', error, uncloneablePath(end.value, 'return_value'))
    }
  }

  #postFailure(slot: number, failure: FailureKind, error: unknown, field?: string): void {
    const record = toErrorRecord(error)
    const message = { kind: 'failure', slot, failure, error: record } as const
    const fullMessage = field === undefined ? message : { ...message, field }
    try {
      this.#link.post(fullMessage)
    } catch {
      // The thrown value can be cloned, but not serialized for another process, so it is sent as
      // JSON.
      this.#link.post({ ...fullMessage, error: toJsonValue(record) as unknown as ErrorRecord })
    }
  }

  #setGpuVariables(gpus: string | null): void {
    // `process.env` is slow, so it is set only if this or the previous job has GPUs.
    if (gpus === null && !this.#hasSetGpus) return
    this.#hasSetGpus = gpus !== null
    for (const [name, inherited] of this.#inheritedGpus) {
      const visible = gpus ?? inherited
      if (visible === undefined) Reflect.deleteProperty(process.env, name)
      else process.env[name] = visible
    }
  }
}

class WorkerTask extends RunningTask {
  readonly slot: number
  hasPosted = false

  constructor(uid: string, attempt: number, host: TaskHost<WorkerTask>, slot: number) {
    super(uid, attempt, host)
    this.slot = slot
  }
}

type JobOutcome =
  | { readonly value: unknown }
  | { readonly failure: FailureKind; readonly error: unknown }

/** Returns `false` for a result whose properties throw; cloning rejects it later. */
function isAwaitable(returned: unknown): returned is PromiseLike<unknown> {
  try {
    return isThenable(returned) || returned instanceof Promise
  } catch {
    return false
  }
}

async function findFunction(definition: TaskDefinition | undefined): Promise<TaskFunction> {
  if (definition === undefined) throw new Error('the definition did not arrive')
  await import(definition.module)
  const found = findDefined(definition) as TaskFunction | undefined
  if (found !== undefined) return found
  throw new Error(`the module was imported, but it did not define "${definition.name}"`)
}
