import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import Anthropic from '@anthropic-ai/sdk'
import { Ollama } from 'ollama'
import OpenAI from 'openai'
import { describe, expect, it } from 'vitest'
import { ManualClock } from '../../src/testing/manual-clock.ts'
import { createObedientEngine, openBackend, tempFolder } from './open-backend.ts'
import { ask, post } from './server/served.ts'

/** A server that has loaded the model `a`, and whose model `b` loads as `loading` says. */
async function openLoading(loading: Promise<void>, clock = new ManualClock()) {
  const config = {
    required: { model_name: 'a' },
    engine: { kind: 'echo' },
    models: [{ model_name: 'b' }],
  }
  loading.catch(() => {})
  const configFile = join(tempFolder(), 'model.json')
  writeFileSync(configFile, JSON.stringify(config))
  const { endpoint } = await openBackend({
    port: 0,
    configFile,
    modelName: 'a',
    clock,
    engine(worker) {
      const engine = createObedientEngine(worker)
      const start = engine.start.bind(engine)
      const waits = worker.workerId.startsWith('inference-b')
      return Object.assign(engine, { start: () => (waits ? loading.then(start) : start()) })
    },
  })
  return { url: String(endpoint), clock }
}

const messages = [{ role: 'user' as const, content: 'hi' }]
const chat = { model: 'b', messages }

/** How the client of each surface reads a stream. */
const readers: Readonly<Record<string, (url: string) => Promise<unknown>>> = {
  async chat(url) {
    const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: 'none', maxRetries: 0 })
    const stream = await client.chat.completions.create({ ...chat, stream: true })
    for await (const _ of stream);
  },
  async responses(url) {
    const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: 'none', maxRetries: 0 })
    const stream = await client.responses.create({ model: 'b', input: 'hi', stream: true })
    for await (const _ of stream);
  },
  async messages(url) {
    const client = new Anthropic({ baseURL: url, apiKey: 'none', maxRetries: 0 })
    await client.messages.stream({ ...chat, max_tokens: 5 }).finalMessage()
  },
  async ollama(url) {
    const stream = await new Ollama({ host: url }).chat({ ...chat, stream: true })
    for await (const _ of stream);
  },
}

describe('a stream whose model is loading', () => {
  it.each(Object.entries(readers))(
    'the client of %s reads why the load failed',
    async (_, read) => {
      const loading = Promise.withResolvers<void>()
      const { url } = await openLoading(loading.promise)
      const failing = expect(read(url)).rejects.toThrow('No engine is ready')
      loading.reject(new Error('broken file'))
      await failing
    },
  )

  it('a failed stream of chunks ends with [DONE], as after an error in its middle', async () => {
    const { url } = await openLoading(Promise.reject(new Error('broken file')))
    const { text } = await post(`${url}/v1/chat/completions`, { ...chat, stream: true })
    expect(text).toMatch(/^: the model is loading\n\ndata: \{"error".*\}\n\ndata: \[DONE\]\n\n$/)
  })

  it('the log has the reason of a failed load once', async () => {
    const { url } = await openLoading(Promise.reject(new Error('broken file')))
    const warned = once(process, 'warning')
    expect((await post(`${url}/v1/chat/completions`, chat)).status).toBe(503)
    const [{ message }] = (await warned) as [Error]
    expect(message).toMatch(/ not_ready: the model "b" did not load: broken file$/)
  })

  it('the lines of Ollama begin at once, without text', async () => {
    const loading = Promise.withResolvers<void>()
    const { url, clock } = await openLoading(loading.promise)
    const response = await fetch(`${url}/api/chat`, { method: 'POST', body: JSON.stringify(chat) })
    expect(response.headers.get('content-type')).toBe('application/x-ndjson')
    const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader()
    const sign = { model: 'b', done: false, message: { role: 'assistant', content: '' } }
    expect(JSON.parse((await reader?.read())?.value ?? '')).toMatchObject(sign)
    await clock.advance(5000)
    expect(JSON.parse((await reader?.read())?.value ?? '')).toMatchObject(sign)
    loading.resolve()
    let rest = ''
    for (let piece = await reader?.read(); piece?.done === false; piece = await reader?.read()) {
      rest += piece.value
    }
    expect(rest).toContain('"content":"re: hi"')
    expect(JSON.parse(rest.trim().split('\n').at(-1) ?? '')).toMatchObject({
      done: true,
      load_duration: 5e9,
      total_duration: 5e9,
    })
  })

  it('a request of Ollama that only loads a model ends when it is loaded', async () => {
    const loading = Promise.withResolvers<void>()
    const { url } = await openLoading(loading.promise)
    const reply = ask(`${url}/api/generate`, { method: 'POST', body: '{"model":"b"}' })
    loading.resolve()
    const lines = (await reply).text.trim().split('\n')
    expect(JSON.parse(lines.at(-1) ?? '')).toMatchObject({ done: true, done_reason: 'load' })
  })
})

it('only Ollama’s names of models have the tag :latest, as with one model', async () => {
  const { url } = await openLoading(Promise.resolve())
  const named = { model: 'a:latest', messages, stream: false }
  expect((await post(`${url}/api/chat`, named)).status).toBe(200)
  const refused = await post(`${url}/v1/chat/completions`, named)
  expect([refused.status, refused.json.error.message]).toEqual([
    404,
    "The model 'a:latest' does not exist here. Served: a, b.",
  ])
})

it.each([{ a: 1 }, ['b'], 7])(
  'a model that is %j instead of a name loads nothing',
  async (model) => {
    const { url } = await openLoading(new Promise(() => {}))
    const { status, json } = await post(`${url}/v1/chat/completions`, { ...chat, model })
    expect([status, json.error.code, json.error.param]).toEqual([400, 'invalid_type', 'model'])
  },
)
