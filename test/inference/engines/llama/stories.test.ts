import { describe, expect, it } from 'vitest'
import { RecordingGeneration, toRequest } from '../generation.ts'
import { hadChild, modelProcesses } from './model-processes.ts'
import { storyModel, useEngine } from './open-engine.ts'

const engine = useEngine(storyModel, { contextLength: 4096, log: { warn: noteWarning } })
const warnings: string[] = []
function noteWarning(code: string, message: string): void {
  warnings.push(`${code}: ${message}`)
}

const once = { kind: 'text', text: 'Once upon a time' } as const
const greedy = { temperature: 0, topK: 0, topP: 1, maxTokens: 40 }

async function write(...requests: Parameters<typeof toRequest>[]): Promise<RecordingGeneration> {
  const listener = new RecordingGeneration()
  await engine().generate(
    requests.map((request) => toRequest(...request)),
    listener,
  )
  return listener
}

describe('a small real model', () => {
  it('a small real model has its trained context, and warns that more was configured', async () => {
    expect(await engine().start()).toMatchObject({ contextLength: 256, hasChatTemplate: false })
    expect(warnings).toEqual([
      'ContextClipped: the context of the model has 256 tokens; max_model_len is 4096',
    ])
  })

  it('a small real model is loaded on the CPU without a process that tries the binary', () => {
    expect(modelProcesses(process.pid).map(hadChild)).toEqual([false])
  })

  it('a small real model generates the most likely tokens at temperature 0', async () => {
    const story = await write([once, greedy])
    expect(story.textOf()).toMatch(/^, there was a little girl named Lily\. She loved to play/)
    expect(story.ends).toEqual([
      {
        id: 'r1',
        kind: 'done',
        finishReason: 'length',
        usage: {
          promptTokens: 5,
          completionTokens: 40,
          details: { prompt_tokens_details: { cached_tokens: 0 } },
        },
      },
    ])
  })

  it('a small real model stops by itself, and does not count the end token', async () => {
    const story = await write([once, { ...greedy, maxTokens: 1000 }])
    expect(story.textOf()).toMatch(/\.$/)
    expect(story.ends).toMatchObject([{ finishReason: 'stop' }])
    const tokens = await engine().tokenize(story.textOf())
    expect(story.ends).toMatchObject([{ usage: { completionTokens: tokens.length } }])
  })

  it('ignoreEos: generates until the context is full', async () => {
    const story = await write([once, { ...greedy, maxTokens: 1000, ignoreEos: true }])
    expect(story.ends).toMatchObject([
      { finishReason: 'length', usage: { promptTokens: 5, completionTokens: 251 } },
    ])
  })

  it('a small real model generates equal text for equal seeds only', async () => {
    const texts: string[] = []
    for (const seed of [1, 1, 2]) {
      texts.push((await write([once, { temperature: 1, seed, maxTokens: 30 }])).textOf())
    }
    expect(texts[1]).toBe(texts[0])
    expect(texts[2]).not.toBe(texts[0])
  })

  it('a small real model generates the same in a batch as for a request alone', async () => {
    // Few tokens: rounding differs between batches and may change later tokens.
    const few = { ...greedy, maxTokens: 10 }
    const animals = ['cat', 'dog', 'bird', 'fish', 'frog', 'bear', 'fox', 'duck', 'cow', 'pig']
    const toPrompt = (animal: string) => ({ kind: 'text', text: `The little ${animal}` }) as const
    const together = await write(
      ...animals.map((id) => [toPrompt(id), few, { id }] satisfies Parameters<typeof toRequest>),
    )
    for (const id of ['cat', 'fox', 'pig']) {
      const alone = await write([toPrompt(id), few, { id }])
      expect(together.textOf(id)).toBe(alone.textOf(id))
    }
    expect(new Set(together.ends.map(({ id }) => id))).toEqual(new Set(animals))
    expect(together.ends).toHaveLength(animals.length)
  })

  it('a small real model stops before a stop string that spans several tokens', async () => {
    const story = await write([once, { ...greedy, stop: ['never said', 'girl named Li'] }])
    expect(story.textOf()).toBe(', there was a little ')
    expect(story.ends).toMatchObject([{ finishReason: 'stop' }])
  })

  it('a small real model reports the log probability of each token, in text order', async () => {
    const story = await write([once, { ...greedy, maxTokens: 3, logprobs: 2 }])
    const reported = story.deltas.flatMap(({ logprobs = [] }) => logprobs)
    expect(reported.map(({ token }) => token)).toEqual([',', ' there', ' was'])
    for (const { token, logprob, top } of reported) {
      expect(top).toHaveLength(2)
      expect(top[0]).toEqual({ token, logprob })
      expect(logprob).toBeGreaterThan(-1)
    }
  })

  it('a small real model repeats fewer words with a repetition penalty', async () => {
    const text = 'dog dog dog dog dog dog dog dog dog dog'
    const input = { kind: 'text', text } as const
    const words = async (repetitionPenalty: number): Promise<number> => {
      const story = await write([input, { ...greedy, repetitionPenalty }])
      return new Set(story.textOf().split(/\W+/)).size
    }
    expect(await words(1.5)).toBeGreaterThan(await words(1))
  })

  it('without a chat template, a prompt is plain text, system messages first', async () => {
    const story = await write(
      [
        {
          kind: 'chat',
          messages: [
            { role: 'user', content: 'Once upon a time' },
            { role: 'system', content: 'A story' },
          ],
        },
        greedy,
        { id: 'chat' },
      ],
      [{ kind: 'text', text: 'A story\n\nOnce upon a time' }, greedy, { id: 'text' }],
    )
    expect(story.textOf('chat')).toBe(story.textOf('text'))
  })
})
