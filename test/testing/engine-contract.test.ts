import { describe, expect, it } from 'vitest'
import type {
  GenerationListener,
  GenerationRequest,
  InferenceEngine,
  Sampling,
} from '../../src/inference/generation/inference-engine.ts'
import { createEchoEngine } from '../../src/inference/engines/echo/echo-engine.ts'
import { inferenceEngineContract } from '../../src/testing/engine-contract.ts'

/** Changes to the requests, the calls or the methods of a correct engine. */
interface Flaw {
  readonly engine?: Partial<InferenceEngine>
  readonly request?: (request: GenerationRequest) => GenerationRequest
  readonly listener?: (listener: GenerationListener) => GenerationListener
}

function flawed(flaw: Flaw, correct = createEchoEngine()): InferenceEngine {
  const { request = (one) => one, listener = (one) => one } = flaw
  return {
    capacity: correct.capacity,
    start: () => correct.start(),
    generate: (requests, original) => correct.generate(requests.map(request), listener(original)),
    tokenize: (text) => correct.tokenize(text),
    lost: () => correct.lost(),
    close: () => correct.close(),
    ...flaw.engine,
  }
}

const sampled = (sampling: Partial<Sampling>) => (request: GenerationRequest) => ({
  ...request,
  sampling: { ...request.sampling, ...sampling },
})

const withoutSignal = (request: GenerationRequest): GenerationRequest => ({
  ...request,
  signal: new AbortController().signal,
})

const changed =
  (change: (listener: GenerationListener) => Partial<GenerationListener>) =>
  (listener: GenerationListener): GenerationListener => ({
    delta: (id, delta) => listener.delta(id, delta),
    end: (id, end) => listener.end(id, end),
    ...change(listener),
  })

/** Runs the requests of a batch one after the other. */
function oneByOne(correct: InferenceEngine): Partial<InferenceEngine> {
  return {
    async generate(requests, listener) {
      for (const one of requests) await correct.generate([one], listener)
    },
  }
}

function rejectingLongPrompts(correct: InferenceEngine): Partial<InferenceEngine> {
  return {
    async generate(requests, listener) {
      const isLong = ({ input }: GenerationRequest): boolean =>
        input.kind === 'text' && input.text.length > 10_000
      if (requests.some(isLong)) throw new Error('too long')
      return correct.generate(requests, listener)
    },
  }
}

let randomness = 0
const many = 'ends each of many requests once, with its own text'

