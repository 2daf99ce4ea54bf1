/** The worker's side: runs the jobs of its batches one after another and reports how they ended. */

import { isThenable } from '../../../foundation/promises.ts'
import { RunningTask, runInTask, type TaskHost } from '../../../foundation/task-context.ts'
import { findDefined, type TaskDefinition } from '../../../tasks/define-task.ts'
import { expectGenuine, uncloneablePath } from './cloning.ts'
import {
  type ErrorRecord,
  fromErrorRecord,
  toErrorRecord,
} from '../../../foundation/error-record.ts'
import { toJsonValue } from '../../../foundation/json-value.ts'
import { gpuVariables } from '../gpu-variables.ts'
import { machineMs } from '../machine-time.ts'
import { bankSize, briskMs, type Mailbox } from './mailbox.ts'
import { toUpdateRecord } from '../../task-updates.ts'
import type { AbortMessage, BatchMessage, FailureKind, WorkerMessage } from './protocol.ts'

/** How a worker reports to its pool. */
export interface Outlet {
  /** Throws if the message cannot be cloned. */
  post(message: WorkerMessage): void
  /** The job is claimed; its module is being imported. */
  importing(slot: number): void
  /** The function is about to be called; the mailbox holds the start time. */
  began(slot: number): void
  /** The job has ended. Its result is in the mailbox, unless it needs a message of its own. */
  ended(slot: number): void
  /** Returns a batch that has arrived but was not delivered yet; always `null` in a process. */
  poll(): BatchMessage | null
  exit(): void
}

type TaskFunction = (...args: unknown[]) => unknown

/** How long results may stay in the mailbox before the pool is notified. */
const maxSilenceMs = 1
/** How many polls are made per reading of the clock, which takes longer than a poll. */
const pollsPerClockRead = 20

export class JobRunner {
  readonly #mailbox: Mailbox
  readonly #outlet: Outlet
  readonly #definitions: TaskDefinition[] = []
  readonly #functions = new Map<number, TaskFunction>()
  readonly #waiting: BatchMessage[] = []
  readonly #inheritedGpus = gpuVariables().map((name) => [name, process.env[name]] as const)
  #hasShownGpus = false
  #isBusy = false
  #isDying = false
  #running: WorkerTask | null = null
  readonly #host: TaskHost<WorkerTask>
  #announcedAt = 0
  #taken = 0
  #idleSince = 0
  #isBrisk = false

