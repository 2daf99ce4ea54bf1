import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, describe, expect, it } from 'vitest'
import { loadInferenceConfig } from '../../../../src/inference/config/config.ts'
import { estimateModelBytes } from '../../../../src/inference/pool/model-memory.ts'
import { openBackend } from '../../open-backend.ts'
import { post } from '../../server/served.ts'
import { RecordingGeneration, toRequest } from '../generation.ts'
import { adapterAlpha, adapterRank, writeTinyAdapter, writeTinyModel } from '../tiny-model.ts'
import { openEngine } from './open-engine.ts'
import { computeLogprobs } from './reference-embedding.ts'

const folder = mkdtempSync(join(tmpdir(), 'tutti-adapters-'))
afterAll(() => rmSync(folder, { recursive: true, force: true }))
const model = writeTinyModel(folder)
const adapter = writeTinyAdapter(folder)

async function firstLogprob(adapterPath: string | null) {
  const engine = await openEngine(model, { adapterPath })
  const listener = new RecordingGeneration()
  const greedy = { temperature: 0, topK: 1, maxTokens: 1, logprobs: 1, ignoreEos: true }
  await engine.generate([toRequest({ kind: 'text', text: 'hello' }, greedy)], listener)
  const tokens = [1, ...(await engine.tokenize('hello'))]
  const logprob = listener.deltas.flatMap((delta) => delta.logprobs ?? [])[0]?.logprob ?? NaN
  return { tokens, logprob }
}

describe('LoRA adapters', () => {
  it('a model with an adapter has the probabilities of a reference', async () => {
    const scale = adapterAlpha / adapterRank
    const adapted = await firstLogprob(adapter)
    const expected = await computeLogprobs(model, adapted.tokens, { path: adapter, scale })
    expect(adapted.logprob).toBeCloseTo(Math.max(...expected), 2)
    const plain = await firstLogprob(null)
    expect(plain.logprob).toBeCloseTo(Math.max(...(await computeLogprobs(model, plain.tokens))), 2)
    expect(Math.abs(adapted.logprob - plain.logprob)).toBeGreaterThan(0.05)
  })

  it('an adapter is served by its name, and its file counts as memory', async () => {
    const item = {
      model_name: model,
      served_name: 'base',
      adapters: [{ name: 'tuned', path: adapter }],
    }
    const file = join(folder, 'model.json')
    const engine = { kind: 'llama', threads: 1, gpu: false, sequences: 1 }
    writeFileSync(file, JSON.stringify({ engine, llm: { max_model_len: 128 }, models: [item] }))
    const config = await loadInferenceConfig(file, { modelName: model })
    const [base = 0, tuned = 0] = await Promise.all(
      config.models.map((one) => estimateModelBytes(one.config)),
    )
    expect(tuned - base).toBeGreaterThan(5000)
    const { endpoint } = await openBackend({ port: 0, configFile: file, modelName: model })
    const ask = async (name: string): Promise<string> => {
      const body = { model: name, prompt: 'hello', max_tokens: 8, temperature: 0, ignore_eos: true }
      const { json } = await post(`${endpoint}/v1/completions`, body)
      return json.choices[0].text
    }
    const [first, second, third] = await Promise.all([ask('base'), ask('tuned'), ask('tiny')])
    expect(third).toBe(first)
    expect(second).not.toBe(first)
  })

  it('adapters need a model for text of the llama engine', async () => {
    const file = join(folder, 'wrong.json')
    const item = { model_name: model, served_name: 'a', adapters: [{ name: 'b', path: adapter }] }
    const problem = /models\[0\]\.adapters: only models for text of the llama engine/
    for (const wrong of [{ purpose: 'embedding' }, { engine: { kind: 'echo' } }]) {
      writeFileSync(file, JSON.stringify({ models: [{ ...item, ...wrong }] }))
      await expect(loadInferenceConfig(file, { modelName: model })).rejects.toThrow(problem)
    }
  })
})
