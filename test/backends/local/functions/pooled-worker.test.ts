import { describe, expect, it } from 'vitest'
import type { Job, TaskReport } from '../../../../src/backends/backend.ts'
import type { ExecutorListener } from '../../../../src/backends/local/executor.ts'
import { Assignment } from '../../../../src/backends/local/functions/assignments.ts'
import { JobDurations } from '../../../../src/backends/local/functions/batch-size.ts'
import { bankSize, Mailbox } from '../../../../src/backends/local/functions/mailbox.ts'
import { PooledWorker } from '../../../../src/backends/local/functions/pooled-worker.ts'
import type { WorkerLinkListener } from '../../../../src/backends/local/functions/protocol.ts'
import { machineMs } from '../../../../src/backends/local/machine-time.ts'
import { ManualClock } from '../../../../src/testing/manual-clock.ts'
import { echo } from './fixtures/functions.ts'
import { toJob } from './pool-driver.ts'

/** Its worker acts between two steps of the pool, at the moment that a test chooses. */
class SteppedMailbox extends Mailbox {
  onRevoke: (slot: number) => void = () => {}
  onPassed: () => void = () => {}

  override finishedCount(bank: number): number {
    this.onPassed()
    return super.finishedCount(bank)
  }

  override revoke(slot: number): boolean {
    this.onRevoke(slot)
    return super.revoke(slot)
  }
}

