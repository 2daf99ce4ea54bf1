import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, describe, expect, it } from 'vitest'
import type { InferenceEngine } from '../../../../src/inference/generation/inference-engine.ts'
import { RecordingGeneration, toRequest } from '../generation.ts'
import { tinyContext, writeTinyModel } from '../tiny-model.ts'
import { openEngine, storyModel } from './open-engine.ts'
import { computeHiddenStates } from './reference-embedding.ts'

const folder = mkdtempSync(join(tmpdir(), 'tutti-embeddings-'))
afterAll(() => rmSync(folder, { recursive: true, force: true }))

const [mean, last] = [1, 3]

async function embed(engine: InferenceEngine, input: string | readonly number[]) {
  const listener = new RecordingGeneration()
  const text = typeof input === 'string' ? { text: input } : { text: '', tokens: input }
  await engine.generate([toRequest({ kind: 'text', ...text, wantsEmbedding: true })], listener)
  const [end] = listener.ends
  return { vector: Array.from(listener.deltas[0]?.embedding ?? []), end }
}

function toUnit(vector: readonly number[]): number[] {
  const length = Math.hypot(...vector)
  return vector.map((value) => value / length)
}

/** llama.cpp rounds keys and values to 16 bits, and the numbers of a vector are about 0.1. */
function expectClose(vector: readonly number[], expected: readonly number[]): void {
  expect(vector).toHaveLength(expected.length)
  const errors = vector.map((value, at) => Math.abs(value - (expected[at] ?? 0)))
  expect(Math.max(...errors)).toBeLessThan(1e-3)
}

describe('embeddings of the llama engine', () => {
  it('the embedding is that of a reference, pooled as the file says', async () => {
    const sentences = ['Once upon a time', 'a', 'the quick brown fox jumps over the lazy dog']
    for (const pooling of [mean, last]) {
      const path = writeTinyModel(folder, undefined, pooling)
      const engine = await openEngine(path)
      const facts = await engine.start()
      expect(facts).toMatchObject({ purpose: 'embedding', contextLength: tinyContext })
      expect(facts.fields).toEqual(['prompt.tokens', 'embeddings'])
      for (const text of sentences) {
        const tokens = [1, ...(await engine.tokenize(text))]
        const states = await computeHiddenStates(path, tokens)
        const sums = (states[0] ?? []).map((_, at) =>
          states.reduce((sum, state) => sum + (state[at] ?? 0), 0),
        )
        const { vector, end } = await embed(engine, text)
        expectClose(vector, toUnit(pooling === mean ? sums : (states.at(-1) ?? [])))
        const usage = { promptTokens: tokens.length, completionTokens: 0 }
        expect(end).toMatchObject({ kind: 'done', finishReason: 'stop', usage })
        expectClose((await embed(engine, tokens)).vector, vector)
      }
    }
  })

  it('a model for text embeds if its purpose is set; the last token counts', async () => {
    const path = writeTinyModel(folder)
    const engine = await openEngine(path, { purpose: 'embedding' })
    const states = await computeHiddenStates(path, [1, ...(await engine.tokenize('hello'))])
    expectClose((await embed(engine, 'hello')).vector, toUnit(states.at(-1) ?? []))
    const story = await openEngine(storyModel())
    expect(await story.start()).toMatchObject({ purpose: 'chat' })
  })

  it('a request that an embedding model cannot serve fails alone', async () => {
    const engine = await openEngine(writeTinyModel(folder, undefined, mean))
    const listener = new RecordingGeneration()
    const aborted = AbortSignal.abort()
    const text = { kind: 'text', text: 'hello', wantsEmbedding: true } as const
    await engine.generate(
      [
        toRequest('say hello', {}, { id: 'chat' }),
        toRequest({ ...text, text: 'a '.repeat(tinyContext) }, {}, { id: 'long' }),
        toRequest({ ...text, tokens: [5, 99_999] }, {}, { id: 'unknown' }),
        toRequest(text, {}, { id: 'aborted', signal: aborted }),
        toRequest(text, {}, { id: 'good' }),
      ],
      listener,
    )
    const ends = Object.fromEntries(listener.ends.map(({ id, ...end }) => [id, end]))
    expect(ends).toMatchObject({
      chat: { kind: 'failed', error: { code: 'unsupported' } },
      long: { kind: 'failed', error: { code: 'context_length_exceeded' } },
      unknown: { kind: 'failed', error: { refusal: { status: 400, param: 'input' } } },
      aborted: { kind: 'canceled' },
      good: { kind: 'done' },
    })
    expect(listener.ends).toHaveLength(5)
  })
})
