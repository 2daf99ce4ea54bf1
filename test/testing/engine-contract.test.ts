import { describe, expect, it } from 'vitest'
import type {
  GenerationListener,
  GenerationRequest,
  InferenceEngine,
  Sampling,
} from '../../src/inference/generation/inference-engine.ts'
import { createEchoEngine } from '../../src/inference/engines/echo.ts'
import { inferenceEngineContract } from '../../src/testing/engine-contract.ts'

/** A sound engine behind somebody who spoils what goes in or comes out. */
interface Spoiler {
  readonly engine?: Partial<InferenceEngine>
  readonly request?: (request: GenerationRequest) => GenerationRequest
  readonly listener?: (listener: GenerationListener) => GenerationListener
}

function spoiled(spoiler: Spoiler, sound = createEchoEngine()): InferenceEngine {
  const { request = (one) => one, listener = (one) => one } = spoiler
  return {
    capacity: sound.capacity,
    start: () => sound.start(),
    generate: (requests, heard) => sound.generate(requests.map(request), listener(heard)),
    tokenize: (text) => sound.tokenize(text),
    lost: () => sound.lost(),
    close: () => sound.close(),
    ...spoiler.engine,
  }
}

const sampled = (sampling: Partial<Sampling>) => (request: GenerationRequest) => ({
  ...request,
  sampling: { ...request.sampling, ...sampling },
})

const deaf = (request: GenerationRequest): GenerationRequest => ({
  ...request,
  signal: new AbortController().signal,
})

const heardAs =
  (change: (listener: GenerationListener) => Partial<GenerationListener>) =>
  (listener: GenerationListener): GenerationListener => ({
    delta: (id, delta) => listener.delta(id, delta),
    end: (id, end) => listener.end(id, end),
    ...change(listener),
  })

/** One after the other, as if they stood in a line. */
function inLine(sound: InferenceEngine): Partial<InferenceEngine> {
  return {
    async generate(requests, listener) {
      for (const one of requests) await sound.generate([one], listener)
    },
  }
}

function rejectingLongOnes(sound: InferenceEngine): Partial<InferenceEngine> {
  return {
    async generate(requests, listener) {
      const isLong = ({ input }: GenerationRequest): boolean =>
        input.kind === 'text' && input.text.length > 10_000
      if (requests.some(isLong)) throw new Error('too long')
      return sound.generate(requests, listener)
    },
  }
}

let randomness = 0
const many = 'ends each of many requests once, with its own text'

