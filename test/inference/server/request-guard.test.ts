import { hostname, networkInterfaces } from 'node:os'
import { describe, expect, it } from 'vitest'
import { ask, hello, post, raw, serve, speak } from './served.ts'

const gets = [
  '/health',
  '/health/live',
  '/health/ready',
  '/v1/models',
  '/v1/models/tiny',
  '/v1/server',
  '/metrics',
  '/openapi.json',
]
const posts = [
  '/generate',
  '/v1/chat/completions',
  '/v1/completions',
  '/tokenize',
  '/detokenize',
  '/apply-template',
]
const methods = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS', 'TRACE', 'PROPFIND']
const goodBodies: Readonly<Record<string, object>> = {
  '/generate': { prompts: ['a'] },
  '/v1/chat/completions': hello,
  '/v1/completions': { prompt: 'a' },
  '/tokenize': { prompt: 'a' },
  '/detokenize': { tokens: [97] },
  '/apply-template': hello,
}

describe('routes', () => {
  it('row 70: each route answers its methods; others get 405 with an allow header', async () => {
    await using served = await serve()
    for (const path of [...gets, ...posts]) {
      const allowed = gets.includes(path) ? ['GET', 'HEAD'] : ['POST']
      for (const method of methods) {
        const body = method === 'POST' ? JSON.stringify(goodBodies[path] ?? {}) : ''
        const { status, answer } = await speak(served, `${method} ${path}`, undefined, body)
        expect([method, path, status]).toEqual([method, path, allowed.includes(method) ? 200 : 405])
        if (status === 405) expect(answer).toContain(`allow: ${allowed.join(', ')}\r\n`)
        expect(answer).toMatch(/x-content-type-options: nosniff/)
        expect(answer).toMatch(/content-security-policy: default-src 'none'/)
        expect(answer).toMatch(/x-request-id: req_[0-9a-f]{32}/)
        expect(answer).not.toMatch(/access-control-/i)
      }
    }
  })

  it('row 70: any other path gets 404', async () => {
    await using served = await serve()
    const paths = [
      '/',
      '//',
      '//health',
      '/health//live',
      '/%68ealth',
      '/%2e%2e/etc/passwd',
      '/../etc/passwd',
      '/..%2f..%2fetc/passwd',
      '/v1',
      '/v1/models/..%2f..%2fetc%2fpasswd',
      '/v1/models/%ff',
      '/v1/embeddings',
      '/package.json',
      'http://evil.example/health',
      '*',
    ]
    for (const path of paths) {
      for (const method of ['GET', 'POST', 'OPTIONS']) {
        const { status, answer } = await speak(served, `${method} ${path}`)
        const isModel = path.startsWith('/v1/models/') && path.length > 11
        expect([method, path, status]).toEqual([
          method,
          path,
          isModel && method !== 'GET' ? 405 : 404,
        ])
        expect(answer).not.toMatch(/root:|tutti"/)
      }
    }
  })

  it('row 70: a URL of 8 KB gets 414, CONNECT 501, an unknown method 400', async () => {
    await using served = await serve()
    expect((await speak(served, `GET /health?${'a'.repeat(8192)}`)).status).toBe(414)
    expect((await speak(served, 'CONNECT evil.example:443')).status).toBe(501)
    expect((await speak(served, 'NONSENSE /health')).status).toBe(400)
    expect((await ask(`${served.url}/health`)).status).toBe(200)
  })

  it('row 70: 100-continue is the only supported Expect, anything else gets 417', async () => {
    await using served = await serve({ apiKey: 'sk-1' })
    const expectedOf = async (path: string, wish: string, key: string): Promise<unknown> => {
      const headers = ['Host: localhost', `Expect: ${wish}`, `Authorization: Bearer ${key}`]
      const body = path === '/health' ? '' : JSON.stringify(goodBodies[path])
      const method = path === '/health' ? 'GET' : 'POST'
      const { answer } = await speak(served, `${method} ${path}`, headers, body)
      const code = /"code":"(\w+)"/.exec(answer)?.[1]
      return [...(answer.match(/HTTP\/1\.1 \d+/g) ?? []).map((line) => line.slice(9)), code]
    }
    const chat = '/v1/chat/completions'
    expect(await expectedOf(chat, '100-Continue', 'sk-1')).toEqual(['100', '200', undefined])
    expect(await expectedOf(chat, '200-ok', 'sk-1')).toEqual(['417', 'bad_request'])
    expect(await expectedOf('/health', '200-ok', '')).toEqual(['417', 'bad_request'])
    expect(await expectedOf(chat, '200-ok', 'sk-2')).toEqual(['401', 'invalid_api_key'])
    expect(served.generator.requests).toHaveLength(1)
  })

  it('row 70: a client that sends a large body also gets the 417 response', async () => {
    await using served = await serve()
    const headers = ['Host: localhost', 'Expect: 200-ok']
    const { answer } = await speak(
      served,
      'POST /v1/chat/completions',
      headers,
      'x'.repeat(3_000_000),
    )
    const [head = '', body = ''] = answer.split('\r\n\r\n')
    expect(head).toMatch(/^HTTP\/1\.1 417 /)
    expect(JSON.parse(body)).toEqual({
      error: {
        message: 'The only supported value of Expect is "100-continue".',
        type: 'invalid_request_error',
        param: null,
        code: 'bad_request',
      },
    })
  })

  it('x-request-id: a printable id of the client is echoed, any other is replaced', async () => {
    await using served = await serve()
    const idFor = async (id: string): Promise<string | null> =>
      (await ask(`${served.url}/health`, { headers: { 'x-request-id': id } })).headers.get(
        'x-request-id',
      )
    expect(await idFor('abc-123/~!')).toBe('abc-123/~!')
    for (const unfit of ['', 'with space', 'x'.repeat(129), 'ümlaut']) {
      expect(await idFor(unfit)).toMatch(/^req_[0-9a-f]{32}$/)
    }
  })
})

describe('keys', () => {
  const key = 'sk-ünïcode-canary'

  it('row 71: every route but /health needs the API key, whatever the method', async () => {
    await using served = await serve({ apiKey: key })
    for (const path of [...gets, ...posts, '/nowhere', '/health/../metrics']) {
      const isOpen = path.startsWith('/health') && !path.includes('..')
      for (const method of methods) {
        const { status, answer } = await speak(served, `${method} ${path}`)
        const expected = !isOpen ? 401 : ['GET', 'HEAD'].includes(method) ? 200 : 405
        expect([method, path, status]).toEqual([method, path, expected])
        if (status !== 401 || method === 'HEAD') continue
        expect(answer).toContain('www-authenticate: Bearer')
        expect(answer).toContain(path === '/generate' ? '"error"' : '"authentication_error"')
      }
    }
    expect(served.generator.requests).toEqual([])
  })

  it('row 71: only the exact API key in the authorization header is accepted', async () => {
    await using served = await serve({ apiKey: key })
    const bytes = Buffer.from(key).toString('latin1')
    const statusFor = async (authorization: string, path = '/v1/models'): Promise<number> =>
      (await ask(`${served.url}${path}`, { headers: { authorization } })).status
    expect(await statusFor(`Bearer ${bytes}`)).toBe(200)
    expect(await statusFor(`bearer  ${bytes}`)).toBe(200)
    const wrong = [
      'Bearer',
      'Bearer ',
      bytes,
      `Basic ${bytes}`,
      `Bearer ${bytes}x`,
      `Bearer ${bytes.slice(0, -1)}`,
      `Bearer ${bytes.toUpperCase()}`,
      `Bearer ${'x'.repeat(12_000)}`,
      'Bearer ÿþý',
    ]
    for (const authorization of wrong) expect(await statusFor(authorization)).toBe(401)
    const encoded = encodeURIComponent(key)
    const inUrl = await ask(`${served.url}/v1/models?api_key=${encoded}`)
    expect(inUrl.status).toBe(401)
    expect(inUrl.json.error.message).toContain('Keys in the address are not accepted')
    expect(inUrl.text).not.toContain('canary')
    expect(await statusFor(`Bearer ${bytes}`, `/v1/models?token=${encoded}`)).toBe(401)
  })
})

describe('hosts', () => {
  it('row 72: only known names in the Host header are answered', async () => {
    await using served = await serve({ limits: { allowedHosts: ['ai.example'] } })
    const { port } = served
    const own = ['localhost', '127.0.0.1', '127.0.0.2', '[::1]', hostname(), 'ai.example']
    // Clients of a forwarded port send that one.
    const ports = ['', `:${port}`, ':1', ':65535']
    const names = own.flatMap((host) => ports.map((one) => `${host}${one}`))
    for (const name of [...names, ...own.map((host) => host.toUpperCase())]) {
      expect([name, (await speak(served, 'GET /health', [`Host: ${name}`])).status]).toEqual([
        name,
        200,
      ])
    }
    const foreign = [
      'evil.example',
      `evil:${port}`,
      'localhost.evil.com',
      'notlocalhost',
      'localhost:',
      'localhost:1:2',
      'localhost:123456',
      `localhost.evil.com:${port}`,
      '127.0.0.1.evil.com:80',
      '192.0.2.1',
      '127.0.0.1.evil.com',
      `localhost:${port}@evil.com`,
      '',
    ]
    for (const name of foreign) {
      const { status, answer } = await speak(served, 'GET /health', [`Host: ${name}`])
      expect([name, status]).toEqual([name, 403])
      expect(answer).toContain('"host_not_allowed"')
      expect(answer).toContain('"permission_error"')
    }
  })

  it('row 72: a server on 0.0.0.0 is called by any address of the machine', async () => {
    await using served = await serve({ host: '0.0.0.0', apiKey: 'sk-1' })
    const statusOf = async (name: string): Promise<number> =>
      (await speak(served, 'GET /health', [`Host: ${name}`])).status
    const addresses = Object.values(networkInterfaces()).flatMap((some) => some ?? [])
    expect(addresses).not.toEqual([])
    for (const { address, family } of addresses) {
      const name = family === 'IPv6' ? `[${address}]` : address
      for (const host of [name, `${name}:${served.port}`]) {
        expect([host, await statusOf(host)]).toEqual([host, 200])
      }
      const rebound = `${address.replaceAll(':', '-')}.evil.example`
      expect([rebound, await statusOf(rebound)]).toEqual([rebound, 403])
    }
    for (const host of ['192.0.2.1', '[2001:db8::1]', 'evil.example', `evil:${served.port}`]) {
      expect([host, await statusOf(host)]).toEqual([host, 403])
    }
  })

  it.each(['1.0', '1.1'])(
    'row 72: an HTTP/%s request without a Host header gets 403 with the address to use',
    async (v) => {
      await using served = await serve()
      const answer = await raw(served.port, `GET /health HTTP/${v}\r\nConnection: close\r\n\r\n`)
      const [head = '', body = ''] = answer.split('\r\n\r\n')
      expect(head).toMatch(/^HTTP\/1\.1 403 /)
      expect(JSON.parse(body)).toEqual({
        error: {
          message:
            `This Host is not allowed. Call the server as ${served.url}, ` +
            'or name the host in `limits.allowedHosts` (--allow-host).',
          type: 'permission_error',
          param: null,
          code: 'host_not_allowed',
        },
      })
    },
  )

  it('row 90: no route creates tasks, and no field of a body reaches an environment', async () => {
    await using served = await serve()
    for (const path of ['/tasks', '/v1/tasks', '/session', '/submit', '/control', '/v1/batches']) {
      for (const method of ['GET', 'POST', 'PUT', 'DELETE']) {
        expect((await speak(served, `${method} ${path}`)).status).toBe(404)
      }
    }
    const env = { NODE_OPTIONS: '--require /tmp/x.js', LD_PRELOAD: '/tmp/x.so' }
    const reply = await post(`${served.url}/v1/chat/completions`, {
      ...hello,
      env,
      executable: '/bin/sh',
      arguments: ['-c', 'true'],
    })
    expect(reply.headers.get('x-tutti-ignored-fields')).toBe('env, executable, arguments')
    expect(served.generator.requests).toHaveLength(1)
    expect(JSON.stringify(served.generator.requests)).not.toMatch(/NODE_OPTIONS|LD_PRELOAD|bin\/sh/)
    expect(process.env['LD_PRELOAD']).toBeUndefined()
  })
})
