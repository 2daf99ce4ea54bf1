/** The contract of an inference engine as one callable suite. The test of every engine calls it. */

import assert from 'node:assert/strict'
import { systemClock } from '../foundation/clock.ts'
import type {
  GenerationEnd,
  GenerationInput,
  GenerationRequest,
  InferenceEngine,
  ModelFacts,
  Sampling,
  TokenLogprob,
} from '../inference/generation/inference-engine.ts'
import type { ContractTest } from './backend-contract.ts'
import { GenerationRecorder } from './recorders.ts'

/** Options that adapt `inferenceEngineContract` to one engine. */
export interface EngineContractOptions {
  /** Names of cases that do not apply to this engine, each with the reason. */
  readonly skip?: Readonly<Record<string, string>>
  /** A text that the model continues with more than three tokens. */
  readonly prompt?: string
  /** The token limit of most requests. Default 24. */
  readonly maxTokens?: number
}

/**
 * Declares one test per case. `create` must return a new engine that has not been started.
 *
 * @example
 * import { it } from 'vitest' // or `test` of node:test
 * inferenceEngineContract(it, () => new MyEngine(), { maxTokens: 16 })
 */
export function inferenceEngineContract(
  test: ContractTest,
  create: () => InferenceEngine | Promise<InferenceEngine>,
  options: EngineContractOptions = {},
): void {
  const { skip = {}, prompt = 'Once upon a time a small red fox', maxTokens = 24 } = options
  const unknown = Object.keys(skip).find((name) => !(name in engineCases))
  assert.equal(unknown, undefined, `the contract has no case "${unknown}"`)
  for (const [name, body] of Object.entries(engineCases)) {
    if (name in skip) continue
    test(name, async () => {
      const engine = await create()
      try {
        const fixture = new EngineFixture(engine, await engine.start(), prompt, maxTokens)
        await body(fixture)
        await engine.close()
        await fixture.settle()
        fixture.assertOneEndEach()
      } finally {
        await engine.close()
      }
    })
  }
}

interface AbortableRequest extends GenerationRequest {
  readonly abort: () => void
}

class EngineFixture {
  readonly engine: InferenceEngine
  readonly facts: ModelFacts
  readonly prompt: string
  readonly maxTokens: number
  readonly recorder = new GenerationRecorder()
  readonly #ids = new Set<string>()

  constructor(engine: InferenceEngine, facts: ModelFacts, prompt: string, maxTokens: number) {
    this.engine = engine
    this.facts = facts
    this.prompt = prompt
    this.maxTokens = maxTokens
  }

  /** Creates a request. A string is sent as raw text, which needs no chat template. */
  request(input: GenerationInput | string, sampling: Partial<Sampling> = {}): AbortableRequest {
    const controller = new AbortController()
    const id = `request-${this.#ids.size}`
    this.#ids.add(id)
    return {
      id,
      input: typeof input === 'string' ? { kind: 'text', text: input } : input,
      sampling: { ...greedySampling, maxTokens: this.maxTokens, ...sampling },
      signal: controller.signal,
      abort: () => controller.abort(),
    }
  }

  /** Sends requests in groups that fill the engine's slots. Resolves when all have ended. */
  async generate(...requests: readonly AbortableRequest[]): Promise<void> {
    const { slots } = this.engine.capacity
    for (let at = 0; at < requests.length; at += slots) {
      const group = requests.slice(at, at + slots)
      await this.engine.generate(group, this.recorder)
      for (const { id } of group) assert.ok(this.recorder.hasEnded(id), `${id} has no end`)
    }
  }

  expectDone(id: string): Extract<GenerationEnd, { kind: 'done' }> {
    const [end] = this.recorder.of(id).ends
    assert.ok(end?.kind === 'done', `${id} is not done: ${describeEnd(end)}`)
    return end
  }

  expectFailureCode(id: string): unknown {
    const [end] = this.recorder.of(id).ends
    assert.ok(end?.kind === 'failed', `${id} did not fail: ${describeEnd(end)}`)
    const { error } = end
    return typeof error === 'object' && error !== null && 'code' in error ? error.code : undefined
  }