const flaws: Readonly<Record<string, [() => InferenceEngine, string[]]>> = {
  'reports no facts of its model': [
    () =>
      flawed({
        engine: {
          start: async () => ({ name: '', contextLength: NaN, hasChatTemplate: true }),
        },
      }),
    ['reports the facts of its model after start'],
  ],
  'ends each request twice': [
    () =>
      flawed({
        listener: changed((listener) => ({
          end(id, end) {
            listener.end(id, end)
            setImmediate(() => listener.end(id, end))
          },
        })),
      }),
    [many, 'continues a conversation'],
  ],
  'sends text after the end': [
    () =>
      flawed({
        listener: changed((listener) => ({
          end(id, end) {
            listener.end(id, end)
            void listener.delta(id, { text: 'and so on' })
          },
        })),
      }),
    [many],
  ],
  'mixes up the ids': [
    () => {
      const correct = createEchoEngine()
      return flawed({
        engine: {
          generate(requests, listener) {
            const ids = requests.map(({ id }) => id)
            const wrong = (id: string): string => ids.at(-1 - ids.indexOf(id)) ?? id
            return correct.generate(requests, {
              delta: (id, delta) => listener.delta(wrong(id), delta),
              end: (id, end) => listener.end(wrong(id), end),
            })
          },
        },
      })
    },
    [many],
  ],
  'forgets one of many': [
    () =>
      flawed({
        listener: changed((listener) => ({
          end: (id, end) => (id === 'request-7' ? undefined : listener.end(id, end)),
        })),
      }),
    [many],
  ],
  'uses an unknown id': [
    () =>
      flawed({
        listener: changed((listener) => ({
          end(id, end) {
            listener.end(id, end)
            listener.end('unknown', end)
          },
        })),
      }),
    [many],
  ],
  'ignores conversations': [
    () =>
      flawed({
        request: (one) =>
          one.input.kind === 'chat' ? { ...one, input: { kind: 'text', text: '' } } : one,
      }),
    ['continues a conversation', 'calls the tool that toolChoice names'],
  ],
  'goes on beyond maxTokens': [
    () => flawed({ request: sampled({ maxTokens: 9, ignoreEos: false }) }),
    ['stops at maxTokens with the finish reason length'],
  ],
  'outputs stop strings': [
    () => flawed({ request: sampled({ stop: [] }) }),
    ['never outputs a stop string'],
  ],
  'ignores an abort': [
    () => flawed({ request: withoutSignal }),
    [
      'ends an aborted request as canceled and goes on with the others',
      'never begins a request that was aborted before',
    ],
  ],
  'reports an aborted request as done': [
    () =>
      flawed({
        listener: changed((listener) => ({
          end(id, end) {
            const usage = { promptTokens: 1, completionTokens: 1 }
            const done = { kind: 'done', finishReason: 'stop', usage } as const
            listener.end(id, end.kind === 'canceled' ? done : end)
          },
        })),
      }),
    [
      'ends an aborted request as canceled and goes on with the others',
      'never begins a request that was aborted before',
    ],
  ],
  'fails the whole batch for one long prompt': [
    () => flawed({ engine: rejectingLongPrompts(createEchoEngine()) }),
    ['fails only the prompt that exceeds the context'],
  ],
  'truncates long prompts': [
    () =>
      flawed({
        request: (one) =>
          one.input.kind === 'text'
            ? { ...one, input: { kind: 'text', text: one.input.text.slice(0, 200) } }
            : one,
      }),
    ['fails only the prompt that exceeds the context'],
  ],
  'does not pause for a slow reader': [
    () =>
      flawed({
        listener: changed((listener) => ({
          delta: (id, delta) => void listener.delta(id, delta),
        })),
      }),
    ['pauses only the request whose reader is slow'],
  ],
  'pauses all requests for one slow reader': [
    () => flawed({ engine: oneByOne(createEchoEngine()) }),
    ['pauses only the request whose reader is slow'],
  ],
  'ignores the seed': [
    () =>
      flawed({
        request: (one) => ({ ...one, input: { kind: 'text', text: `draw ${randomness++}` } }),
      }),
    ['gives the same text for the same seed'],
  ],
  'ignores the output format': [
    () => flawed({ request: sampled({ format: { kind: 'text' } }) }),
    ['produces JSON that matches a schema'],
  ],
  'ignores the JSON schema': [
    () => flawed({ request: sampled({ format: { kind: 'json_object' } }) }),
    ['produces JSON that matches a schema'],
  ],
  'never reports logprobs': [
    () => flawed({ request: sampled({ logprobs: null }) }),
    ['reports logprobs only when they are requested'],
  ],
  'always reports logprobs': [
    () => flawed({ request: sampled({ logprobs: 2 }) }),
    ['reports logprobs only when they are requested'],
  ],
  'tokenizes to fractions': [
    () => flawed({ engine: { tokenize: async (text) => Array.from(text, (_, at) => at / 2) } }),
    ['tokenizes text'],
  ],
  'does not end its requests on close': [
    () => flawed({ engine: { close: async () => {} } }),
    ['ends all requests on close, also when closed twice', 'fails requests after close'],
  ],
  'reports canceled for every request after close': [
    () => {
      let isClosed = false
      return flawed({
        engine: {
          close: async () => {
            isClosed = true
          },
        },
        listener: changed((listener) => ({
          end: (id, end) => listener.end(id, isClosed ? { kind: 'canceled' } : end),
        })),
      })
    },
    ['fails requests after close'],
  ],
}

/** The cases that an engine fails, by an error or by making no progress. */
async function brokenCases(create: () => InferenceEngine): Promise<string[]> {
  const broken: string[] = []
  const cases: [string, () => Promise<void>][] = []
  inferenceEngineContract((name, body) => cases.push([name, body]), create)
  expect(cases.length).toBeGreaterThanOrEqual(16)
  for (const [name, body] of cases) {
    const idle = async (): Promise<void> => {
      for (let at = 0; at < 300; at++) await new Promise((resolve) => setImmediate(resolve))
      throw new Error('no progress')
    }
    await Promise.race([body(), idle()]).catch(() => broken.push(name))
  }
  return broken
}

describe('the contract suite of inference engines', () => {
  it('the engine contract suite passes a correct engine, also one with a single slot', async () => {
    expect(await brokenCases(() => createEchoEngine())).toEqual([])
    const narrow = (): InferenceEngine =>
      flawed({ engine: { capacity: { admits: 'step', slots: 1 } } })
    expect(await brokenCases(narrow)).toEqual([])
  })

  it.each(Object.entries(flaws))(
    'the engine contract suite fails an engine that %s',
    async (_, [create, expected]) => {
      const broken = await brokenCases(create)
      expect(broken).toEqual(expect.arrayContaining(expected))
      expect(broken.length).toBeLessThan(16)
    },
  )

  it('the engine contract suite leaves out skipped cases, and rejects unknown names', () => {
    const names: string[] = []
    const collect = (name: string): number => names.push(name)
    inferenceEngineContract(collect, createEchoEngine, { skip: { [many]: 'for a reason' } })
    expect(names).not.toContain(many)
    const wrong = { skip: { 'does magic': 'no' } }
    expect(() => inferenceEngineContract(collect, createEchoEngine, wrong)).toThrow(
      'the contract has no case "does magic"',
    )
  })
})
