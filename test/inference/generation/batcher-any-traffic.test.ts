import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import type { BatchPolicy } from '../../../src/inference/generation/batch-policy.ts'
import type { BatchReport } from '../../../src/inference/generation/batch-run.ts'
import { Batcher } from '../../../src/inference/generation/batcher.ts'
import type {
  EngineCapacity,
  GenerationRequest,
} from '../../../src/inference/generation/inference-engine.ts'
import { ManualClock } from '../../../src/testing/manual-clock.ts'
import { TestClient } from './test-client.ts'
import { type Script, ScriptedWorker } from './scripted-worker.ts'
import { assertProperty } from '../../property.ts'

const engineTimeoutMs = 40

interface Arrival {
  readonly atMs: number
  readonly priority: number
  readonly timeoutMs: number | null
  readonly leaveAfterMs: number | null
  readonly script: Script
}

interface Traffic {
  readonly policy: BatchPolicy
  readonly capacities: readonly EngineCapacity[]
  readonly arrivals: readonly Arrival[]
  /** When which worker is lost; it comes back 7 ms later. */
  readonly losses: readonly { readonly atMs: number; readonly worker: number }[]
}

const script: fc.Arbitrary<Script> = fc.record({
  delayMs: fc.oneof(fc.constant(0), fc.nat(30)),
  outcome: fc.oneof(
    { weight: 8, arbitrary: fc.constant('done' as const) },
    { weight: 4, arbitrary: fc.constantFrom('fail', 'forget', 'poison', 'hang') },
  ),
  isEarly: fc.boolean(),
  abortLagMs: fc.constantFrom(0, 0, 3, 10),
  noise: fc.constantFrom('none', 'none', 'twice', 'stranger', 'late text'),
})

const traffic: fc.Arbitrary<Traffic> = fc.record({
  policy: fc.record({
    type: fc.constantFrom('adaptive', 'fixed'),
    maxBatchSize: fc.integer({ min: 1, max: 6 }),
    maxBatchWaitMs: fc.nat(20),
    isOn: fc.oneof({ weight: 4, arbitrary: fc.constant(true) }, fc.constant(false)),
  }),
  capacities: fc.array(
    fc.record({
      admits: fc.constantFrom('batch', 'step'),
      slots: fc.integer({ min: 1, max: 8 }),
    }),
    { minLength: 1, maxLength: 3 },
  ),
  arrivals: fc.array(
    fc.record({
      atMs: fc.oneof(fc.nat(60), fc.constantFrom(0, 10)),
      priority: fc.constantFrom(0, 0, 0, 1, -1),
      timeoutMs: fc.option(fc.integer({ min: 1, max: 60 }), { freq: 3 }),
      leaveAfterMs: fc.option(fc.nat(40), { freq: 3 }),
      script,
    }),
    { minLength: 1, maxLength: 30 },
  ),
  losses: fc.array(fc.record({ atMs: fc.nat(80), worker: fc.nat(2) }), { maxLength: 2 }),
})

const byTurn = (a: TestClient, b: TestClient): number =>
  b.priority - a.priority || orderOf(a) - orderOf(b)
const orderOf = ({ id }: TestClient): number => Number(id.slice(1))

/** Plays a traffic through a batcher and judges every moment of it. */
class Judge {
  readonly clock = new ManualClock()
  readonly reports: BatchReport[] = []
  readonly batcher: Batcher
  readonly askers: TestClient[] = []
  readonly workers = new Map<string, ScriptedWorker>()
  readonly #traffic: Traffic
  readonly #scripts = new Map<string, Script>()
  readonly violations: unknown[] = []
  calls = 0

  constructor(shown: Traffic) {
    this.#traffic = shown
    this.batcher = new Batcher({
      clock: this.clock,
      policy: shown.policy,
      queueLimit: 1000,
      onBatch: (report) => this.reports.push(report),
      engineTimeoutMs,
    })
    for (const [at] of shown.capacities.entries()) this.#seat(at)
  }

  async run(): Promise<void> {
    const { arrivals, losses } = this.#traffic
    for (let ms = 0; ms < 2000; ms++) {
      for (const arrival of arrivals) if (arrival.atMs === ms) this.#arrive(arrival)
      for (const { atMs, worker } of losses) if (atMs === ms) await this.#lose(worker)
      await this.#settle()
      this.#judgeMoment()
      if (ms > 100 && this.askers.every(({ ends }) => ends.length > 0)) return
      await this.clock.advance(1)
    }
  }