const flaws: Readonly<Record<string, [() => InferenceEngine, string[]]>> = {
  'knows nothing of itself': [
    () =>
      spoiled({
        engine: {
          start: async () => ({ name: '', contextLength: NaN, hasChatTemplate: true }),
        },
      }),
    ['reports the facts of its model after start'],
  ],
  'ends each request twice': [
    () =>
      spoiled({
        listener: heardAs((listener) => ({
          end(id, end) {
            listener.end(id, end)
            setImmediate(() => listener.end(id, end))
          },
        })),
      }),
    [many, 'continues a conversation'],
  ],
  'talks after the end': [
    () =>
      spoiled({
        listener: heardAs((listener) => ({
          end(id, end) {
            listener.end(id, end)
            void listener.delta(id, { text: 'and so on' })
          },
        })),
      }),
    [many],
  ],
  'mixes up the answers': [
    () => {
      const sound = createEchoEngine()
      return spoiled({
        engine: {
          generate(requests, listener) {
            const ids = requests.map(({ id }) => id)
            const wrong = (id: string): string => ids.at(-1 - ids.indexOf(id)) ?? id
            return sound.generate(requests, {
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
      spoiled({
        listener: heardAs((listener) => ({
          end: (id, end) => (id === 'request-7' ? undefined : listener.end(id, end)),
        })),
      }),
    [many],
  ],
  'speaks of a request that nobody made': [
    () =>
      spoiled({
        listener: heardAs((listener) => ({
          end(id, end) {
            listener.end(id, end)
            listener.end('a stranger', end)
          },
        })),
      }),
    [many],
  ],
  'cannot talk': [
    () =>
      spoiled({
        request: (one) =>
          one.input.kind === 'chat' ? { ...one, input: { kind: 'text', text: '' } } : one,
      }),
    ['continues a conversation', 'calls the tool that toolChoice names'],
  ],
  'goes on beyond maxTokens': [
    () => spoiled({ request: sampled({ maxTokens: 9, ignoreEos: false }) }),
    ['stops at maxTokens with the finish reason length'],
  ],
  'lets stop strings through': [
    () => spoiled({ request: sampled({ stop: [] }) }),
    ['never outputs a stop string'],
  ],
  'does not hear an abort': [
    () => spoiled({ request: deaf }),
    [
      'ends an aborted request as canceled and goes on with the others',
      'never begins a request that was aborted before',
    ],
  ],
  'reports an aborted request as done': [
    () =>
      spoiled({
        listener: heardAs((listener) => ({
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
  'fails everybody for one long prompt': [
    () => spoiled({ engine: rejectingLongOnes(createEchoEngine()) }),
    ['fails only the prompt that exceeds the context'],
  ],
  'cuts long prompts': [
    () =>
      spoiled({
        request: (one) =>
          one.input.kind === 'text'
            ? { ...one, input: { kind: 'text', text: one.input.text.slice(0, 200) } }
            : one,
      }),
    ['fails only the prompt that exceeds the context'],
  ],
  'waits for no reader': [
    () =>
      spoiled({
        listener: heardAs((listener) => ({
          delta: (id, delta) => void listener.delta(id, delta),
        })),
      }),
    ['pauses only the request whose reader is slow'],
  ],
  'lets all wait for one reader': [
    () => spoiled({ engine: inLine(createEchoEngine()) }),
    ['pauses only the request whose reader is slow'],
  ],
  'forgets its seed': [
    () =>
      spoiled({
        request: (one) => ({ ...one, input: { kind: 'text', text: `draw ${randomness++}` } }),
      }),
    ['gives the same text for the same seed'],
  ],
  'does not care for formats': [
    () => spoiled({ request: sampled({ format: { kind: 'text' } }) }),
    ['produces JSON that matches a schema'],
  ],
  'gives any JSON': [
    () => spoiled({ request: sampled({ format: { kind: 'json_object' } }) }),
    ['produces JSON that matches a schema'],
  ],
  'never tells logprobs': [
    () => spoiled({ request: sampled({ logprobs: null }) }),
    ['reports logprobs only when they are requested'],
  ],
  'always tells logprobs': [
    () => spoiled({ request: sampled({ logprobs: 2 }) }),
    ['reports logprobs only when they are requested'],
  ],
  'counts in fractions': [
    () => spoiled({ engine: { tokenize: async (text) => Array.from(text, (_, at) => at / 2) } }),
    ['tokenizes text'],
  ],
  'leaves its requests alone when it closes': [
    () => spoiled({ engine: { close: async () => {} } }),
    ['ends all requests on close, also when closed twice', 'fails requests after close'],
  ],
  'says canceled for everything after its close': [
    () => {
      let isClosed = false
      return spoiled({
        engine: {
          close: async () => {
            isClosed = true
          },
        },
        listener: heardAs((listener) => ({
          end: (id, end) => listener.end(id, isClosed ? { kind: 'canceled' } : end),
        })),
      })
    },
    ['fails requests after close'],
  ],
}

/** The cases that an engine fails: by an error, or by standing still. */
async function brokenCases(create: () => InferenceEngine): Promise<string[]> {
  const broken: string[] = []
  const cases: [string, () => Promise<void>][] = []
  inferenceEngineContract((name, body) => cases.push([name, body]), create)
  expect(cases.length).toBeGreaterThanOrEqual(16)
  for (const [name, body] of cases) {
    const idle = async (): Promise<void> => {
      for (let at = 0; at < 300; at++) await new Promise((resolve) => setImmediate(resolve))
      throw new Error('stands still')
    }
    await Promise.race([body(), idle()]).catch(() => broken.push(name))
  }
  return broken
}

describe('the contract suite of engines', () => {
  it('passes a sound engine, also one that takes one request at a time', async () => {
    expect(await brokenCases(() => createEchoEngine())).toEqual([])
    const narrow = (): InferenceEngine =>
      spoiled({ engine: { capacity: { admits: 'step', slots: 1 } } })
    expect(await brokenCases(narrow)).toEqual([])
  })

  it.each(Object.entries(flaws))('fails an engine that %s', async (_, [create, expected]) => {
    const broken = await brokenCases(create)
    expect(broken).toEqual(expect.arrayContaining(expected))
    expect(broken.length).toBeLessThan(16)
  })

  it('leaves out what is skipped, and refuses to skip what it does not know', () => {
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
