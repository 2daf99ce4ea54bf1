import { describe, expect, it } from 'vitest'
import { AiJobs } from '../../src/inference/ai-jobs.ts'
import { generateEach, generateTexts } from '../../src/inference/generate.ts'
import { inferenceError } from '../../src/inference/generation/inference-errors.ts'
import { AITask } from '../../src/tasks/ai-task.ts'
import { FakeSession } from '../../src/testing/fake-backend.ts'
import { ManualClock } from '../../src/testing/manual-clock.ts'
import { RecordingListener } from '../../src/testing/recorders.ts'
import { FakeGenerator, silent } from './server/fake-generator.ts'

const many = Array.from({ length: 600 }, (_, at) => `p${at}`)

/** A manual clock whose turns of the event loop are manual, too. */
class TurnClock extends ManualClock {
  readonly #turns: (() => void)[] = []

  override nextTurn(callback: () => void): void {
    this.#turns.push(callback)
  }

  /** Runs one turn and everything that follows from it. */
  async turn(): Promise<void> {
    for (const callback of this.#turns.splice(0)) callback()
    await new Promise((resolve) => setImmediate(resolve))
  }
}

const open = (respond: (item: string) => Promise<string> = async (item) => `re: ${item}`) => {
  const [clock, abort] = [new TurnClock(), new AbortController()]
  const started: string[] = []
  const items = [...many]
  const generate = (item: string): Promise<string> => {
    started.push(item)
    return respond(item)
  }
  const outcome = generateEach(items, generate, { clock, signal: abort.signal })
  return { clock, abort, started, items, outcome }
}

describe('generateEach', () => {
  it('generateEach starts 250 prompts per turn, the first immediately, in order', async () => {
    const { clock, started, items, outcome } = open()
    const counts = [started.length]
    items.length = 0
    for (let turn = 0; turn < 3; turn++) {
      await clock.turn()
      counts.push(started.length)
    }
    expect(counts).toEqual([250, 500, 600, 600])
    expect(started).toEqual(many)
    expect(await outcome).toEqual(
      many.map((item) => ({ status: 'fulfilled', value: `re: ${item}` })),
    )
  })

  it('generateEach continues after a failure, the outcome of its prompt alone', async () => {
    const { clock, started, outcome } = open((item) =>
      item === 'p3' ? Promise.reject(new Error('no')) : Promise.resolve('yes'),
    )
    for (let turn = 0; turn < 3; turn++) await clock.turn()
    const outcomes = await outcome
    expect([started.length, outcomes.length]).toEqual([600, 600])
    const failed = outcomes.flatMap(({ status }, at) => (status === 'rejected' ? [at] : []))
    expect(failed).toEqual([3])
  })

  it('generateEach starts no more prompts after an abort; those count as canceled', async () => {
    const { clock, abort, started, outcome } = open()
    await new Promise((resolve) => setImmediate(resolve))
    abort.abort()
    await clock.turn()
    const outcomes = await outcome
    expect([started.length, outcomes.length]).toEqual([250, 600])
    expect(outcomes[249]).toEqual({ status: 'fulfilled', value: 're: p249' })
    expect(outcomes[250]).toMatchObject({ status: 'rejected', reason: { code: 'canceled' } })
  })
})

describe('generate with many prompts', () => {
  it('generate with many prompts ends at its time-out, whenever they were started', async () => {
    const [clock, generator] = [new TurnClock(), new FakeGenerator(silent)]
    const outcome = generateTexts(generator, many, 5, clock)
    await clock.advance(4999)
    await clock.turn()
    expect(generator.requests).toHaveLength(500)
    await clock.advance(1)
    await clock.turn()
    const late = { error: { code: 'request_timeout', message: 'no answer within 5 s' } }
    expect(await outcome).toEqual(many.map(() => late))
    expect(generator.requests).toHaveLength(500)
    expect(generator.requests.every(({ signal }) => signal.aborted)).toBe(true)
  })

  it('generate with many prompts returns its results when the backend closes', async () => {
    const [clock, generator] = [new TurnClock(), new FakeGenerator()]
    const outcome = generateTexts(generator, many, 5, clock)
    generator.script = () => Promise.reject(inferenceError('closing', 'the backend is closing'))
    await clock.turn()
    await clock.turn()
    const codes = (await outcome).map(({ error }) => error?.code)
    const closed = Array.from({ length: 350 }, () => 'closing')
    expect(codes).toEqual([...Array.from({ length: 250 }, () => undefined), ...closed])
    expect(clock.pendingTimers).toBe(0)
  })
})

describe('an AI task with many prompts', () => {
  const begin = (generator: FakeGenerator) => {
    const [clock, listener] = [new TurnClock(), new RecordingListener()]
    const log = { warn() {} }
    const parts = { generator: () => generator, clock, log, closedReason: () => null }
    const jobs = new AiJobs({ ...parts, listener, onReleased: () => {} })
    const job = new FakeSession().createJob(new AITask({ prompt: many, backend: 'llm' }))
    jobs.submit([job])
    return { clock, listener, jobs, job }
  }

  it('an AI task with many prompts starts 250 prompts per turn', async () => {
    const generator = new FakeGenerator()
    const { clock, listener, job } = begin(generator)
    for (const count of [250, 500, 600]) {
      expect(generator.requests).toHaveLength(count)
      await clock.turn()
    }
    expect(listener.of(job)).toMatchObject([{ kind: 'complete', value: many }])
  })

  it.each([
    ['are running', new FakeGenerator(silent)],
    ['are done', new FakeGenerator()],
  ])(
    'an AI task starts no more prompts when it is canceled while the first ones %s',
    async (_, generator) => {
      const { clock, listener, jobs, job } = begin(generator)
      await new Promise((resolve) => setImmediate(resolve))
      jobs.cancel(job, 'enough')
      await clock.turn()
      await clock.turn()
      expect(generator.requests).toHaveLength(250)
      expect(listener.of(job)).toEqual([{ kind: 'cancel', reason: 'enough' }])
      expect(jobs.has(job.uid)).toBe(false)
    },
  )
})
