/** The promises of an inference engine, each as a case that asserts it. Declares no test. */

import assert from 'node:assert/strict'
import type { TokenLogprob } from '../inference/generation/inference-engine.ts'
import { type EngineStage, nextTurn } from './engine-stage.ts'

const verdictSchema = {
  type: 'object',
  properties: { verdict: { type: 'string', enum: ['yes', 'no'] }, isSure: { type: 'boolean' } },
  required: ['verdict', 'isSure'],
  additionalProperties: false,
}

/** Every promise of an engine, by its name. */
export const engineCases: Readonly<Record<string, (stage: EngineStage) => Promise<void>>> = {
  'tells what it is once it has started': async ({ engine, facts }) => {
    assert.ok(facts.name.length > 0)
    assert.ok(Number.isInteger(facts.contextLength) && facts.contextLength > 0)
    assert.ok(['batch', 'step'].includes(engine.capacity.admits))
    assert.ok(Number.isInteger(engine.capacity.slots) && engine.capacity.slots > 0)
  },
  'gives each of many requests its own answer, once': async (stage) => {
    const { prompt, recorder, maxTokens } = stage
    // Answers cannot be foretold, but a longer prompt counts more tokens.
    const many = Array.from({ length: 16 }, (_, at) => stage.request(prompt + ' and'.repeat(at)))
    await stage.ask(...many.toReversed())
    const usages = many.map(({ id }) => stage.done(id).usage)
    const counts = usages.map(({ promptTokens }) => promptTokens)
    assert.ok((counts[0] ?? 0) > 0)
    assert.deepEqual(
      counts,
      [...new Set(counts)].toSorted((a, b) => a - b),
    )
    for (const { id } of many) assert.ok(recorder.textOf(id).length > 0)
    for (const { completionTokens } of usages) {
      assert.ok(completionTokens > 0 && completionTokens <= maxTokens)
    }
  },
  'answers a conversation': async (stage) => {
    const messages = [
      { role: 'system', content: 'You are brief.' },
      { role: 'user', content: stage.prompt },
    ] as const
    const one = stage.request({ kind: 'chat', messages })
    await stage.ask(one)
    assert.ok(stage.recorder.textOf(one.id).length > 0)
    assert.ok(stage.done(one.id).usage.promptTokens > 0)
  },
  'stops at maxTokens and says so': async (stage) => {
    const one = stage.request(stage.prompt, { maxTokens: 3, ignoreEos: true })
    await stage.ask(one)
    const { finishReason, usage } = stage.done(one.id)
    assert.equal(finishReason, 'length')
    assert.ok(usage.completionTokens > 0 && usage.completionTokens <= 3)
  },
  'never lets a stop string through': async (stage) => {
    const { recorder, prompt } = stage
    const free = stage.request(stage.prompt)
    await stage.ask(free)
    const text = recorder.textOf(free.id)
    const middle = Math.floor(text.length / 2)
    const stop = text.slice(middle, middle + 3)
    assert.ok(stop.length > 0, 'the prompt gives no text to stop in')
    const one = stage.request(prompt, { stop: ['never said, never heard', stop] })
    await stage.ask(one)
    assert.ok(!recorder.textOf(one.id).includes(stop))
    assert.equal(stage.done(one.id).finishReason, 'stop')
  },
  'lets go of an aborted request and goes on with the others': async (stage) => {
    const { recorder, prompt } = stage
    const leaving = stage.request(prompt, { ignoreEos: true })
    const others = [stage.request(stage.prompt), stage.request(stage.prompt)]
    recorder.onDelta = (id) => {
      if (id !== leaving.id) return undefined
      leaving.abort()
      return nextTurn()
    }
    await stage.ask(leaving, ...others)
    assert.deepEqual(recorder.of(leaving.id).ends, [{ kind: 'canceled' }])
    for (const { id } of others) stage.done(id)
  },
  'never begins what was aborted before': async (stage) => {
    const [early, other] = [stage.request(stage.prompt), stage.request(stage.prompt)]
    early.abort()
    await stage.ask(early, other)
    assert.deepEqual(stage.recorder.of(early.id), {
      deltas: [],
      ends: [{ kind: 'canceled' }],
      late: 0,
    })
    stage.done(other.id)
  },
  'refuses a prompt beyond its context, and it alone': async (stage) => {
    const long = stage.request('word '.repeat(2 * stage.facts.contextLength))
    const others = [stage.request(stage.prompt), stage.request(stage.prompt)]
    await stage.ask(long, ...others)
    assert.equal(stage.failure(long.id), 'context_length_exceeded')
    for (const { id } of others) stage.done(id)
  },
  'holds back the request of a slow reader, and it alone': async (stage) => {
    const { recorder, engine, prompt } = stage
    const [slow, other] = [stage.request(prompt, { ignoreEos: true }), stage.request(stage.prompt)]
    const { promise: digested, resolve: digest } = Promise.withResolvers<void>()
    recorder.onDelta = (id) => (id === slow.id ? digested : undefined)
    const asking = stage.ask(slow, other)
    const isOther = engine.capacity.slots > 1
    await recorder.until(() => recorder.of(slow.id).deltas.length > 0)
    if (isOther) await recorder.until(() => recorder.hasEnded(other.id))
    await stage.settle()
    assert.equal(recorder.of(slow.id).deltas.length, 1)
    assert.equal(recorder.hasEnded(slow.id), false)
    digest()
    await asking
    stage.done(slow.id)
  },
  'gives the same text for the same seed': async (stage) => {
    const [one, again] = [1, 2].map(() => stage.request(stage.prompt, { temperature: 1, seed: 7 }))
    assert.ok(one !== undefined && again !== undefined)
    await stage.ask(one)
    await stage.ask(again)
    assert.equal(stage.recorder.textOf(again.id), stage.recorder.textOf(one.id))
  },
  'keeps to a JSON schema': async (stage) => {
    const format = { kind: 'json_schema', schema: verdictSchema } as const
    const one = stage.request(stage.prompt, { format, maxTokens: 128 })
    await stage.ask(one)
    const value: unknown = JSON.parse(stage.recorder.textOf(one.id))
    assert.ok(typeof value === 'object' && value !== null)
    assert.deepEqual(Object.keys(value).toSorted(), ['isSure', 'verdict'])
    assert.ok('verdict' in value && ['yes', 'no'].includes(String(value.verdict)))
    assert.ok('isSure' in value && typeof value.isSure === 'boolean')
  },
  'calls the tool that it is told to call': async (stage) => {
    const tool = {
      name: 'look_up_weather',
      description: 'Tells the weather of a city',
      parameters: {
        type: 'object',
        properties: { city: { type: 'string', enum: ['Paris', 'Rome'] } },
        required: ['city'],
      },
    }
    const messages = [{ role: 'user', content: 'How is the weather in Rome?' }] as const
    const toolChoice = { name: tool.name }
    const input = { kind: 'chat', messages, tools: [tool], toolChoice } as const
    const one = stage.request(input, { maxTokens: 128 })
    await stage.ask(one)
    assert.equal(stage.done(one.id).finishReason, 'tool_calls')
    const calls = stage.recorder.toolCallsOf(one.id)
    assert.deepEqual(
      calls.map(({ name }) => name),
      [tool.name],
    )
    const { city }: { city?: unknown } = JSON.parse(calls[0]?.arguments ?? '')
    assert.ok(city === 'Paris' || city === 'Rome')
  },
  'tells how likely its tokens were, when asked': async (stage) => {
    const [silent, open] = [
      stage.request(stage.prompt),
      stage.request(stage.prompt, { logprobs: 2 }),
    ]
    await stage.ask(silent, open)
    const told = (id: string): TokenLogprob[] =>
      stage.recorder.of(id).deltas.flatMap(({ logprobs = [] }) => logprobs)
    assert.deepEqual(told(silent.id), [])
    assert.ok(told(open.id).length > 0)
    for (const { logprob, top } of told(open.id)) {
      assert.ok(logprob <= 0)
      assert.ok(top.length <= 2)
    }
  },
  'turns text into tokens': async ({ engine, prompt }) => {
    const [nothing, tokens] = [await engine.tokenize(''), await engine.tokenize(prompt)]
    assert.ok(tokens.length > nothing.length)
    assert.ok(tokens.every((token) => Number.isInteger(token) && token >= 0))
    assert.deepEqual(await engine.tokenize(prompt), tokens)
  },
  'ends everything when it is closed, also twice': async (stage) => {
    const { engine, recorder, prompt } = stage
    const count = Math.min(4, engine.capacity.slots)
    const running = Array.from({ length: count }, () => stage.request(prompt, { ignoreEos: true }))
    const { promise: never, resolve: release } = Promise.withResolvers<void>()
    recorder.onDelta = () => never
    const generating = engine.generate(running, recorder)
    await recorder.until(() => running.some(({ id }) => recorder.of(id).deltas.length > 0))
    await Promise.all([engine.close(), engine.close()])
    for (const { id } of running) assert.equal(recorder.of(id).ends.length, 1)
    release()
    await generating
  },
  'fails what comes after it was closed': async (stage) => {
    await stage.engine.close()
    const late = stage.request(stage.prompt)
    await stage.ask(late)
    assert.ok(stage.failure(late.id) !== undefined)
    assert.equal(stage.recorder.textOf(late.id), '')
  },
}
