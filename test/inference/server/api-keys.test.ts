import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import type {
  GenerationListener,
  GenerationRequest,
  InferenceEngine,
} from '../../../src/inference/generation/inference-engine.ts'
import { parseKeyFile } from '../../../src/inference/server/keys/api-keys.ts'
import { ClientKey } from '../../../src/inference/server/keys/client-key.ts'
import type { ServedRequest } from '../../../src/inference/server/server.ts'
import { surfaces } from '../../../src/inference/server/surfaces/surfaces.ts'
import { HttpError } from '../../../src/runtime/http/http-error.ts'
import { ManualClock } from '../../../src/testing/manual-clock.ts'
import { eventually } from '../../eventually.ts'
import { openBackend } from '../open-backend.ts'
import { FakeGenerator, silent } from './fake-generator.ts'
import { ask, hello, post, type Reply, serve } from './served.ts'

function keyFile(text: string): string {
  const folder = mkdtempSync(join(tmpdir(), 'tutti-keys-'))
  onTestFinished(() => rmSync(folder, { recursive: true }))
  const path = join(folder, 'keys')
  writeFileSync(path, text)
  return path
}

const bearer = (key: string): Record<string, string> => ({ authorization: `Bearer ${key}` })

function thrownBy(run: () => unknown): HttpError {
  try {
    run()
  } catch (error) {
    if (error instanceof HttpError) return error
    throw error
  }
  throw new Error('nothing was thrown')
}

describe('key file', () => {
  it('a line has a name, a key and limits; empty lines and comments are skipped', () => {
    const text = '\ufeff# clients\r\n\r\nann key-1 rpm=3 tpm=100\r\nbob.b@x  key-2\tTPM\n'
    expect(() => parseKeyFile(text)).toThrow('line 4: expected a name, a key')
    expect(parseKeyFile(text.replace('TPM', 'tpm=5'))).toEqual([
      { name: 'ann', key: 'key-1', limits: { requests: 3, tokens: 100 } },
      { name: 'bob.b@x', key: 'key-2', limits: { requests: null, tokens: 5 } },
    ])
  })

  it.each([
    ['', 'it has no keys'],
    ['canary-canary', 'line 1'],
    ['ann canary rpm=0', 'line 1'],
    ['ann canary rpm=1.5', 'line 1'],
    ['ann canary rps=1', 'line 1'],
    ['ann canary rpm=1 rpm=2', 'line 1: rpm is given twice'],
    ['ann cänary', 'line 1'],
    ['ann canary\nann other', 'line 2: the name is used twice'],
    ['ann canary\nbob canary', 'line 2: the key is used twice'],
  ])('a file with a mistake is refused without its text: %j', async (text, problem) => {
    const apiKeysFile = keyFile(text)
    const refused = serve({ apiKeysFile })
    await expect(refused).rejects.toThrow(problem)
    await expect(refused).rejects.not.toThrow(/c[aä]nary/)
    await expect(refused).rejects.toMatchObject({ code: 'ValueError', field: 'apiKeysFile' })
  })

  it('row 129: many keys do not block the server that reads the file again', () => {
    const lines = Array.from({ length: 50_000 }, (_, at) => `client-${at} key-of-client-${at}`)
    expect(parseKeyFile(lines.join('\n'))).toHaveLength(lines.length)
    lines.push('client-7 another')
    expect(() => parseKeyFile(lines.join('\n'))).toThrow('line 50001: the name is used twice')
  })

  it('a file that cannot be read is refused with its name', async () => {
    await expect(serve({ apiKeysFile: '/nowhere/keys' })).rejects.toThrow(
      /: \/nowhere\/keys does not exist$/,
    )
  })
})

