import { describe, expect, it } from 'vitest'
import type {
  Backend,
  BackendListener,
  ConnectedSession,
  Connection,
  Job,
} from '../../src/backends/backend.ts'
import { TimeoutError } from '../../src/foundation/errors.ts'
import { currentTask, runInTask } from '../../src/foundation/task-context.ts'
import { ComputeTask } from '../../src/tasks/compute-task.ts'
import { backendContract, type ContractTasks } from '../../src/testing/backend-contract.ts'

const tasks: ContractTasks = {
  quick: () => new ComputeTask({ function: () => 42 }),
  failing: () => new ComputeTask({ executable: 'fails' }),
  endless: (options = {}) => new ComputeTask({ executable: 'endless', ...options }),
  ownUid: () => new ComputeTask({ function: () => currentTask()?.uid }),
}

const slots = 4

/** A correct backend of a few lines; subclasses add the faults. */
class SmallBackend implements Backend {
  readonly name = 'small'
  protected readonly running = new Map<Job, BackendListener>()
  protected waiting: [Job, BackendListener][] = []
  protected closing: Promise<void> | null = null
  protected session: ConnectedSession | undefined

  refuse(): null {
    return null
  }

  connect(listener: BackendListener, session?: ConnectedSession): Connection {
    this.session = session
    return {
      submit: (jobs) => {
        for (const job of jobs) this.accept(job, listener)
        setImmediate(() => this.pump())
      },
      cancel: (job, reason) => this.stop(job, reason),
      recorded() {},
      release: async (reason) => this.stopAll(reason, listener),
    }
  }

  close(): Promise<void> {
    this.closing ??= Promise.resolve(this.stopAll('backend closed'))
    return this.closing
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }

  protected accept(job: Job, listener: BackendListener): void {
    if (this.closing === null) this.waiting.push([job, listener])
    else listener.report(job, { kind: 'cancel', reason: 'backend closed' })
  }

  protected pump(): void {
    for (; this.running.size < slots;) {
      const next = this.waiting.shift()
      if (next === undefined) return
      this.begin(...next)
    }
  }

  protected begin(job: Job, listener: BackendListener): void {
    this.running.set(job, listener)
    listener.report(job, { kind: 'start', workerId: 'w', nodeId: 'n' })
    const { spec } = job
    if (spec.executable !== 'endless') this.end(job)
    else if (spec.timeoutSeconds !== null) {
      setImmediate(() => this.fail(job, new TimeoutError('too long')))
    }
  }

  protected end(job: Job): void {
    if (job.spec.kind === 'program') return this.fail(job, new RangeError('on purpose'))
    this.take(job)?.report(job, { kind: 'complete', value: this.run(job) })
  }

  protected run(job: Job): unknown {
    return runInTask(job.uid, () => this.session?.closureOf(job)?.())
  }

  protected fail(job: Job, error: unknown): void {
    this.take(job)?.report(job, { kind: 'fail', error })
  }

  protected stop(job: Job, reason: string): void {
    this.take(job)?.report(job, { kind: 'cancel', reason })
  }

  protected stopAll(reason: string, only?: BackendListener): void {
    const all = [...this.running, ...this.waiting]
    for (const [job, listener] of all) {
      if (only === undefined || only === listener) this.stop(job, reason)
    }
  }

  protected take(job: Job): BackendListener | undefined {
    const listener = this.running.get(job) ?? this.waiting.find(([one]) => one === job)?.[1]
    this.running.delete(job)
    this.waiting = this.waiting.filter(([one]) => one !== job)
    setImmediate(() => this.pump())
    return listener
  }
}

/** The cases that a backend fails: by an error, or by standing still. */
async function brokenCases(create: () => Backend): Promise<string[]> {
  const broken: string[] = []
  const cases: [string, () => Promise<void>][] = []
  backendContract((name, body) => cases.push([name, body]), create, { tasks, flood: 12 })
  expect(cases.length).toBeGreaterThanOrEqual(10)
  for (const [name, body] of cases) {
    const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve))
    const idle = async (): Promise<void> => {
      for (let at = 0; at < 3000; at++) await turn()
      throw new Error('stands still')
    }
    await Promise.race([body(), idle()]).catch(() => broken.push(name))
  }
  return broken
}

