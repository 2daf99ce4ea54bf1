import { describe, expect, it } from 'vitest'
import {
  type NativeSampler,
  type SamplerConfig,
  SamplerPool,
} from '../../../../../src/inference/engines/llama/evaluation/native-context.ts'
import type {
  LlamaRuntime,
  Token,
  TokenChoice,
} from '../../../../../src/inference/engines/llama/runtime.ts'
import { loadStorySlot } from '../open-engine.ts'

class FakeSampler implements NativeSampler {
  readonly configs: SamplerConfig[] = []
  isDisposed = false

  applyConfig(config: SamplerConfig): void {
    this.configs.push(config)
  }

  dispose(): void {
    this.isDisposed = true
  }
}

function openPool() {
  const created: FakeSampler[] = []
  const pool = new SamplerPool(() => {
    const sampler = new FakeSampler()
    created.push(sampler)
    return sampler
  })
  return { pool, created }
}

describe('native samplers', () => {
  it('one that was released is used again, without its settings', () => {
    const { pool, created } = openPool()
    for (let use = 0; use < 100; use++) pool.release(pool.acquire())
    expect(created).toHaveLength(1)
    const [first, second] = created[0]?.configs ?? []
    expect(first).toEqual({ temperature: 0, seed: expect.any(Number) as number })
    expect(second?.seed).not.toBe(first?.seed)
  })

  it('one that is still in use when it is released is not used again', async () => {
    const { pool, created } = openPool()
    const sampling = Promise.withResolvers<number>()
    const sampler = pool.acquire()
    const used = pool.use(sampler, () => sampling.promise)
    pool.release(sampler)
    expect(created[0]?.isDisposed).toBe(true)
    expect(pool.acquire()).not.toBe(sampler)
    sampling.resolve(5)
    expect(await used).toBe(5)
  })

  it('a sampler pool keeps at most 64 samplers', () => {
    const { pool, created } = openPool()
    const taken = Array.from({ length: 70 }, () => pool.acquire())
    for (const sampler of taken) pool.release(sampler)
    expect(created.filter(({ isDisposed }) => isDisposed)).toHaveLength(6)
  })
})

/** Answers of eight tokens at most after the same prompt, in one slot. */
async function openWriter() {
  const { slot, vocabulary, createGrammar, greedy } = await loadStorySlot({
    batchSize: 64,
    contextLength: 64,
  })
  const prompt = vocabulary.tokenize('Once upon', { special: false, inner: false })
  const write = async (choice: Partial<TokenChoice>): Promise<Token[]> => {
    await slot.truncate(0)
    const stream = slot.generate([1, ...prompt], { ...greedy, ...choice })
    const tokens: Token[] = []
    while (tokens.length < 8 && !tokens.some((token) => vocabulary.isEnd(token)))
      tokens.push((await stream.next()).token)
    await stream.close()
    return tokens
  }
  const writeBy = async (format: Grammatical): Promise<string> =>
    vocabulary.textOf(await write({ grammar: createGrammar(format) }), [])
  return { write, writeBy }
}

let opened: ReturnType<typeof openWriter> | undefined
/** One for all tests: loading the model takes longer than they do. */
const sharedWriter = (): ReturnType<typeof openWriter> => (opened ??= openWriter())

type Grammatical = Parameters<LlamaRuntime['createGrammar']>[0]

it('an answer does not depend on the answers before it', async () => {
  const { write } = await sharedWriter()
  const random = { temperature: 1.5, seed: 7 }
  const [plain, drawn] = [await write({}), await write(random)]
  expect(await write(random)).toEqual(drawn)
  const banned = { isChanging: false, biases: new Map([[plain[0] ?? 0, -100]]) }
  expect((await write({ bias: banned }))[0]).not.toBe(plain[0])
  const recent = (): Token[] => [...plain]
  await write({ ...random, topK: 2, repetition: { penalty: 9, window: 64, recent }, logprobs: 3 })
  expect(await write({})).toEqual(plain)
  expect(await write(random)).toEqual(drawn)
})

it('the grammar of an answer does not hold for the next one', async () => {
  const { write, writeBy } = await sharedWriter()
  const plain = await write({})
  // The grammar is applied to all tokens: most begin with a letter, and few are one letter.
  const letters: Grammatical = { kind: 'regex', pattern: '^([a-z] ){6}$', field: 'guided_regex' }
  const numbers = { type: 'array', items: { type: 'integer', maximum: 9 }, minItems: 2 }
  const list: Grammatical = { kind: 'json_schema', schema: { ...numbers, maxItems: 2 } }
  const [spelled, listed] = [await writeBy(letters), await writeBy(list)]
  expect(spelled).toMatch(/^ ?([a-z] ){3,4}/)
  expect(listed).toMatch(/^\[/)
  expect(await write({})).toEqual(plain)
  expect([await writeBy(list), await writeBy(letters)]).toEqual([listed, spelled])
  expect(await write({})).toEqual(plain)
})