describe('limits of a key', () => {
  it('any 60 s have at most the limit of requests', async () => {
    const clock = new ManualClock()
    const key = new ClientKey('ann', { requests: 2, tokens: null }, clock)
    key.admit()
    await clock.advance(30_000)
    expect(key.admit().headers.join(' ')).toBe(
      'x-ratelimit-limit-requests 2 ' +
        'x-ratelimit-remaining-requests 0 x-ratelimit-reset-requests 60s',
    )
    await clock.advance(29_500)
    const error = thrownBy(() => key.admit())
    expect([error.status, error.code]).toEqual([429, 'rate_limit_exceeded'])
    expect(error.message).toContain('2 requests per minute. Try again in 1 s.')
    expect(error.headers.join(' ')).toBe(
      'retry-after 1 x-ratelimit-limit-requests 2 ' +
        'x-ratelimit-remaining-requests 0 x-ratelimit-reset-requests 30.5s',
    )
    await clock.advance(500)
    key.admit()
    expect(() => key.admit()).toThrow('Try again in 30 s.')
  })

  it('requests that are given back do not count, however late', async () => {
    const clock = new ManualClock()
    const key = new ClientKey('ann', { requests: 1, tokens: null }, clock)
    const first = key.admit()
    first.giveBack()
    first.giveBack()
    const second = key.admit()
    await clock.advance(60_000)
    const third = key.admit()
    second.giveBack()
    expect(() => key.admit()).toThrow('1 request per minute')
    third.giveBack()
    key.admit()
  })

  it('a key is refused while the tokens of the last 60 s reach its limit', async () => {
    const clock = new ManualClock()
    const key = new ClientKey('ann', { requests: null, tokens: 10 }, clock)
    key.admit()
    key.addTokens(3, 4)
    await clock.advance(20_000)
    expect(key.admit().headers).toContain('x-ratelimit-remaining-tokens')
    key.addTokens(8, 8)
    const error = thrownBy(() => key.admit())
    expect(error.headers.slice(0, 6).join(' ')).toBe(
      'retry-after 60 x-ratelimit-limit-tokens 10 x-ratelimit-remaining-tokens 0',
    )
    await clock.advance(60_000)
    key.admit()
    expect([key.promptTokens, key.completionTokens]).toEqual([11, 12])
  })
})

/** Streams text until the request is aborted. */
class EndlessEngine implements InferenceEngine {
  readonly capacity = { admits: 'step', slots: 10 } as const

  async start() {
    return { name: 'tiny', contextLength: 1000, hasChatTemplate: true }
  }

  async generate(
    requests: readonly GenerationRequest[],
    listener: GenerationListener,
  ): Promise<void> {
    for (const { id, signal } of requests) {
      while (!signal.aborted) {
        await listener.delta(id, { text: 'more ' })
        await new Promise((resolve) => setImmediate(resolve))
      }
      listener.end(id, { kind: 'canceled' })
    }
  }

  async tokenize(): Promise<readonly number[]> {
    return []
  }

  lost(): Promise<string> {
    return new Promise(() => {})
  }

  async close(): Promise<void> {}
}

const chat = '/v1/chat/completions'

