import { writeFileSync } from 'node:fs'
import { lookup } from 'node:dns/promises'
import { hostname } from 'node:os'
import { describe, expect, it, onTestFinished } from 'vitest'
import { isLoopbackHost } from '../../src/foundation/options.ts'
import { InferenceBackend } from '../../src/inference/inference-backend.ts'
import { freePort } from '../free-port.ts'
import { post } from './server/served.ts'
import { configWith, createObedientEngine, openBackend } from './open-backend.ts'

describe('the server of an inference backend', () => {
  it('the server of a backend has the address http://<hostname>:<port> if possible', async () => {
    const { endpoint } = await openBackend({ port: 0 })
    const found = await lookup(hostname(), { all: true }).catch(() => [])
    const isHere = found.length > 0 && found.every(({ address }) => isLoopbackHost(address))
    expect(new URL(endpoint ?? '').hostname).toBe(isHere ? hostname() : '127.0.0.1')
    const health = await (await fetch(`${endpoint}/health`)).json()
    expect(health).toMatchObject({ status: 'healthy', endpoint, hostname: hostname() })
  })

  it('row 82: a busy port is found before an engine is started', async () => {
    const first = await openBackend({ port: 0 })
    let engines = 0
    const attempt = openBackend({
      port: Number(new URL(first.endpoint ?? '').port),
      engine(worker) {
        engines++
        return createObedientEngine(worker)
      },
    })
    await expect(attempt).rejects.toMatchObject({ code: 'port_in_use' })
    expect(engines).toBe(0)
  })

  it('row 75: a request that the empty queue has no room for gets 400 with the limit', async () => {
    const configFile = configWith('hardware:\n  queue_limit: 2\n')
    const { endpoint } = await openBackend({ port: 0, configFile })
    const messages = [{ role: 'user', content: 'a' }]
    const tooLarge = [
      ['/v1/chat/completions', { messages, n: 3 }, 'n', '<= 2, but got 3'],
      ['/v1/completions', { prompt: 'a', n: 3 }, 'n', '<= 2, but got 3'],
      ['/v1/completions', { prompt: ['a', 'b'], n: 2 }, 'n', '<= 1, but got 2'],
      ['/v1/completions', { prompt: ['a', 'b', 'c'] }, 'prompt', 'length 2, but got .* length 3'],
      ['/generate', { prompts: ['a', 'b', 'c'] }, 'prompts', 'length 2, but got .* length 3'],
    ] as const
    for (const [path, body, param, words] of tooLarge) {
      const { status, json } = await post(`${endpoint}${path}`, body)
      expect([status, json.error.param]).toEqual([400, param])
      expect(json.error.message).toMatch(new RegExp(words))
      expect(json.error.message).toMatch(/at most 2 per request \(hardware\.queue_limit\)\.$/)
    }
    expect((await post(`${endpoint}/v1/completions`, { prompt: 'a', n: 2 })).status).toBe(200)
  })

  it('the server of a backend reports a loading model, and frees its port on failure', async () => {
    const port = await freePort()
    const [starting, loaded] = [Promise.withResolvers<void>(), Promise.withResolvers<never>()]
    const backend = new InferenceBackend({
      configFile: configWith(),
      modelName: 'tiny',
      port,
      apiKey: 'sk-1',
      engine: (worker) =>
        Object.assign(createObedientEngine(worker), {
          start() {
            starting.resolve()
            return loaded.promise
          },
        }),
    })
    onTestFinished(() => backend.close())
    const initializing = backend.initialize()
    initializing.catch(() => {})
    await starting.promise
    const ask = async (path: string, key = 'sk-1'): Promise<unknown> => {
      const headers = { authorization: `Bearer ${key}` }
      const response = await fetch(`http://127.0.0.1:${port}${path}`, { headers })
      return [response.status, await response.json()]
    }
    expect(await ask('/health')).toMatchObject([503, { status: 'unhealthy', initialized: false }])
    expect(await ask('/health/live')).toEqual([200, { status: 'alive' }])
    expect(await ask('/v1/models')).toMatchObject([503, { error: { code: 'not_ready' } }])
    expect(await ask('/v1/models', 'wrong')).toMatchObject([401, {}])
    loaded.reject(new RangeError('no memory'))
    await expect(initializing).rejects.toThrow('no memory')
    expect((await openBackend({ port })).endpoint).toContain(`:${port}`)
  })

  it.each([
    ['./models/Tiny-Chat.Q8_0.gguf', '', ['Tiny-Chat.Q8_0']],
    ['/data/tiny.gguf', '  served_name: small\n', ['small']],
    ['org/tiny', '  served_name: [small, other]\n', ['small', 'other']],
    ['org/tiny', '', ['org/tiny']],
  ])('%s is served by its names, and never by a path', async (modelName, served, names) => {
    const file = configWith()
    writeFileSync(file, `required:\n  model_name: tiny\n${served}engine:\n  kind: echo\n`)
    const options = { configFile: file, modelName, port: 0, engine: createObedientEngine }
    const { endpoint } = await openBackend(options)
    const listed = (await (await fetch(`${endpoint}/v1/models`)).json()) as ModelList
    expect(listed.data.map(({ id }) => id)).toEqual(names)
    for (const [model, status] of [...names.map((name) => [name, 200]), [modelName, 200]]) {
      const body = JSON.stringify({ model, messages: [{ role: 'user', content: 'hi' }] })
      const headers = { 'content-type': 'application/json' }
      const url = `${endpoint}/v1/chat/completions`
      const response = await fetch(url, { method: 'POST', headers, body })
      expect([model, response.status]).toEqual([model, status])
    }
    const missing = await fetch(`${endpoint}/v1/models/unknown`)
    expect(missing.status).toBe(404)
    expect(await missing.text()).not.toMatch(/gguf|data/)
  })
})

interface ModelList {
  readonly data: readonly { readonly id: string }[]
}