const flaws: Readonly<Record<string, [new () => Backend, string[]]>> = {
  'reports an end twice': [
    class extends SmallBackend {
      protected override end(job: Job): void {
        const listener = this.running.get(job)
        super.end(job)
        setImmediate(() => listener?.report(job, { kind: 'complete', value: 42 }))
      }
    },
    ['runs a task and reports its end once', 'ends each of many tasks exactly once'],
  ],
  'reports a start twice': [
    class extends SmallBackend {
      protected override begin(job: Job, listener: BackendListener): void {
        listener.report(job, { kind: 'start', workerId: 'w', nodeId: 'n' })
        super.begin(job, listener)
      }
    },
    ['runs a task and reports its end once', 'ends a running task that is canceled'],
  ],
  'never reports': [
    class extends SmallBackend {
      protected override end(): void {}
    },
    ['runs a task and reports its end once', 'reports a failure with the original error'],
  ],
  'loses one of many': [
    class extends SmallBackend {
      #count = 0
      protected override accept(job: Job, listener: BackendListener): void {
        this.#count++
        if (this.#count !== 300) super.accept(job, listener)
      }
    },
    ['ends each of many tasks exactly once'],
  ],
  'ignores cancels': [
    class extends SmallBackend {
      override connect(listener: BackendListener, session?: ConnectedSession): Connection {
        return { ...super.connect(listener, session), cancel() {} }
      }
    },
    ['ends a running task that is canceled', 'never begins a task that is canceled while it waits'],
  ],
  'reports again what was recorded': [
    class extends SmallBackend {
      override connect(listener: BackendListener, session?: ConnectedSession): Connection {
        const recorded = (jobs: readonly Job[]): void => {
          for (const job of jobs) listener.report(job, { kind: 'cancel', reason: 'forgotten' })
        }
        return { ...super.connect(listener, session), recorded }
      }
    },
    ['accepts that ends are recorded, in batches, and continues'],
  ],
  'begins what was canceled': [
    class extends SmallBackend {
      protected override stop(job: Job, reason: string): void {
        const isWaiting = this.waiting.some(([one]) => one === job)
        const listener = this.take(job)
        if (isWaiting) listener?.report(job, { kind: 'start', workerId: 'w', nodeId: 'n' })
        listener?.report(job, { kind: 'cancel', reason })
      }
    },
    ['never begins a task that is canceled while it waits'],
  ],
  'throws the error away': [
    class extends SmallBackend {
      protected override fail(job: Job, error: unknown): void {
        super.fail(job, String(error))
      }
    },
    ['reports a failure with the original error', 'fails a task that runs longer than its limit'],
  ],
  'runs code outside its task': [
    class extends SmallBackend {
      protected override run(job: Job): unknown {
        return this.session?.closureOf(job)?.()
      }
    },
    ['runs code inside its task'],
  ],
  'has no time limits': [
    class extends SmallBackend {
      protected override fail(job: Job, error: unknown): void {
        if (!(error instanceof TimeoutError)) super.fail(job, error)
      }
    },
    ['fails a task that runs longer than its limit'],
  ],
  'releases everybody at once': [
    class extends SmallBackend {
      protected override stopAll(reason: string): void {
        super.stopAll(reason)
      }
    },
    ['leaves other clients alone when one is released'],
  ],
  'forgets what it runs when it closes': [
    class extends SmallBackend {
      override close(): Promise<void> {
        this.running.clear()
        return super.close()
      }
    },
    ['cancels everything when it is closed, and says so'],
  ],
  'closes anew each time': [
    class extends SmallBackend {
      override async close(): Promise<void> {
        await super.close()
      }
    },
    ['cancels what comes after it was closed'],
  ],
  'runs what comes after it was closed': [
    class extends SmallBackend {
      protected override accept(job: Job, listener: BackendListener): void {
        this.waiting.push([job, listener])
      }
    },
    ['cancels what comes after it was closed'],
  ],
}

describe('the contract suite', () => {
  it('the contract suite passes a sound backend', async () => {
    expect(await brokenCases(() => new SmallBackend())).toEqual([])
  })

  it.each(Object.entries(flaws))(
    'the contract suite fails a backend that %s',
    async (_, [Flawed, expected]) => {
      const broken = await brokenCases(() => new Flawed())
      expect(broken).toEqual(expect.arrayContaining(expected))
    },
  )

  it('the contract suite leaves out skipped cases, and rejects unknown names', () => {
    const names: string[] = []
    const collect = (name: string): number => names.push(name)
    backendContract(collect, () => new SmallBackend())
    const [first = ''] = names.splice(0)
    backendContract(collect, () => new SmallBackend(), { skip: { [first]: 'for a reason' } })
    expect(names).not.toContain(first)
    const wrong = { skip: { 'does magic': 'no' } }
    expect(() => backendContract(collect, () => new SmallBackend(), wrong)).toThrow(
      'the contract has no case "does magic"',
    )
  })
})