describe('a server with a key file', () => {
  it('row 71: bearer and x-api-key are accepted, beside the key without a name', async () => {
    const apiKeysFile = keyFile('ann key-of-ann\nbob key-of-bob')
    await using served = await serve({ apiKey: 'sk-single', apiKeysFile })
    const statusOf = async (headers: Record<string, string>): Promise<number> =>
      (await ask(`${served.url}/v1/models`, { headers })).status
    for (const key of ['sk-single', 'key-of-ann', 'key-of-bob']) {
      expect(await statusOf(bearer(key))).toBe(200)
      expect(await statusOf({ 'x-api-key': key })).toBe(200)
      expect(await statusOf({ 'x-api-key': `${key}x` })).toBe(401)
      expect(await statusOf({ ...bearer('other'), 'x-api-key': key })).toBe(401)
    }
    for (const headers of [{}, bearer('ann'), { 'x-api-key': '' }, { 'x-api-key': 'bob' }]) {
      const { status, text } = await ask(`${served.url}/v1/models`, { headers })
      expect([status, text]).toEqual([401, expect.not.stringContaining('key-of')])
    }
  })

  it('row 71: a bad key and a foreign origin get errors in the form of each surface', async () => {
    await using served = await serve({ apiKeysFile: keyFile('ann key-of-ann') })
    const refusals = [
      [401, { authorization: 'Bearer canary-key' }, 'The API key is wrong.'],
      [401, {}, 'No API key was given.'],
      [403, { ...bearer('key-of-ann'), origin: 'https://evil.example' }, 'This Origin is not'],
    ] as const
    for (const { path, toErrorBody } of surfaces) {
      for (const [status, headers, start] of refusals) {
        for (const address of [path, `${path}/`]) {
          const reply = await post(`${served.url}${address}`, hello, { ...headers })
          const message = new RegExp(`${start}(?:[^"\\\\]|\\\\.)*`).exec(reply.text)?.[0] ?? ''
          const problem = new HttpError(status, JSON.parse(`"${message}"`), {
            code: reply.json.error?.code ?? null,
          })
          expect([address, reply.status, reply.json]).toEqual([
            address,
            status,
            toErrorBody(problem),
          ])
          expect(reply.text).not.toMatch(/canary|key-of-ann/)
        }
      }
    }
    expect([served.generator.requests, served.log.lines]).toEqual([[], []])
  })

  it('a limit holds on all routes with a body: 400 counts, 429 does not', async () => {
    const apiKeysFile = keyFile(`ann key-of-ann rpm=${surfaces.length + 1}\nbob key-of-bob rpm=9`)
    await using served = await serve({ apiKeysFile })
    const send = (path: string, key: string, body: object): Promise<Reply> =>
      post(`${served.url}${path}`, body, bearer(key))
    for (const { path } of surfaces) {
      const { status, headers } = await send(path, 'key-of-ann', { max_tokens: 'many' })
      expect([path, status]).toEqual([path, 400])
      expect(headers.get('x-ratelimit-limit-requests')).toBe(String(surfaces.length + 1))
    }
    const stream = await send(chat, 'key-of-ann', { ...hello, stream: true })
    expect([stream.status, stream.headers.get('x-ratelimit-remaining-requests')]).toEqual([
      200,
      '0',
    ])
    for (const { path, toErrorBody } of [...surfaces, ...surfaces]) {
      const { status, headers, json, text } = await send(path, 'key-of-ann', hello)
      expect([path, status]).toEqual([path, 429])
      expect(Number(headers.get('retry-after'))).toBeGreaterThan(50)
      expect(headers.get('x-ratelimit-remaining-requests')).toBe('0')
      const message = /The limit of this API key is used up:[^"]*/.exec(text)?.[0] ?? ''
      const form = toErrorBody(new HttpError(429, message, { code: 'rate_limit_exceeded' }))
      expect(json).toEqual(form)
    }
    expect(served.generator.requests).toHaveLength(1)
    expect((await ask(`${served.url}/v1/models`, { headers: bearer('key-of-ann') })).status).toBe(
      200,
    )
    expect((await send(chat, 'key-of-bob', hello)).status).toBe(200)
  })

  it('a 429 of a full queue does not count against the limit', async () => {
    const full = new HttpError(429, 'Full.', { code: 'queue_full', headers: ['retry-after', '7'] })
    let isFull = true
    const generator = new FakeGenerator(() => {
      if (isFull) throw full
      return { text: 'hi' }
    })
    await using served = await serve({ generator, apiKeysFile: keyFile('ann key-of-ann rpm=1') })
    for (const stream of [false, true, false]) {
      const reply = await post(`${served.url}${chat}`, { ...hello, stream }, bearer('key-of-ann'))
      expect([reply.status, reply.headers.get('retry-after')]).toEqual([429, '7'])
    }
    isFull = false
    expect((await post(`${served.url}${chat}`, hello, bearer('key-of-ann'))).status).toBe(200)
    expect((await post(`${served.url}${chat}`, hello, bearer('key-of-ann'))).json.error.code).toBe(
      'rate_limit_exceeded',
    )
  })

  it('row 129: the file is read again; a broken one changes nothing', async () => {
    const apiKeysFile = keyFile('ann key-of-ann rpm=1\nbob key-of-bob')
    await using served = await serve({ apiKeysFile })
    const statusOf = async (key: string): Promise<number> =>
      (await post(`${served.url}${chat}`, hello, bearer(key))).status
    expect([await statusOf('key-of-ann'), await statusOf('key-of-ann')]).toEqual([200, 429])
    writeFileSync(apiKeysFile, 'ann key-of-ann rpm=1\nbob\n')
    await eventually(() => expect(served.log.lines).toHaveLength(1))
    expect(served.log.lines[0]).toMatch(/^ApiKeysUnusable: .*: line 2: expected a name, a key/)
    expect(await statusOf('key-of-bob')).toBe(200)
    rmSync(apiKeysFile)
    await eventually(() => expect(served.log.lines).toHaveLength(2))
    expect(await statusOf('key-of-bob')).toBe(200)
    writeFileSync(apiKeysFile, 'ann new-key-of-ann rpm=2\ncid key-of-cid\n')
    await eventually(async () => expect(await statusOf('key-of-cid')).toBe(200))
    expect([await statusOf('key-of-ann'), await statusOf('key-of-bob')]).toEqual([401, 401])
    // The name has used one of its requests with the old key.
    const own = [await statusOf('new-key-of-ann'), await statusOf('new-key-of-ann')]
    expect([own, served.log.lines.length]).toEqual([[200, 429], 2])
  })

  it('the tokens that a client has received count, even if it disconnects', async () => {
    const apiKeysFile = keyFile('ann key-of-ann tpm=3')
    const engine = () => new EndlessEngine()
    const { endpoint } = await openBackend({ port: 0, apiKeysFile, engine })
    const headers = { ...bearer('key-of-ann'), 'content-type': 'application/json' }
    const send = (signal: AbortSignal): Promise<Response> => {
      const body = JSON.stringify({ ...hello, stream: true })
      return fetch(`${endpoint}${chat}`, { method: 'POST', headers, body, signal })
    }
    const controller = new AbortController()
    const { body } = await send(controller.signal)
    let text = ''
    for await (const chunk of body ?? []) {
      text += String(Buffer.from(chunk))
      if (text.split('more').length > 4) break
    }
    controller.abort()
    await eventually(async () => {
      const again = new AbortController()
      const { status } = await send(again.signal)
      again.abort()
      expect(status).toBe(429)
    })
  })

  it('/metrics has the numbers of each key, by name', async () => {
    const apiKeysFile = keyFile('ann key-of-ann rpm=5 tpm=900\nbob key-of-bob')
    const backend = await openBackend({ port: 0, apiKey: 'sk-single', apiKeysFile })
    const { endpoint } = backend
    const { json } = await post(`${endpoint}${chat}`, hello, bearer('key-of-ann'))
    await post(`${endpoint}${chat}`, {}, bearer('key-of-ann'))
    const { text } = await ask(`${endpoint}/metrics`, { headers: bearer('sk-single') })
    const { prompt_tokens: input, completion_tokens: output, total_tokens: total } = json.usage
    for (const line of [
      `tutti_tokens_total{model="tiny",type="input"} ${input}`,
      `tutti_tokens_total{model="tiny",type="output"} ${output}`,
      'tutti_tokens_total{model="tiny",type="cached"} 0',
      'tutti_queue_limit{model="tiny"} 10000',
      'tutti_slots{model="tiny"} 65536',
      'tutti_key_requests_total{key="ann",status="200"} 1',
      'tutti_key_requests_total{key="ann",status="400"} 1',
      `tutti_key_tokens_total{key="ann",type="input"} ${input}`,
      `tutti_key_tokens_total{key="ann",type="output"} ${output}`,
      'tutti_key_tokens_total{key="bob",type="output"} 0',
      'tutti_key_limit{key="ann",unit="requests"} 5',
      'tutti_key_remaining{key="ann",unit="requests"} 3',
      `tutti_key_remaining{key="ann",unit="tokens"} ${900 - total}`,
    ]) {
      expect(text).toContain(`${line}\n`)
    }
    expect(text).not.toMatch(/key-of|sk-single/)
  })
})

describe('base path', () => {
  it('all paths begin with it', async () => {
    await using served = await serve({ basePath: '/llm', pageFile: keyFile('<p>page</p>') })
    expect(new URL(served.url).pathname).toBe('/llm')
    for (const path of ['/health', '/v1/models', '/models/', '/openapi.json']) {
      expect([path, (await ask(`${served.url}${path}`)).status]).toEqual([path, 200])
      const { status, json } = await ask(new URL(path, served.url).href)
      expect([path, status, json.error.code]).toEqual([path, 404, 'unknown_url'])
      expect(json.error.message).toContain('GET /llm/openapi.json lists')
    }
    expect((await ask(`${served.url}x/health`)).status).toBe(404)
    for (const path of ['', '/']) {
      const { headers } = await ask(`${served.url}${path}`)
      expect(headers.get('content-type')).toBe('text/html; charset=utf-8')
    }
    const { status, json } = await post(`${served.url}${chat}`, hello)
    expect([status, json.choices[0].message.content]).toEqual([200, 'hello there'])
    expect((await post(`${served.url}/generate`, {})).json.status).toBe('error')
    expect((await ask(`${served.url}/health`)).json.endpoint).toBe(served.url)
  })

  it.each(['llm', '/a//b', '/a?b', '/a b', '//', 7])(
    'a wrong one is refused: %j',
    async (basePath) => {
      const options = { port: 0, basePath: basePath as string }
      await expect(openBackend(options)).rejects.toMatchObject({ field: 'basePath' })
    },
  )
})

describe('log of requests', () => {
  it('onRequest gets each request, with the name of its key and its tokens', async () => {
    const seen: ServedRequest[] = []
    const apiKeysFile = keyFile('ann key-of-ann')
    const onRequest = (request: ServedRequest): void => void seen.push(request)
    await using served = await serve({ apiKeysFile, onRequest })
    const headers = { ...bearer('key-of-ann'), 'x-request-id': 'mine' }
    await post(`${served.url}${chat}`, { ...hello, stream: true }, headers)
    await ask(`${served.url}/health?token=canary-key`)
    await ask(`${served.url}/nowhere`, { headers: bearer('wrong-key') })
    await eventually(() => expect(seen).toHaveLength(3))
    const request = { requestId: expect.any(String), time: expect.any(Number) }
    const none = { promptTokens: 0, completionTokens: 0, body: undefined, answers: [] }
    const common = { ...request, seconds: expect.any(Number), method: 'GET', key: null, ...none }
    expect(seen).toEqual([
      {
        ...common,
        method: 'POST',
        path: chat,
        status: 200,
        key: 'ann',
        requestId: 'mine',
        promptTokens: 3,
        completionTokens: 2,
        answers: ['hello there'],
        body: { ...hello, stream: true },
      },
      { ...common, path: '/health', status: 200 },
      { ...common, path: '/nowhere', status: 401 },
    ])
    expect(JSON.stringify(seen)).not.toMatch(/key-of-ann|canary|wrong-key/)
  })

  it('a request whose client disconnects has the status 499', async () => {
    const seen: ServedRequest[] = []
    const generator = new FakeGenerator(silent)
    await using served = await serve({ generator, onRequest: (one) => void seen.push(one) })
    const controller = new AbortController()
    const sent = ask(`${served.url}${chat}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(hello),
      signal: controller.signal,
    })
    await eventually(() => expect(generator.requests).toHaveLength(1))
    controller.abort()
    await expect(sent).rejects.toThrow()
    await eventually(() => expect(seen.map(({ status }) => status)).toEqual([499]))
  })

  it('the requests of a named key are those of one client, whatever its address', async () => {
    const apiKeysFile = keyFile('ann key-of-ann')
    await using served = await serve({ apiKeysFile, apiKey: 'nameless' })
    for (const key of ['key-of-ann', 'nameless']) {
      await post(`${served.url}/v1/chat/completions`, hello, { authorization: `Bearer ${key}` })
    }
    const clients = served.generator.requests.map(({ client }) => client)
    expect(clients).toEqual(['key ann', 'address 127.0.0.1'])
    const [span] = served.generator.requests.map(({ spanAttributes }) => spanAttributes)
    expect(span).toEqual({ 'http.route': '/v1/chat/completions', 'tutti.key': 'ann' })
  })
})
