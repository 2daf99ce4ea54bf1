import { hostname } from 'node:os'
import { describe, expect, it } from 'vitest'
import { hello, post, serve, speak } from './served.ts'

const paths = ['/health', '/v1/models', '/generate', '/v1/chat/completions', '/nowhere']

describe('origins', () => {
  it('row 72: unknown origins and HTML forms are refused', async () => {
    await using served = await serve({ limits: { allowedOrigins: ['https://proxy.example'] } })
    const statusFor = async (origin: string): Promise<number> =>
      (await post(`${served.url}/v1/chat/completions`, hello, { origin })).status
    const known = ['https://proxy.example', 'http://[::1]:5173', 'https://127.0.0.1:8443']
    const machine = [`http://${hostname()}`, `https://${hostname()}:8443`]
    const local = [served.url, 'http://localhost:3000', 'http://localhost']
    for (const origin of [...local, ...machine, ...known]) {
      expect([origin, await statusFor(origin)]).toEqual([origin, 200])
    }
    const foreign = [
      'http://evil.example',
      'null',
      'http://localhost.evil.com',
      'http://localhost.evil.com:3000',
      'http://localhost:3000.evil.com',
      'http://localhost:3000@evil.com',
      'http://evil.com#localhost:3000',
      'http://127.0.0.1.evil.com',
      'http://notlocalhost:3000',
      `http://${hostname()}.evil.com`,
      `http://evil.com:80@${hostname()}`,
      'http://localhost:',
      'http://localhost:3000/',
      'ftp://localhost:3000',
      'https://proxy.example:8443',
      'http://proxy.example',
      'https://proxy.example.evil.com',
      'file://',
      '',
    ]
    for (const origin of foreign) expect([origin, await statusFor(origin)]).toEqual([origin, 403])
    const form = await post(`${served.url}/generate`, '{"prompts":["a"]}', {
      'content-type': 'text/plain',
    })
    expect(form.status).toBe(415)
    expect(form.json).toEqual({
      status: 'error',
      message: expect.stringContaining('application/json'),
      hostname: hostname(),
      error: {
        message: expect.stringContaining('application/json'),
        type: 'invalid_request_error',
        param: null,
        code: 'unsupported_media_type',
      },
    })
  })

  /** The lines that Chromium sends before a page may call another origin. */
  const preflight = (origin: string, wants: string): readonly string[] => [
    'Host: localhost',
    'Accept: */*',
    'Access-Control-Request-Method: POST',
    `Access-Control-Request-Headers: ${wants}`,
    `Origin: ${origin}`,
    'Sec-Fetch-Mode: cors',
    'Sec-Fetch-Site: same-site',
    'Sec-Fetch-Dest: empty',
  ]
  const corsOf = (answer: string): Record<string, string> =>
    Object.fromEntries(
      Array.from(
        answer.matchAll(/^(access-control-[\w-]+|vary): (.*)\r$/gim),
        ([, name, value]) => [name, value],
      ),
    )

  it('row 72: a preflight of a known origin is answered before the key is asked for', async () => {
    await using served = await serve({ apiKey: 'sk-1' })
    const wants = 'authorization,content-type,x-stainless-lang'
    for (const path of paths) {
      const lines = preflight('http://localhost:3000', wants)
      const { status, answer } = await speak(served, `OPTIONS ${path}`, lines)
      expect([path, status]).toEqual([path, 204])
      expect(corsOf(answer)).toEqual({
        'access-control-allow-origin': 'http://localhost:3000',
        'access-control-allow-methods': 'GET, HEAD, POST, DELETE',
        'access-control-allow-headers': wants,
        'access-control-max-age': '600',
        'access-control-expose-headers':
          'x-request-id, x-tutti-ignored-fields, retry-after, x-ratelimit-limit-requests, ' +
          'x-ratelimit-remaining-requests, x-ratelimit-reset-requests, x-ratelimit-limit-tokens, ' +
          'x-ratelimit-remaining-tokens, x-ratelimit-reset-tokens',
        vary: 'Origin',
      })
    }
    const local = [...preflight('http://localhost:3000', wants)]
    local.push('Access-Control-Request-Private-Network: true')
    const { answer } = await speak(served, 'OPTIONS /generate', local)
    expect(corsOf(answer)['access-control-allow-private-network']).toBe('true')
  })

  it('row 72: a page and a client behind a forwarded port are served', async () => {
    await using served = await serve({ apiKey: 'sk-1' })
    const origin = 'http://localhost:18000'
    const lines = ['Host: localhost:18000', ...preflight(origin, 'authorization').slice(1)]
    const { status, answer } = await speak(served, 'OPTIONS /generate', lines)
    expect([status, corsOf(answer)['access-control-allow-origin']]).toEqual([204, origin])
    const request = ['Host: localhost:18000', `Origin: ${origin}`]
    expect((await speak(served, 'GET /v1/models', request)).status).toBe(401)
    const withKey = await speak(served, 'GET /v1/models', [
      ...request,
      'Authorization: Bearer sk-1',
    ])
    expect([withKey.status, corsOf(withKey.answer)['access-control-allow-origin']]).toEqual([
      200,
      origin,
    ])
  })

  it('row 72: a preflight of another origin or host gets 403 and no CORS header', async () => {
    await using served = await serve({ apiKey: 'sk-1' })
    for (const origin of ['http://localhost.evil.com:3000', 'null', 'https://app.example']) {
      const lines = preflight(origin, 'content-type')
      const { status, answer } = await speak(served, 'OPTIONS /generate', lines)
      expect([origin, status, corsOf(answer)]).toEqual([origin, 403, {}])
    }
    const rebound = preflight('http://localhost:3000', 'content-type').slice(1)
    const foreign = await speak(served, 'OPTIONS /generate', ['Host: evil.example', ...rebound])
    expect([foreign.status, foreign.answer.includes('host_not_allowed')]).toEqual([403, true])
  })

  it('row 72: a page of a known origin can read answers, errors and streams', async () => {
    await using served = await serve({
      apiKey: 'sk-1',
      limits: { allowedOrigins: ['https://app.example'] },
    })
    for (const origin of ['http://localhost:3000', 'https://app.example']) {
      const cors = async (body: object, key: string): Promise<unknown> => {
        const headers = { origin, authorization: `Bearer ${key}` }
        const reply = await post(`${served.url}/v1/chat/completions`, body, headers)
        return [reply.status, reply.headers.get('access-control-allow-origin')]
      }
      expect(await cors(hello, 'sk-1')).toEqual([200, origin])
      expect(await cors({ ...hello, stream: true }, 'sk-1')).toEqual([200, origin])
      expect(await cors({ messages: 5 }, 'sk-1')).toEqual([400, origin])
      expect(await cors(hello, 'wrong')).toEqual([401, origin])
    }
  })

  it.each(['*', 'null', 'app.example', 'https://app.example/', 'https://app.example:443', ''])(
    'row 72: the origin "%s", which no browser sends, cannot be allowed',
    async (origin) => {
      const attempt = serve({ limits: { allowedOrigins: [origin] } })
      await expect(attempt).rejects.toMatchObject({ field: 'limits.allowedOrigins[0]' })
    },
  )
})