  /** Lets everything happen that needs no time: each batch may free a worker for the next. */
  async #settle(): Promise<void> {
    for (let before = -1; before !== this.calls;) {
      before = this.calls
      await this.clock.advance(0)
      await this.clock.advance(0)
    }
  }

  #arrive({ priority, timeoutMs, leaveAfterMs, script: played }: Arrival): void {
    const asker = new TestClient(this.clock, `r${this.askers.length}`, { priority, timeoutMs })
    this.askers.push(asker)
    this.#scripts.set(asker.id, played)
    asker.ask(this.batcher)
    if (leaveAfterMs === 0) asker.leave()
    else if (leaveAfterMs !== null) this.clock.after(leaveAfterMs, () => asker.leave())
  }

  async #lose(at: number): Promise<void> {
    const workerId = `w${at}`
    const worker = this.workers.get(workerId)
    if (worker === undefined) return
    this.workers.delete(workerId)
    const left = this.batcher.removeWorker(workerId)
    worker.lose()
    await left
    this.clock.after(7, () => this.#seat(at))
  }

  #seat(at: number): void {
    const capacity = this.#traffic.capacities[at]
    if (capacity === undefined) return
    const scriptOf = (id: string): Script => this.#scripts.get(id) as Script
    const worker = new ScriptedWorker(this.clock, `w${at}`, capacity, scriptOf, (...call) => {
      try {
        this.#judgeCall(...call)
      } catch (error) {
        // Thrown here, it would be an engine's failure.
        this.violations.push(error)
      }
    })
    this.workers.set(worker.workerId, worker)
    this.batcher.addWorker(worker)
  }

  #judgeCall({ capacity, held }: ScriptedWorker, requests: readonly GenerationRequest[]): void {
    this.calls++
    const { policy } = this.#traffic
    const free = capacity.slots - held.size
    expect(requests.length).toBeGreaterThan(0)
    expect(requests.length).toBeLessThanOrEqual(Math.min(policy.maxBatchSize, free))
    if (capacity.admits === 'batch') expect(held.size).toBe(0)
    if (!policy.isOn) expect(requests.length).toBe(1)
    const ids = new Set(requests.map(({ id }) => id))
    const taken = this.askers.filter(({ id }) => ids.has(id))
    expect(taken).toHaveLength(requests.length)
    for (const asker of taken) expect([asker.hasLeft, asker.outcome]).toEqual([false, 'open'])
    const last = taken.toSorted(byTurn).at(-1) as TestClient
    for (const other of this.#waiting()) {
      if (!ids.has(other.id)) expect(byTurn(last, other)).toBeLessThan(0)
    }
  }

  /** Nobody waits longer than allowed while a worker has room. */
  #judgeMoment(): void {
    const waiting = this.#waiting()
    expect(this.batcher.queued).toBe(waiting.length)
    const rooms = [...this.workers.values()].filter(({ hasRoom }) => hasRoom)
    if (rooms.length === 0 || waiting.length === 0) return
    const { type, isOn, maxBatchSize, maxBatchWaitMs } = this.#traffic.policy
    expect([type, isOn]).toEqual(['fixed', true])
    expect(waiting.length).toBeLessThan(maxBatchSize)
    const oldestMs = Math.min(...waiting.map(({ askedMs }) => askedMs))
    expect(this.clock.monotonicMs() - oldestMs).toBeLessThan(maxBatchWaitMs)
  }

  #waiting(): TestClient[] {
    const running = new Set([...this.workers.values()].flatMap(({ held }) => [...held]))
    return this.askers.filter(({ id, ends }) => ends.length === 0 && !running.has(id))
  }
}

function judgeEnd(asker: TestClient, arrival: Arrival, hasLosses: boolean): void {
  const { id, outcome, timeoutMs, askedMs, endedMs } = asker
  expect([asker.ends.length, asker.late]).toEqual([1, 0])
  expect(asker.workers.length).toBeLessThanOrEqual(1)
  if (outcome === 'done') expect(asker.text).toBe(id)
  if (timeoutMs !== null) expect(endedMs).toBeLessThanOrEqual(askedMs + timeoutMs)
  if (outcome === 'request_timeout') expect(endedMs).toBe(askedMs + (timeoutMs ?? NaN))
  if (asker.hasLeft || timeoutMs !== null || hasLosses) return
  const expected = {
    done: arrival.script.isEarly ? ['done', 'engine_error'] : ['done'],
    fail: ['engine_error'],
    poison: ['engine_error'],
    forget: arrival.script.isEarly
      ? ['EngineContractError', 'engine_error']
      : ['EngineContractError'],
    hang: arrival.script.isEarly ? ['engine_timeout', 'engine_error'] : ['engine_timeout'],
  }[arrival.script.outcome]
  expect(expected).toContain(outcome)
}

describe('a batcher under any traffic', () => {
  it('rows 77, 78: gives all one answer, their own, in time, in batches that fit', async () => {
    await assertProperty(
      fc.asyncProperty(traffic, async (shown) => {
        const judge = new Judge(shown)
        await judge.run()
        expect(judge.violations).toEqual([])
        const arrivals = shown.arrivals.toSorted((a, b) => a.atMs - b.atMs)
        for (const [at, asker] of judge.askers.entries()) {
          judgeEnd(asker, arrivals[at] as Arrival, shown.losses.length > 0)
        }
        await judge.clock.advance(100)
        expect(judge.askers).toHaveLength(arrivals.length)
        expect([judge.batcher.queued, judge.batcher.running]).toEqual([0, 0])
        expect(judge.reports).toHaveLength(judge.calls)
        expect(judge.clock.pendingTimers).toBe(0)
      }),
      { numRuns: 150, longRuns: 2000 },
    )
  })
})
