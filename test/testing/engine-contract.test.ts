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
const many = 'gives each of many requests its own answer, once'

const flaws: Readonly<Record<string, [() => InferenceEngine, string[]]>> = {
  'knows nothing of itself': [
    () =>
      spoiled({
        engine: {
          start: async () => ({ name: '', contextLength: NaN, hasChatTemplate: true }),
        },
      }),
    ['tells what it is once it has started'],
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
    [many, 'answers a conversation'],
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
    ['answers a conversation', 'calls the tool that it is told to call'],
  ],
  'goes on beyond maxTokens': [
    () => spoiled({ request: sampled({ maxTokens: 9, ignoreEos: false }) }),
    ['stops at maxTokens and says so'],
  ],
  'lets stop strings through': [
    () => spoiled({ request: sampled({ stop: [] }) }),
    ['never lets a stop string through'],
  ],
  'does not hear an abort': [
    () => spoiled({ request: deaf }),
    [
      'lets go of an aborted request and goes on with the others',
      'never begins what was aborted before',
    ],
  ],
  'fails everybody for one long prompt': [
    () => spoiled({ engine: rejectingLongOnes(createEchoEngine()) }),
    ['refuses a prompt beyond its context, and it alone'],
  ],
  'cuts long prompts': [
    () =>
      spoiled({
        request: (one) =>
          one.input.kind === 'text'
            ? { ...one, input: { kind: 'text', text: one.input.text.slice(0, 200) } }
            : one,
      }),
    ['refuses a prompt beyond its context, and it alone'],
  ],
  'waits for no reader': [
    () =>
      spoiled({
        listener: heardAs((listener) => ({
          delta: (id, delta) => void listener.delta(id, delta),
        })),
      }),
    ['holds back the request of a slow reader, and it alone'],
  ],
  'lets all wait for one reader': [
    () => spoiled({ engine: inLine(createEchoEngine()) }),
    ['holds back the request of a slow reader, and it alone'],
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
    ['keeps to a JSON schema'],
  ],
  'gives any JSON': [
    () => spoiled({ request: sampled({ format: { kind: 'json_object' } }) }),
    ['keeps to a JSON schema'],
  ],
  'never tells logprobs': [
    () => spoiled({ request: sampled({ logprobs: null }) }),
    ['tells how likely its tokens were, when asked'],
  ],
  'always tells logprobs': [
    () => spoiled({ request: sampled({ logprobs: 2 }) }),
    ['tells how likely its tokens were, when asked'],
  ],
  'counts in fractions': [
    () => spoiled({ engine: { tokenize: async (text) => Array.from(text, (_, at) => at / 2) } }),
    ['turns text into tokens'],
  ],
  'leaves its requests alone when it closes': [
    () => spoiled({ engine: { close: async () => {} } }),
    ['ends everything when it is closed, also twice', 'fails what comes after it was closed'],
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
    ['fails what comes after it was closed'],
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
