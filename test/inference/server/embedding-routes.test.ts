import OpenAI from 'openai'
import { describe, expect, it } from 'vitest'
import { configWith, createObedientEngine, openBackend } from '../open-backend.ts'
import { ask, post } from './served.ts'

async function openEchoes(sections = '') {
  const { endpoint } = await openBackend({ port: 0, configFile: configWith(sections) })
  return `${endpoint}/v1/embeddings`
}

const lengthOf = (vector: readonly number[]): number => Math.hypot(...vector)

const readBase64 = (text: string): number[] => {
  const bytes = Uint8Array.from(Buffer.from(text, 'base64'))
  return Array.from(new Float32Array(bytes.buffer))
}

describe('POST /v1/embeddings', () => {
  it('one text and several give vectors of length 1, in order, and their tokens', async () => {
    const url = await openEchoes()
    const { status, json } = await post(url, { model: 'tiny', input: ['hello world', 'other'] })
    expect(status).toBe(200)
    const usage = { prompt_tokens: 5, total_tokens: 5 }
    expect(json).toMatchObject({ object: 'list', model: 'tiny', usage })
    const [first, second] = json.data
    expect([first.index, first.object, second.index]).toEqual([0, 'embedding', 1])
    expect(lengthOf(first.embedding)).toBeCloseTo(1, 5)
    expect(second.embedding).not.toEqual(first.embedding)
    const alone = await post(url, { input: 'other' })
    expect(alone.json.data).toEqual([{ ...second, index: 0 }])
  })

  it('`dimensions` keeps the first numbers, and `base64` has the same numbers', async () => {
    const url = await openEchoes()
    const whole = (await post(url, { input: 'hello' })).json.data[0].embedding
    const short = (await post(url, { input: 'hello', dimensions: 8 })).json.data[0].embedding
    expect(short).toHaveLength(8)
    expect(lengthOf(short)).toBeCloseTo(1, 5)
    expect(short[0] / short[1]).toBeCloseTo(whole[0] / whole[1], 4)
    const encoded = { input: 'hello', encoding_format: 'base64' }
    const { embedding } = (await post(url, encoded)).json.data[0]
    expect(readBase64(embedding)).toEqual(whole)
    const { json } = await post(url, { input: 'hello', dimensions: 65 })
    expect(json.error).toMatchObject({ code: 'integer_above_max_value', param: 'dimensions' })
  })

  it('the openai client gets the numbers, and similar texts are nearer', async () => {
    const url = await openEchoes()
    const client = new OpenAI({ baseURL: url.replace('/embeddings', ''), apiKey: 'none' })
    const input = ['the red car', 'the red bus', 'nothing alike']
    const { data } = await client.embeddings.create({ model: 'tiny', input })
    const [car = [], bus = [], other = []] = data.map(({ embedding }) => embedding)
    const similarity = (one: number[], two: number[]): number =>
      one.reduce((sum, value, at) => sum + value * (two[at] ?? 0), 0)
    expect(similarity(car, bus)).toBeGreaterThan(similarity(car, other))
  })

  it('the Ollama API has the same numbers at /api/embed', async () => {
    const url = await openEchoes()
    const ollama = url.replace('/v1/embeddings', '/api/embed')
    const { data } = (await post(url, { input: ['a', 'b'], dimensions: 4 })).json
    const { json } = await post(ollama, { model: 'tiny:latest', input: ['a', 'b'], dimensions: 4 })
    const embeddings = data.map((one: { embedding: number[] }) => one.embedding)
    expect(json).toMatchObject({ model: 'tiny:latest', embeddings, prompt_eval_count: 4 })
    const wrong = await post(ollama, { model: 'tiny', input: '' })
    expect([wrong.status, typeof wrong.json.error]).toEqual([400, 'string'])
    expect((await post(ollama, { model: 'other', input: 'a' })).status).toBe(404)
  })

  it('a wrong body gets 400 with the field', async () => {
    const url = await openEchoes('hardware:\n  queue_limit: 2\n')
    const wrong = [
      [{}, 'missing_required_parameter', 'input'],
      [{ input: '' }, 'empty_string', 'input'],
      [{ input: [] }, 'empty_array', 'input'],
      [{ input: ['a', 'b', 'c'] }, 'array_above_max_length', 'input'],
      [{ input: 'a', encoding_format: 'hex' }, 'invalid_value', 'encoding_format'],
      [{ input: 'a', dimensions: 0 }, 'integer_below_min_value', 'dimensions'],
      [{ input: 'a '.repeat(9000) }, 'context_length_exceeded', null],
      [{ input: 'a', model: 'other' }, 'model_not_found', 'model'],
    ] as const
    for (const [body, code, param] of wrong) {
      const { json } = await post(url, body)
      expect(json.error).toMatchObject({ code, param })
    }
  })

  it('guardrails check the texts, and refuse token ids', async () => {
    const rules = '{ id: fish, keywords: [swordfish] }'
    const url = await openEchoes(`guardrails:\n  toggle_on: true\n  rules: [${rules}]\n`)
    expect((await post(url, { input: 'a' })).status).toBe(200)
    const { json } = await post(url, { input: ['a', 'b swordfish'] })
    expect(json.error.code).toBe('content_filter')
  })

  it('the document has the route only if the engine computes embeddings', async () => {
    const url = await openEchoes()
    const { json } = await ask(url.replace('/v1/embeddings', '/openapi.json'))
    expect(Object.keys(json.paths)).toContain('/v1/embeddings')
    expect(Object.keys(json.components.schemas)).toContain('EmbeddingRequest')
    const without = await openBackend({ port: 0, engine: createObedientEngine })
    const missing = await post(`${without.endpoint}/v1/embeddings`, { input: 'a' })
    expect([missing.status, missing.json.error.code]).toEqual([404, 'unknown_url'])
  })
})
