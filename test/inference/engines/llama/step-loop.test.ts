import { describe, expect, it, vi } from 'vitest'
import { systemClock } from '../../../../src/foundation/clock.ts'
import { toRequest } from '../generation.ts'
import type { OutputFormat } from '../../../../src/inference/generation/inference-engine.ts'
import type { RequestUpdate } from '../../../../src/inference/engines/llama/protocol.ts'
import { GrammarCache } from '../../../../src/inference/engines/llama/grammar/next-characters.ts'
import { StepLoop } from '../../../../src/inference/engines/llama/step-loop.ts'
import { FakeRuntime, type FakeRuntimeOptions } from './fake-runtime.ts'

/** A loop, and its reports. `between` runs after every step, with its number. */
class Stage {
  readonly runtime: FakeRuntime
  readonly loop: StepLoop
  readonly updates: RequestUpdate[] = []
  steps = 0
  between: (step: number) => void = () => {}
  #isAsleep = true
  #waiters: (() => void)[] = []

  constructor(options: FakeRuntimeOptions) {
    this.runtime = new FakeRuntime(options)
    this.loop = new StepLoop({
      runtime: this.runtime,
      clock: systemClock,
      onUpdate: (update) => void this.updates.push(update),
      onStep: (isLast) => {
        this.between(++this.steps)
        this.#isAsleep = isLast
        if (isLast) for (const wake of this.#waiters.splice(0)) wake()
        return undefined
      },
    })
  }

  add(...prompts: readonly string[]): void {
    this.#isAsleep = false
    this.loop.add(
      prompts.map((prompt) => toRequest({ kind: 'text', text: prompt }, {}, { id: prompt })),
    )
  }

  /** Resolves when there is nothing to do. */
  asleep(): Promise<void> {
    if (this.#isAsleep) return Promise.resolve()
    return new Promise((resolve) => this.#waiters.push(resolve))
  }

  textOf(id: string): string {
    return this.updates
      .flatMap((update) => (update.id === id ? (update.delta?.text ?? '') : ''))
      .join('')
  }

  endOf(id: string): unknown {
    const ends = this.updates.flatMap((update) =>
      update.id === id && update.end ? update.end : [],
    )
    expect(ends.length).toBeLessThanOrEqual(1)
    return ends[0]
  }
}

describe('StepLoop', () => {
  it('StepLoop steps all slots once, in ascending order', async () => {
    const stage = new Stage({ slots: 3 })
    stage.add('ab', 'cd', 'ef')
    await stage.asleep()
    expect(stage.runtime.asked).toEqual([
      '0 keep 0',
      '1 keep 0',
      '2 keep 0',
      ...Array.from({ length: 3 }, () => ['0 next', '1 next', '2 next']).flat(),
      '0 close',
      '1 close',
      '2 close',
    ])
    for (const id of ['ab', 'cd', 'ef']) {
      expect(stage.textOf(id)).toBe(id)
      expect(stage.endOf(id)).toEqual({
        kind: 'done',
        finishReason: 'stop',
        usage: {
          promptTokens: 2,
          completionTokens: 2,
          details: { prompt_tokens_details: { cached_tokens: 0 } },
        },
      })
    }
  })

  it('StepLoop gives a waiting request a slot beside those that run', async () => {
    const say = (prompt: string, at: number): string => `${prompt === 'l' ? 'long' : prompt}${at}`
    const stage = new Stage({ slots: 3, say })
    stage.add('l', 'x', 'y')
    stage.between = (step) => {
      if (step === 3) stage.add('z')
    }
    await stage.asleep()
    const texts = ['l', 'x', 'y', 'z'].map((id) => stage.textOf(id))
    expect(texts).toEqual(['long0', 'x1', 'y2', 'z1'])
  })

  it('StepLoop evaluates only the part of a prompt that a slot does not have already', async () => {
    const stage = new Stage({ slots: 3, say: () => 'xy' })
    stage.add('0123456789ab')
    await stage.asleep()
    stage.add('0123456789abxcd')
    await stage.asleep()
    expect(stage.runtime.asked.join(', ')).toBe(
      '0 keep 0, 0 next, 0 next, 0 next, 0 close, 0 keep 13, 0 next, 0 next, 0 next, 0 close',
    )
    expect(stage.endOf('0123456789abxcd')).toMatchObject({
      usage: { promptTokens: 15, details: { prompt_tokens_details: { cached_tokens: 13 } } },
    })
    stage.add('0123456789abxcd')
    await stage.asleep()
    expect(stage.runtime.asked.slice(10, 11)).toEqual(['0 keep 14'])
    stage.add('other')
    await stage.asleep()
    expect(stage.runtime.asked.slice(15, 16)).toEqual(['1 keep 0'])
  })

  it('StepLoop gives prompts of 128 tokens and more the slots for long prompts', async () => {
    const [short, long] = ['s'.repeat(127), 'l'.repeat(128)]
    const stage = new Stage({
      slots: 2,
      longSlots: 2,
      batchSize: 512,
      contextLength: 512,
      say: (_, at) => `${at}`,
    })
    stage.add(short, long)
    await stage.asleep()
    expect([stage.textOf(short), stage.textOf(long)]).toEqual(['0', '2'])
    // The chat continues in the slot that has its beginning.
    const next = `${long}2 and more`
    stage.add(next)
    await stage.asleep()
    expect(stage.textOf(next)).toBe('2')
    expect(stage.endOf(next)).toMatchObject({
      usage: { details: { prompt_tokens_details: { cached_tokens: 129 } } },
    })
  })

  it('StepLoop runs as many requests as there are slots of one kind', async () => {
    const say = (prompt: string): string => prompt.slice(0, 4)
    const stage = new Stage({ slots: 2, longSlots: 2, contextLength: 512, say })
    let most = 0
    stage.between = () => {
      const unended = stage.updates.filter(({ end }) => end !== undefined).length
      most = Math.max(most, new Set(stage.updates.map(({ id }) => id)).size - unended)
    }
    const prompts = ['a', 'b', 'c'].flatMap((name) => [name.repeat(4), name.repeat(130)])
    stage.add(...prompts)
    await stage.asleep()
    expect(most).toBe(2)
    expect(prompts.map((prompt) => stage.textOf(prompt))).toEqual(prompts.map(say))
  })

  it('StepLoop gives the longest of prompts that fit into one pass the lowest slot', async () => {
    const stage = new Stage({ slots: 3, batchSize: 6, say: (prompt, at) => `${prompt}${at}` })
    stage.add('a', 'bbb', 'cc', 'dddd')
    await stage.asleep()
    const answers = ['a', 'bbb', 'cc', 'dddd'].map((id) => stage.textOf(id))
    expect(answers).toEqual(['a2', 'bbb0', 'cc1', 'dddd2'])
  })

  it('StepLoop admits a request that arrives while it runs at the next step', async () => {
    const stage = new Stage({ slots: 2 })
    stage.between = (step) => {
      if (step === 2) stage.add('late')
    }
    stage.add('early')
    await stage.asleep()
    expect(stage.textOf('late')).toBe('late')
    const asked = stage.runtime.asked.slice(0, 7)
    expect(asked).toEqual([
      '0 keep 0',
      '0 next',
      '0 next',
      '1 keep 0',
      '0 next',
      '1 take 3',
      '0 next',
    ])
  })

  it('StepLoop evaluates one batch of prompt tokens per step, and steps others', async () => {
    const stage = new Stage({ slots: 3, batchSize: 4 })
    stage.add('ab', 'cdefghijkl', 'm')
    await stage.asleep()
    expect(stage.runtime.asked.slice(3, 12).join(', ')).toBe(
      '0 next, 1 take 2, 0 next, 1 take 4, 0 next, 1 take 3, 0 close, 1 next, 2 next',
    )
    expect(stage.textOf('cdefghijkl')).toBe('cdefghijkl')
    expect(stage.textOf('m')).toBe('m')
  })

  it('StepLoop chooses tokens in one pass only for requests with equal token counts', async () => {
    const stage = new Stage({ slots: 4 })
    stage.between = (step) => {
      if (step === 2) stage.add('late')
    }
    stage.add('abc', 'def', 'g')
    await stage.asleep()
    expect(stage.runtime.asked.slice(3, 14).join(', ')).toBe(
      '0 take 2, 1 take 2, 2 next, 0 next, 1 next, 2 next, 2 close, 2 keep 0, ' +
        '0 next, 1 next, 2 take 3',
    )
    for (const id of ['abc', 'def', 'g', 'late']) expect(stage.textOf(id)).toBe(id)
  })

  it('StepLoop frees the slot of a canceled request before the next step', async () => {
    const stage = new Stage({ slots: 1 })
    stage.between = (step) => {
      if (step === 2) stage.loop.cancel('abcdef')
    }
    stage.add('abcdef', 'next')
    await stage.asleep()
    expect(stage.endOf('abcdef')).toEqual({ kind: 'canceled' })
    expect(stage.textOf('abcdef')).toBe('ab')
    expect(stage.textOf('next')).toBe('next')
  })

  it('StepLoop gives no slot to a request that is canceled while it waits', async () => {
    const stage = new Stage({ slots: 1 })
    stage.between = () => stage.loop.cancel('waiting')
    stage.add('abc', 'waiting')
    await stage.asleep()
    expect(stage.endOf('waiting')).toEqual({ kind: 'canceled' })
    expect(stage.runtime.asked.filter((what) => what.endsWith('keep 0'))).toHaveLength(1)
  })

  it('StepLoop does not step a paused request until it is resumed', async () => {
    const stage = new Stage({ slots: 2 })
    stage.between = (step) => {
      if (step === 2) stage.loop.setPaused('slow', true)
    }
    stage.add('slow', 'quick')
    await stage.asleep()
    expect(stage.textOf('slow')).toBe('s')
    expect(stage.textOf('quick')).toBe('quick')
    expect(stage.endOf('slow')).toBeUndefined()
    stage.add()
    stage.loop.setPaused('slow', false)
    await stage.asleep()
    expect(stage.textOf('slow')).toBe('slow')
    expect(stage.endOf('slow')).toMatchObject({ kind: 'done' })
  })

  it('StepLoop lets other requests continue if one fails', async () => {
    const say = (prompt: string): string | Error =>
      prompt === 'bad' ? new Error('broken') : prompt
    const stage = new Stage({ slots: 3, say })
    stage.add('good', 'bad', 'fine')
    await stage.asleep()
    expect(stage.endOf('bad')).toEqual({
      kind: 'failed',
      failure: { code: 'engine_error', message: 'broken' },
    })
    expect(stage.textOf('good')).toBe('good')
    expect(stage.textOf('fine')).toBe('fine')
  })

  it('StepLoop refuses an invalid prompt without using a slot', async () => {
    const stage = new Stage({ slots: 1 })
    stage.add('x'.repeat(64), '')
    await stage.asleep()
    expect(stage.endOf('x'.repeat(64))).toMatchObject({
      failure: { code: 'context_length_exceeded' },
    })
    expect(stage.endOf('')).toMatchObject({ failure: { code: 'unsupported' } })
    expect(stage.runtime.asked).toEqual([])
  })

  it('StepLoop refuses a prompt that cannot fit before it is tokenised', async () => {
    const stage = new Stage({ slots: 1 })
    stage.add('x'.repeat(63), 'x'.repeat(64))
    await stage.asleep()
    expect(stage.runtime.tokenized).toEqual(['x'.repeat(63)])
    expect(stage.endOf('x'.repeat(63))).toMatchObject({ kind: 'done' })
    expect(stage.endOf('x'.repeat(64))).toEqual({
      kind: 'failed',
      failure: {
        code: 'context_length_exceeded',
        message:
          "the prompt has at least 64 tokens, and the model's context is 64 tokens " +
          'for prompt and answer together',
        hint: 'shorten the prompt, or raise max_model_len if the model allows it',
      },
    })
  })

  it('StepLoop ends a request for zero tokens immediately', async () => {
    const stage = new Stage({ slots: 1 })
    stage.loop.add([toRequest({ kind: 'text', text: 'a' }, { maxTokens: 0 }, { id: 'none' })])
    await stage.asleep()
    expect(stage.endOf('none')).toMatchObject({ kind: 'done', finishReason: 'length' })
    expect(stage.runtime.asked).toEqual([])
  })
})

describe('StepLoop: the choices of one request', () => {
  const json: OutputFormat = { kind: 'json_object' }
  const schema = (type: string): OutputFormat => ({ kind: 'json_schema', schema: { type } })

  it.each<[string, readonly (readonly [string, OutputFormat?])[], number, number]>([
    ['equal prompts', [['a'], ['a'], ['a']], 1, 0],
    [
      'equal grammars',
      [
        ['a', schema('null')],
        ['a', schema('null')],
      ],
      1,
      1,
    ],
    ['other prompts', [['a'], ['b'], ['a']], 3, 0],
    ['other grammars', [['a', schema('null')], ['a', schema('array')], ['a', json], ['a']], 4, 3],
  ])(
    'StepLoop: the choices of one request prepare %s once',
    async (_, choices, tokenized, grammars) => {
      const stage = new Stage({ slots: 2 })
      const createGrammar = vi.spyOn(stage.runtime, 'createGrammar')
      createGrammar.mockReturnValue(new GrammarCache().open('root ::= "a"'))
      // As the message to the process leaves them: equal, and of other objects.
      const requests = choices.map(([content, format = { kind: 'text' } as const], at) =>
        toRequest(
          { kind: 'chat', messages: [{ role: 'user', content }] },
          { format },
          { id: `${at}` },
        ),
      )
      const ends = Promise.withResolvers<void>()
      stage.between = () => {
        if (choices.every((_choice, at) => stage.endOf(`${at}`) !== undefined)) ends.resolve()
      }
      stage.loop.add(requests)
      await ends.promise
      expect(choices.map((_choice, at) => stage.textOf(`${at}`))).toEqual(
        choices.map(([text]) => text),
      )
      expect(stage.runtime.tokenized).toHaveLength(tokenized)
      expect(createGrammar).toHaveBeenCalledTimes(grammars)
    },
  )

  it('StepLoop: the choices of one request release their prompt when all are done', async () => {
    const stage = new Stage({ slots: 1 })
    for (const times of [1, 2]) {
      stage.add('same')
      await stage.asleep()
      // It falls asleep after it has said so.
      await new Promise((resolve) => setImmediate(resolve))
      expect(stage.runtime.tokenized).toHaveLength(times)
    }
  })
})
