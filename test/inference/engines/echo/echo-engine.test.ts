import { describe, expect, it } from 'vitest'
import type {
  GenerationInput,
  InferenceEngine,
  Sampling,
} from '../../../../src/inference/generation/inference-engine.ts'
import { createEchoEngine } from '../../../../src/inference/engines/echo/echo-engine.ts'
import { inferenceEngineContract } from '../../../../src/testing/engine-contract.ts'
import { ManualClock } from '../../../../src/testing/manual-clock.ts'
import { RecordingGeneration, toRequest } from '../generation.ts'

describe('the echo engine', () => {
  inferenceEngineContract(it, () => createEchoEngine())
})

describe('the echo engine with latency', () => {
  inferenceEngineContract(it, () => createEchoEngine({ latencyMs: 1, latencyPerPromptMs: 0.1 }))
})

async function echo(
  input: GenerationInput | string,
  sampling: Partial<Sampling> = {},
  engine: InferenceEngine = createEchoEngine(),
): Promise<RecordingGeneration> {
  const heard = new RecordingGeneration()
  await engine.generate([toRequest(input, sampling)], heard)
  return heard
}

describe('echo engine: a result', () => {
  it('echo engine: the result is the text, or the last user message', async () => {
    const text = 'Tell me,\n\n  please: äöü 🦊🦊🦊🦊🦊🦊🦊🦊🦊 ?'
    expect((await echo({ kind: 'text', text })).textOf()).toBe(text)
    const chat = await echo({
      kind: 'chat',
      messages: [
        { role: 'system', content: 'Be brief.' },
        { role: 'user', content: 'One' },
        { role: 'assistant', content: 'Two' },
        { role: 'user', content: 'Three four' },
        { role: 'tool', content: 'Five' },
      ],
    })
    expect(chat.textOf()).toBe('Three four')
    const usage = { promptTokens: 12, completionTokens: 2 }
    expect(chat.ends).toEqual([{ id: 'r1', kind: 'done', finishReason: 'stop', usage }])
  })

  it('echo engine: the first delta reports the prompt tokens', async () => {
    const { deltas, ends } = await echo('one two three')
    const told = deltas.flatMap(({ promptTokens = [] }) => promptTokens)
    expect(ends).toMatchObject([{ usage: { promptTokens: told[0] } }])
    expect(told).toHaveLength(1)
  })

  it('echo engine: a result has at most eight deltas', async () => {
    const long = await echo('word '.repeat(80))
    expect(long.deltas.length).toBe(8)
    expect((await echo('one two')).deltas.map(({ text }) => text)).toEqual(['one', ' two'])
    expect((await echo('')).deltas).toEqual([])
  })

  it.each([
    ['one two three', {}, 'one two three', 'stop', 3],
    ['one two three', { maxTokens: 3 }, 'one two three', 'stop', 3],
    ['one two three', { maxTokens: 2 }, 'one two', 'length', 2],
    ['one two three', { stop: [' three', 'two'] }, 'one ', 'stop', 2],
    ['one two three', { stop: ['three'], maxTokens: 2 }, 'one two', 'length', 2],
    ['one two three', { stop: [''] }, 'one two three', 'stop', 3],
    ['one two', { ignoreEos: true, maxTokens: 5 }, 'one twoone twoone', 'length', 5],
    ['one two', { ignoreEos: true, maxTokens: 2 }, 'one two', 'length', 2],
    ['one', { format: { kind: 'json_object' } }, '{"echo":"one"}', 'stop', 2],
  ] as const)(
    'echo engine: the result of "%s" with %j is "%s" (%s)',
    async (text, sampling, expected, reason, count) => {
      const heard = await echo({ kind: 'text', text }, sampling)
      expect(heard.textOf()).toBe(expected)
      const [end] = heard.ends
      expect(end).toMatchObject({ finishReason: reason, usage: { completionTokens: count } })
    },
  )

  it('echo engine: a result is limited by the context length, prompt included', async () => {
    const engine = createEchoEngine({ contextLength: 6 })
    const cut = await echo({ kind: 'text', text: 'one two three' }, {}, engine)
    expect(cut.textOf()).toBe('one two')
    expect(cut.ends).toMatchObject([{ kind: 'done', finishReason: 'length' }])
    const full = await echo({ kind: 'text', text: 'one two three four five' }, {}, engine)
    expect(full.ends).toMatchObject([{ error: { code: 'context_length_exceeded' } }])
  })

  it('echo engine: a required tool choice calls the first tool; an unknown one fails', async () => {
    const messages = [{ role: 'user', content: 'Rome' }] as const
    const parameters = { type: 'object', properties: { city: { type: 'string' } } }
    const tools = [{ name: 'first', parameters }, { name: 'second' }] as const
    const asked = { kind: 'chat', messages, tools } as const
    const heard = await echo({ ...asked, toolChoice: 'required' })
    const call = { id: 'call_r1', name: 'first', arguments: '{"city":"Rome"}' }
    expect(heard.deltas).toMatchObject([{ id: 'r1', text: '', toolCalls: [call] }])
    expect((await echo(asked)).textOf()).toBe('Rome')
    const missing = await echo({ ...asked, toolChoice: { name: 'third' } })
    expect(missing.ends).toMatchObject([{ error: { code: 'unsupported' } }])
  })
})

describe('echo engine: latency', () => {
  it('echo engine: the default latency is zero: results come without a timer', () => {
    const clock = new ManualClock()
    const heard = new RecordingGeneration()
    void createEchoEngine({ clock }).generate([toRequest('now')], heard)
    expect([heard.textOf(), heard.ends.length, clock.pendingTimers]).toEqual(['now', 1, 0])
  })

  it('echo engine: the latency is that of the batch plus that of each prompt', async () => {
    const clock = new ManualClock()
    const engine = createEchoEngine({ clock, latencyMs: 100, latencyPerPromptMs: 10 })
    const heard = new RecordingGeneration()
    const leaving = new AbortController()
    const { signal } = leaving
    const requests = [toRequest('a'), toRequest('b', {}, { id: 'r2', signal })]
    const generating = engine.generate(requests, heard)
    await clock.advance(50)
    leaving.abort()
    expect(heard.ends).toEqual([{ id: 'r2', kind: 'canceled' }])
    await clock.advance(69)
    expect(heard.deltas).toEqual([])
    await clock.advance(1)
    await generating
    expect(heard.textOf()).toBe('a')
    expect([heard.ends.length, clock.pendingTimers]).toEqual([2, 0])
  })

  it('echo engine: close() ends the latency, and leaves no timer', async () => {
    const clock = new ManualClock()
    const engine = createEchoEngine({ clock, latencyMs: 100 })
    const heard = new RecordingGeneration()
    const generating = engine.generate([toRequest('a')], heard)
    await engine.close()
    await generating
    expect(heard.ends).toMatchObject([{ kind: 'failed', error: { code: 'closing' } }])
    expect(clock.pendingTimers).toBe(0)
    await expect(engine.start()).rejects.toMatchObject({ code: 'closing' })
  })
})