/** A worker that the test controls: it starts the next job exactly when the test says so. */
class PlayedWorker {
  readonly mailbox = new SteppedMailbox()
  readonly clock = new ManualClock()
  readonly durations = new JobDurations()
  readonly reports = new Map<Job, TaskReport[]>()
  readonly givenBack: Job[] = []
  readonly told: unknown[] = []
  readonly worker: PooledWorker
  isKilled = false
  #link: WorkerLinkListener | undefined
  readonly #listener: ExecutorListener = {
    report: (job, report) => {
      this.reports.set(job, [...(this.reports.get(job) ?? []), report])
    },
    resultDropped: () => {},
    notice: (notice, job) => void this.told.push([job?.uid, notice]),
    requeue: (jobs) => void this.givenBack.push(...jobs),
    finish: () => {},
  }

  constructor() {
    this.worker = new PooledWorker(
      'n/w1',
      {
        clock: this.clock,
        durations: this.durations,
        nodeId: 'n',
        listener: this.#listener,
        importTimeoutSeconds: 60,
        beginDeadlineMs: 10_000,
        unbegunCounts: new WeakMap(),
        abandoned: { count: 0 },
        onIgnoredMessage: () => {},
        connect: (_, link) => {
          this.#link = link
          return {
            mailbox: this.mailbox,
            post: () => {},
            abort: () => {},
            setBusy: () => {},
            kill: () => (this.isKilled = true),
          }
        },
      },
      { onReady: () => {}, onBegin: () => {}, onEnd: () => {}, onAdvance: () => {} },
    )
    this.#link?.message({ kind: 'ready' })
  }

  give(...jobs: Job[]): void {
    this.worker.assign(new Assignment({ jobs, gpuIds: [] }, this.#listener))
  }

  begin(slot: number, startedAt = machineMs()): void {
    this.mailbox.starts[slot] = startedAt
    expect(this.mailbox.claim(slot)).toBe(true)
  }

  end(slot: number, value: string): void {
    this.mailbox.ends[slot] = machineMs()
    this.mailbox.write(slot, value)
    this.mailbox.setFinishedCount(Math.floor(slot / bankSize), (slot % bankSize) + 1)
  }

  /** While the pool takes back what `next` holds, the worker ends `slot` and begins `next`. */
  moveOnDuringRevoke(slot: number, next: number): void {
    this.mailbox.onRevoke = (revoked) => {
      if (revoked !== next) return
      this.mailbox.onRevoke = () => {}
      this.end(slot, `value ${slot}`)
      this.begin(next)
    }
  }

  listen(slot: number): void {
    this.#link?.message({ kind: 'listens', slot })
  }

  tell(slot: number, fraction: number): void {
    const update = { kind: 'progress', fraction, text: null } as const
    this.#link?.message({ kind: 'update', slot, update })
  }

  /** As after an event of the job: the result comes as a message after that event. */
  passWithMessage(slot: number): void {
    this.mailbox.ends[slot] = machineMs()
    this.mailbox.markAsMessage(slot)
    this.mailbox.setFinishedCount(Math.floor(slot / bankSize), (slot % bankSize) + 1)
  }

  sendValue(slot: number, value: string): void {
    this.#link?.message({ kind: 'value', slot, value })
  }

  /** Ends the job, unless the worker was killed while it ran. */
  finish(slot: number): void {
    if (this.isKilled) return this.#link?.exit({ code: 1 })
    this.end(slot, `value ${slot}`)
    this.#link?.message({ kind: 'passed' })
  }

  endOf(job: Job): TaskReport | undefined {
    return this.reports.get(job)?.at(-1)
  }
}

describe('a worker that moves on to the next job while it is to be ended', () => {
  it('the cancel of a job never ends the next one', () => {
    const played = new PlayedWorker()
    const [job, next] = [toJob(echo, ['a']), toJob(echo, ['b'])]
    played.give(job, next)
    played.begin(0)
    played.moveOnDuringRevoke(0, 1)
    played.worker.cancel(job, 'of the first')
    played.finish(1)
    expect(played.endOf(next)).toMatchObject({ kind: 'complete', value: 'value 1' })
    expect(played.endOf(job)).toMatchObject({ kind: 'complete', value: 'value 0' })
    expect(played.isKilled).toBe(false)
  })

  it('the time-out of a job never ends the next one', () => {
    const played = new PlayedWorker()
    const [job, next] = [toJob(echo, ['a'], { timeoutSeconds: 1 }), toJob(echo, ['b'])]
    played.give(job, next)
    played.begin(0, machineMs() - 2000)
    played.moveOnDuringRevoke(0, 1)
    played.worker.poll()
    played.finish(1)
    expect(played.endOf(next)).toMatchObject({ kind: 'complete', value: 'value 1' })
    expect(played.endOf(job)).toMatchObject({ kind: 'complete', value: 'value 0' })
  })

  it('the end of the time to listen never ends a job of the next batch', async () => {
    const played = new PlayedWorker()
    const [job, next] = [toJob(echo, ['a']), toJob(echo, ['b'])]
    played.give(job)
    played.begin(0)
    played.worker.poll()
    played.listen(0)
    played.worker.cancel(job, 'of the first')
    played.give(next)
    played.moveOnDuringRevoke(0, bankSize)
    await played.clock.advance(1000)
    played.finish(bankSize)
    expect(played.endOf(next)).toMatchObject({ kind: 'complete', value: `value ${bankSize}` })
    expect(played.endOf(job)).toMatchObject({ kind: 'cancel', reason: 'of the first' })
  })

  it('a job that ended meanwhile costs no worker, and what waited behind it is given back', () => {
    const played = new PlayedWorker()
    const [job, next] = [toJob(echo, ['a']), toJob(echo, ['b'])]
    played.give(job, next)
    played.begin(0)
    played.mailbox.onRevoke = (slot) => slot === 1 && played.end(0, 'value 0')
    played.worker.cancel(job, 'of the first')
    expect(played.isKilled).toBe(false)
    expect(played.givenBack.map(({ uid }) => uid)).toEqual([next.uid])
    played.worker.poll()
    expect(played.endOf(job)).toMatchObject({ kind: 'complete', value: 'value 0' })
  })
})

describe('a batch behind the running one', () => {
  it('a worker that has begun short jobs accepts one further batch, and only one', () => {
    const played = new PlayedWorker()
    const accepts: boolean[] = []
    const note = (): unknown => accepts.push(played.worker.canPrefetch)
    const addDurations = (ms: number): void => {
      for (let count = 0; count < 200; count++) played.durations.add(ms)
    }
    addDurations(0.1)
    played.give(toJob(echo, ['a']))
    note()
    played.begin(0)
    played.worker.poll()
    note()
    addDurations(50)
    note()
    addDurations(0.1)
    note()
    played.give(toJob(echo, ['b']))
    note()
    expect(accepts).toEqual([false, true, false, true, false])
  })
})

describe('a worker that ends a job while its messages are taken', () => {
  it.for([1, 2, 3, 4, 5, 6, 7, 8, 9])(
    'a worker that ends a job while its messages are read loses no update: reading %i',
    (reading) => {
      const played = new PlayedWorker()
      const [job, next] = [toJob(echo, ['a']), toJob(echo, ['b'])]
      played.give(job, next)
      played.begin(0)
      let readings = 0
      const moveOn = (): void => {
        played.mailbox.onPassed = () => {}
        played.passWithMessage(0)
        played.begin(1)
      }
      played.mailbox.onPassed = () => ++readings === reading && moveOn()
      const fractions = [0.1, 0.2, 0.3]
      for (const fraction of fractions) played.tell(0, fraction)
      if (readings < reading) moveOn()
      played.sendValue(0, 'value 0')
      const told = fractions.map((fraction) => [job.uid, { fields: { fraction } }])
      expect(played.told).toMatchObject(told)
      expect(played.reports.get(job)?.map(({ kind }) => kind)).toEqual(['start', 'complete'])
    },
  )
})