  constructor(mailbox: Mailbox, outlet: Outlet) {
    this.#mailbox = mailbox
    this.#outlet = outlet
    this.#host = {
      update(task, update) {
        const record = toUpdateRecord(update)
        task.hasPosted = true
        outlet.post({ kind: 'update', slot: task.slot, update: record })
      },
      listens: ({ slot }) => outlet.post({ kind: 'listens', slot }),
    }
  }

  /** The uid of the job that runs now. */
  get running(): string | null {
    return this.#running?.uid ?? null
  }

  abort({ abort: slot, reason }: AbortMessage): void {
    if (this.#running?.slot === slot) this.#running.abort(fromErrorRecord(reason))
  }

  take(batch: BatchMessage): void {
    this.#waiting.push(batch)
    if (this.#isBusy) return
    this.#isBrisk = machineMs() - this.#idleSince < briskMs
    void this.#work()
  }

  /** Begins no further job, and exits when the current one has ended. */
  die(): void {
    this.#isDying = true
    if (!this.#isBusy) this.#outlet.exit()
  }

  async #work(): Promise<void> {
    this.#isBusy = true
    for (let batch = this.#next(); batch !== null; batch = this.#next()) {
      this.#taken++
      // No polling under backlog: the next batch follows anyway, and the pool needs the core.
      if (batch.jobs.length > 3) this.#isBrisk = false
      this.#definitions.push(...batch.definitions)
      this.#showGpus(batch.gpus)
      await this.#runBatch(batch)
      if (this.#isDying) return this.#outlet.exit()
    }
    this.#idleSince = machineMs()
    this.#isBusy = false
  }

  /** Polls briefly for the next batch: waking a thread takes longer than most round trips. */
  #next(): BatchMessage | null {
    const waiting = this.#waiting.shift()
    if (waiting !== undefined) return waiting
    if (!this.#isBrisk) return null
    const until = machineMs() + briskMs
    do {
      for (let poll = 0; poll < pollsPerClockRead; poll++) {
        if (this.#mailbox.rings > this.#taken) return this.#outlet.poll()
      }
    } while (machineMs() < until)
    return null
  }

  async #runBatch({ bank, attempts, jobs }: BatchMessage): Promise<void> {
    const mailbox = this.#mailbox
    const count = jobs.length / 3
    let announced = 0
    let at = machineMs()
    this.#announcedAt = at
    mailbox.rewind()
    for (let index = 0; index < count && !this.#isDying; index++) {
      const slot = bank * bankSize + index
      const definition = jobs[index * 3] as number
      const run = this.#functions.get(definition)
      mailbox.starts[slot] = run === undefined ? Number.NaN : at
      let isSilent = true
      if (mailbox.begin(slot)) {
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
        // After a message from the task's code, the end must be a message too, to keep the order.
        isSilent = !task.hasPosted && 'value' in end && mailbox.write(slot, end.value)
        if (!isSilent) mailbox.leaveToMessage(slot)
        mailbox.pass(bank, index + 1)
        this.#outlet.ended(slot)
        if (!isSilent) this.#postEnd(slot, end)
      } else {
        mailbox.pass(bank, index + 1)
      }
      if (!isSilent || at - this.#announcedAt > maxSilenceMs) {
        if (isSilent) this.#outlet.post({ kind: 'passed' })
        this.#announcedAt = at
        announced = index + 1
      }
    }
    if (announced < count && !mailbox.isWatched(bank)) this.#outlet.post({ kind: 'passed' })
  }

  /** The job's duration and time limit begin only when its module has been imported. */
  async #import(definition: number, task: WorkerTask, args: readonly unknown[]): Promise<End> {
    const mailbox = this.#mailbox
    mailbox.importingSince = machineMs()
    this.#outlet.importing(task.slot)
    try {
      const run = await findFunction(this.#definitions[definition])
      this.#functions.set(definition, run)
      mailbox.starts[task.slot] = machineMs()
      mailbox.importingSince = 0
      return await this.#call(run, task, args)
    } catch (error) {
      mailbox.importingSince = 0
      return this.#failed('import', error)
    }
  }

  /** Awaits promises only: an unneeded `await` costs a turn of the microtask queue. */
  #call(run: TaskFunction, task: WorkerTask, args: readonly unknown[]): End | Promise<End> {
    this.#outlet.began(task.slot)
    try {
      const returned = runInTask(task, () => run(...args))
      return isAwaitable(returned) ? this.#settle(returned) : this.#returned(returned)
    } catch (error) {
      return this.#failed('thrown', error)
    }
  }

  /** Uses `await`, which ignores a `then` that user code has put on a promise. */
  async #settle(returned: PromiseLike<unknown>): Promise<End> {
    try {
      return this.#returned(await returned)
    } catch (error) {
      return this.#failed('thrown', error)
    }
  }

  #returned(value: unknown): End {
    this.#running = null
    return { value }
  }

  #failed(failure: FailureKind, error: unknown): End {
    this.#running = null
    return { failure, error }
  }

  #postEnd(slot: number, end: End): void {
    if ('failure' in end) return this.#postFailure(slot, end.failure, end.error)
    try {
      expectGenuine(end.value)
      this.#outlet.post({ kind: 'value', slot, value: end.value })
    } catch (error) {
      this.#postFailure(slot, 'result', error, uncloneablePath(end.value, 'return_value'))
    }
  }

  #postFailure(slot: number, failure: FailureKind, error: unknown, field?: string): void {
    const record = toErrorRecord(error)
    const message = { kind: 'failure', slot, failure, error: record } as const
    const full = field === undefined ? message : { ...message, field }
    try {
      this.#outlet.post(full)
    } catch {
      // The thrown value can be cloned, but not serialized for another process.
      this.#outlet.post({ ...full, error: toJsonValue(record) as unknown as ErrorRecord })
    }
  }

  #showGpus(gpus: string | null): void {
    // Accessing `process.env` is slow, and most jobs neither use GPUs nor follow a job that did.
    if (gpus === null && !this.#hasShownGpus) return
    this.#hasShownGpus = gpus !== null
    for (const [name, inherited] of this.#inheritedGpus) {
      const visible = gpus ?? inherited
      if (visible === undefined) Reflect.deleteProperty(process.env, name)
      else process.env[name] = visible
    }
  }
}

/** One run of a job's function. */
class WorkerTask extends RunningTask {
  readonly slot: number
  /** Whether the job's code has sent an update. */
  hasPosted = false

  constructor(uid: string, attempt: number, host: TaskHost<WorkerTask>, slot: number) {
    super(uid, attempt, host)
    this.slot = slot
  }
}

type End = { readonly value: unknown } | { readonly failure: FailureKind; readonly error: unknown }

/** `false` for a result whose properties throw; it is rejected later, when it is cloned. */
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