  assertOneEndEach(): void {
    for (const id of this.recorder.ids) {
      const { ends, late } = this.recorder.of(id)
      assert.ok(this.#ids.has(id), `${id} is no request of this test`)
      assert.equal(ends.length, 1, `${id} has ${ends.length} ends`)
      assert.equal(late, 0, `${id} has text after its end`)
    }
  }

  /** Waits a few turns of the event loop, to detect calls of the listener that come too late. */
  async settle(): Promise<void> {
    for (let turn = 0; turn < 5; turn++) {
      await new Promise<void>((resolve) => systemClock.nextTurn(resolve))
    }
  }
}

function describeEnd(end: GenerationEnd | undefined): string {
  return end?.kind === 'failed' ? `failed with ${String(end.error)}` : (end?.kind ?? 'no end')
}

const verdictSchema = {
  type: 'object',
  properties: { verdict: { type: 'string', enum: ['yes', 'no'] }, isSure: { type: 'boolean' } },
  required: ['verdict', 'isSure'],
  additionalProperties: false,
}

const engineCases: Readonly<Record<string, (fixture: EngineFixture) => Promise<void>>> = {
  'reports the facts of its model after start': async ({ engine, facts }) => {
    assert.ok(facts.name.length > 0)
    assert.ok(Number.isInteger(facts.contextLength) && facts.contextLength > 0)
    assert.ok(['batch', 'step'].includes(engine.capacity.admits))
    assert.ok(Number.isInteger(engine.capacity.slots) && engine.capacity.slots > 0)
  },
  'ends each of many requests once, with its own text': async (fixture) => {
    const { prompt, recorder, maxTokens } = fixture
    // The text cannot be predicted, but the number of prompt tokens grows with the prompt's length.
    const many = Array.from({ length: 16 }, (_, at) => fixture.request(prompt + ' and'.repeat(at)))
    await fixture.generate(...many.toReversed())
    const usages = many.map(({ id }) => fixture.expectDone(id).usage)
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
  'continues a conversation': async (fixture) => {
    const messages = [
      { role: 'system', content: 'You are brief.' },
      { role: 'user', content: fixture.prompt },
    ] as const
    const one = fixture.request({ kind: 'chat', messages })
    await fixture.generate(one)
    assert.ok(fixture.recorder.textOf(one.id).length > 0)
    assert.ok(fixture.expectDone(one.id).usage.promptTokens > 0)
  },
  'stops at maxTokens with the finish reason length': async (fixture) => {
    const one = fixture.request(fixture.prompt, { maxTokens: 3, ignoreEos: true })
    await fixture.generate(one)
    const { finishReason, usage } = fixture.expectDone(one.id)
    assert.equal(finishReason, 'length')
    assert.ok(usage.completionTokens > 0 && usage.completionTokens <= 3)
  },
  'never outputs a stop string': async (fixture) => {
    const { recorder, prompt } = fixture
    const free = fixture.request(fixture.prompt)
    await fixture.generate(free)
    const text = recorder.textOf(free.id)
    const middle = Math.floor(text.length / 2)
    const stop = text.slice(middle, middle + 3)
    assert.ok(stop.length > 0, 'the model continues the prompt with no text')
    const one = fixture.request(prompt, { stop: ['text that does not occur', stop] })
    await fixture.generate(one)
    assert.ok(!recorder.textOf(one.id).includes(stop))
    assert.equal(fixture.expectDone(one.id).finishReason, 'stop')
  },
  'ends an aborted request as canceled and goes on with the others': async (fixture) => {
    const { recorder, prompt } = fixture
    const aborted = fixture.request(prompt, { ignoreEos: true })
    const others = [fixture.request(prompt), fixture.request(prompt)]
    // Aborts at the first delta. Even a fast engine cannot have ended the request by then.
    recorder.onDelta = (id) => {
      if (id === aborted.id) aborted.abort()
      return undefined
    }
    await fixture.generate(aborted, ...others)
    assert.deepEqual(recorder.of(aborted.id).ends, [{ kind: 'canceled' }])
    for (const { id } of others) fixture.expectDone(id)
  },
  'never begins a request that was aborted before': async (fixture) => {
    const [early, other] = [fixture.request(fixture.prompt), fixture.request(fixture.prompt)]
    early.abort()
    await fixture.generate(early, other)
    assert.deepEqual(fixture.recorder.of(early.id), {
      deltas: [],
      ends: [{ kind: 'canceled' }],
      late: 0,
    })
    fixture.expectDone(other.id)
  },
  'fails only the prompt that exceeds the context': async (fixture) => {
    const long = fixture.request('word '.repeat(2 * fixture.facts.contextLength))
    const others = [fixture.request(fixture.prompt), fixture.request(fixture.prompt)]
    await fixture.generate(long, ...others)
    assert.equal(fixture.expectFailureCode(long.id), 'context_length_exceeded')
    for (const { id } of others) fixture.expectDone(id)
  },
  'pauses only the request whose reader is slow': async (fixture) => {
    const { recorder, engine, prompt } = fixture
    const [slow, other] = [
      fixture.request(prompt, { ignoreEos: true }),
      fixture.request(fixture.prompt),
    ]
    const { promise: accepted, resolve: accept } = Promise.withResolvers<void>()
    recorder.onDelta = (id) => (id === slow.id ? accepted : undefined)
    const generating = fixture.generate(slow, other)
    const hasOtherSlot = engine.capacity.slots > 1
    await recorder.until(() => recorder.of(slow.id).deltas.length > 0)
    if (hasOtherSlot) await recorder.until(() => recorder.hasEnded(other.id))
    await fixture.settle()
    assert.equal(recorder.of(slow.id).deltas.length, 1)
    assert.equal(recorder.hasEnded(slow.id), false)
    accept()
    await generating
    fixture.expectDone(slow.id)
  },
  'gives the same text for the same seed': async (fixture) => {
    const [one, again] = [1, 2].map(() =>
      fixture.request(fixture.prompt, { temperature: 1, seed: 7 }),
    )
    assert.ok(one !== undefined && again !== undefined)
    await fixture.generate(one)
    await fixture.generate(again)
    assert.equal(fixture.recorder.textOf(again.id), fixture.recorder.textOf(one.id))
  },
  'produces JSON that matches a schema': async (fixture) => {
    const format = { kind: 'json_schema', schema: verdictSchema } as const
    const one = fixture.request(fixture.prompt, { format, maxTokens: 128 })
    await fixture.generate(one)
    const value: unknown = JSON.parse(fixture.recorder.textOf(one.id))
    assert.ok(typeof value === 'object' && value !== null)
    assert.deepEqual(Object.keys(value).toSorted(), ['isSure', 'verdict'])
    assert.ok('verdict' in value && ['yes', 'no'].includes(String(value.verdict)))
    assert.ok('isSure' in value && typeof value.isSure === 'boolean')
  },
  'calls the tool that toolChoice names': async (fixture) => {
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
    const one = fixture.request(input, { maxTokens: 128 })
    await fixture.generate(one)
    assert.equal(fixture.expectDone(one.id).finishReason, 'tool_calls')
    const calls = fixture.recorder.toolCallsOf(one.id)
    assert.deepEqual(
      calls.map(({ name }) => name),
      [tool.name],
    )
    const { city }: { city?: unknown } = JSON.parse(calls[0]?.arguments ?? '')
    assert.ok(city === 'Paris' || city === 'Rome')
  },
  'reports logprobs only when they are requested': async (fixture) => {
    const [silent, open] = [
      fixture.request(fixture.prompt),
      fixture.request(fixture.prompt, { logprobs: 2 }),
    ]
    await fixture.generate(silent, open)
    const reported = (id: string): TokenLogprob[] =>
      fixture.recorder.of(id).deltas.flatMap(({ logprobs = [] }) => logprobs)
    assert.deepEqual(reported(silent.id), [])
    assert.ok(reported(open.id).length > 0)
    for (const { logprob, top } of reported(open.id)) {
      assert.ok(logprob <= 0)
      assert.ok(top.length <= 2)
    }
  },
  'tokenizes text': async ({ engine, prompt }) => {
    const [nothing, tokens] = [await engine.tokenize(''), await engine.tokenize(prompt)]
    assert.ok(tokens.length > nothing.length)
    assert.ok(tokens.every((token) => Number.isInteger(token) && token >= 0))
    assert.deepEqual(await engine.tokenize(prompt), tokens)
  },
  'ends all requests on close, also when closed twice': async (fixture) => {
    const { engine, recorder, prompt } = fixture
    const count = Math.min(4, engine.capacity.slots)
    const running = Array.from({ length: count }, () =>
      fixture.request(prompt, { ignoreEos: true }),
    )
    const { promise: never, resolve: release } = Promise.withResolvers<void>()
    recorder.onDelta = () => never
    const generating = engine.generate(running, recorder)
    await recorder.until(() => running.some(({ id }) => recorder.of(id).deltas.length > 0))
    await Promise.all([engine.close(), engine.close()])
    for (const { id } of running) assert.equal(recorder.of(id).ends.length, 1)
    release()
    await generating
  },
  'fails requests after close': async (fixture) => {
    await fixture.engine.close()
    const lateRequest = fixture.request(fixture.prompt)
    await fixture.generate(lateRequest)
    assert.ok(fixture.expectFailureCode(lateRequest.id) !== undefined)
    assert.equal(fixture.recorder.textOf(lateRequest.id), '')
  },
}

/** Always takes the most likely token, and generates up to 16 tokens. */
export const greedySampling: Sampling = {
  maxTokens: 16,
  temperature: 0,
  topP: 1,
  topK: 0,
  minP: 0,
  repetitionPenalty: 1,
  presencePenalty: 0,
  frequencyPenalty: 0,
  logitBias: {},
  seed: null,
  stop: [],
  ignoreEos: false,
  logprobs: null,
  echo: false,
  format: { kind: 'text' },
}
