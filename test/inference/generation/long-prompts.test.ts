import { describe, expect, it } from 'vitest'
import { Batcher } from '../../../src/inference/generation/batcher.ts'
import type { EnginePool } from '../../../src/inference/generation/engine-pool.ts'
import type {
  GenerationInput,
  GenerationRequest,
} from '../../../src/inference/generation/inference-engine.ts'
import type {
  EnqueueOptions,
  QueuedRequest,
} from '../../../src/inference/generation/request-queue.ts'
import { RequestHandler } from '../../../src/inference/generation/request-handler.ts'
import { createGuard } from '../../../src/inference/guardrails/guard.ts'
import type { GuardAction } from '../../../src/inference/guardrails/rules.ts'
import { StepScheduler } from '../../../src/runtime/turn-budget.ts'
import { greedySampling } from '../../../src/testing/engine-contract.ts'
import { ManualClock } from '../../../src/testing/manual-clock.ts'
import { adaptive } from './open-batcher.ts'

describe('an input that is too long to be checked in one turn of the event loop', () => {
  /** Every reading of the clock takes half a millisecond; turns come when the test runs them. */
  class SlowClock extends ManualClock {
    readonly turns: (() => void)[] = []
    #readings = 0

    override monotonicMs(): number {
      return super.monotonicMs() + this.#readings++ / 2
    }

    override nextTurn(callback: () => void): void {
      this.turns.push(callback)
    }
  }

  /** Without workers: whatever is queued stays there. */
  class RecordingBatcher extends Batcher {
    readonly inputs: GenerationInput[] = []

    override enqueue(options: EnqueueOptions): void {
      this.inputs.push(options.request.input)
      super.enqueue(options)
    }

    override release(queued: QueuedRequest, request: GenerationRequest): void {
      this.inputs.push(request.input)
      super.release(queued, request)
    }
  }

  const open = (action: GuardAction = 'redact', queueLimit = 2) => {
    const clock = new SlowClock()
    const batcher = new RecordingBatcher({
      clock,
      policy: adaptive,
      queueLimit,
      onBatchEnded: () => {},
      engineTimeoutMs: Infinity,
    })
    const ended: string[] = []
    const guard = createGuard({
      isOn: true,
      sensitivity: 0.5,
      rules: [
        {
          kind: 'pattern',
          id: 'own',
          pattern: 'sword(fish)+',
          unless: [],
          stage: 'input',
          action,
        },
      ],
      maxPromptChars: null,
      action,
      onBlock: 'error',
    })
    const handler = new RequestHandler({
      batcher,
      pool: {} as EnginePool,
      guard,
      clock,
      model: 'm',
      sampling: greedySampling,
      systemPrompt: [],
      isContentCaptured: false,
      checkScheduler: new StepScheduler(clock, 8),
      onArrived: () => {},
      onEnded: (_, { code }) => ended.push(code),
    })
    const abort = new AbortController()
    const generate = (content: string, timeoutSeconds: number | null = null) =>
      handler.generate({
        input: { kind: 'text', text: content },
        sampling: {},
        taskId: null,
        priority: 0,
        timeoutSeconds,
        isBounded: true,
        signal: abort.signal,
      })
    /** Runs all turns; returns how many there were. */
    const runTurns = async (): Promise<number> => {
      let turns = 0
      for (; clock.turns.length > 0; turns++) clock.turns.shift()?.()
      await clock.advance(0)
      return turns
    }
    return { clock, batcher, inputs: batcher.inputs, ended, abort, generate, runTurns, handler }
  }
  const long = 'word '.repeat(20_000)

  it('a long input is checked in later turns; shorter ones are queued immediately', async () => {
    const { inputs, generate, runTurns } = open()
    void generate(`swordfish ${long} swordfishfish`)
    void generate('a swordfish')
    expect(inputs).toEqual([{ kind: 'text', text: 'a [redacted:own]' }])
    expect(await runTurns()).toBeGreaterThan(2)
    expect(inputs[1]).toEqual({ kind: 'text', text: `[redacted:own] ${long} [redacted:own]` })
  })

  it('row 116: many that arrive together are checked in the turns that follow', async () => {
    const { clock, inputs, generate, runTurns } = open('redact', 1000)
    const before = clock.monotonicMs()
    for (let at = 0; at < 100; at++) void generate(`${long} swordfish`)
    expect(clock.monotonicMs() - before).toBeLessThan(100 * 2)
    expect([inputs, clock.turns.length]).toEqual([[], 1])
    expect(await runTurns()).toBeGreaterThan(100)
    expect(inputs).toHaveLength(100)
  })

  it('row 116: a long input is refused if the queue is full, and leaves nothing', async () => {
    const { generate, ended, runTurns } = open()
    void generate('one')
    void generate('two')
    await expect(generate(long)).rejects.toMatchObject({ code: 'queue_full' })
    await runTurns()
    expect(ended).toEqual(['queue_full'])
  })

  it('a long input is not checked any further when its request is canceled', async () => {
    const { clock, inputs, ended, abort, generate } = open()
    const result = generate(`${long} swordfish`)
    abort.abort()
    clock.turns.shift()?.()
    await expect(result).rejects.toMatchObject({ code: 'canceled' })
    expect([inputs, ended, clock.turns]).toEqual([[], ['canceled'], []])
  })

  it('a long input counts as queued while it is checked, and against the queue limit', async () => {
    const { handler, generate, inputs, ended, abort, runTurns } = open()
    const results = [generate(long), generate(`${long} swordfish`)]
    expect(handler.status().queued).toBe(2)
    await expect(generate('one more')).rejects.toMatchObject({ code: 'queue_full' })
    await runTurns()
    expect(handler.status().queued).toBe(2)
    await expect(generate('one more')).rejects.toMatchObject({ code: 'queue_full' })
    expect(ended).toEqual(['queue_full', 'queue_full'])
    expect(inputs).toContainEqual({ kind: 'text', text: `${long} [redacted:own]` })
    abort.abort()
    for (const result of results) await expect(result).rejects.toMatchObject({ code: 'canceled' })
    expect(handler.status().queued).toBe(0)
  })

  it('a long input leaves the queue when a rule blocks it', async () => {
    const { handler, generate, ended, runTurns } = open('reject')
    const result = expect(generate(`${long} swordfish`)).rejects.toMatchObject({
      code: 'content_filter',
    })
    expect(handler.status().queued).toBe(1)
    await runTurns()
    await result
    expect([ended, handler.status().queued]).toEqual([['content_filter'], 0])
  })

  it('a long input that times out is not checked any further', async () => {
    const { clock, handler, generate, inputs, ended, runTurns } = open()
    const result = expect(generate(`${long} swordfish`, 60)).rejects.toMatchObject({
      code: 'request_timeout',
    })
    await clock.advance(60_000)
    await result
    expect(await runTurns()).toBe(1)
    expect([inputs, ended, handler.status().queued]).toEqual([[], ['request_timeout'], 0])
  })

  it('a long input is awaited when the backend closes', async () => {
    const { batcher, generate, inputs, ended, runTurns } = open()
    const result = expect(generate(`${long} swordfish`)).rejects.toMatchObject({ code: 'canceled' })
    const impatience = new AbortController()
    const drained = batcher.drain(impatience.signal)
    await runTurns()
    expect([inputs.length, ended]).toEqual([1, []])
    impatience.abort()
    await drained
    await result
    expect(ended).toEqual(['canceled'])
  })
})
