import { expect, it } from 'vitest'
import { systemClock } from '../../../src/foundation/clock.ts'
import { TuttiError } from '../../../src/foundation/errors.ts'
import { HttpError } from '../../../src/runtime/http/http-error.ts'
import {
  defaultHttpLimits,
  HttpServer,
  notFoundError,
  type Route,
} from '../../../src/runtime/http/http-server.ts'

async function serve(routes: readonly Route[]): Promise<HttpServer> {
  const server = new HttpServer({
    host: '127.0.0.1',
    port: 0,
    keys: null,
    limits: defaultHttpLimits,
    clock: systemClock,
    log: { warn() {} },
    errors: {
      toHttpError: (thrown) =>
        thrown instanceof HttpError ? thrown : new HttpError(500, 'Failed.', { code: 'failed' }),
      toBody: ({ code, message }, path) => ({ code, message, path }),
      toAbortReason: (text) => new Error(text),
      toListenError: (message, details) => new TuttiError(message, details),
    },
  })
  server.setRoutes(routes, () => notFoundError('Ask for /a.'))
  await server.start()
  return server
}

const reply =
  (name: string): Route['answer'] =>
  (exchange, body, rest) =>
    exchange.sendJson(200, { name, body, rest })

it('HttpServer: a path is matched literally, before a prefix that it also matches', async () => {
  await using server = await serve([
    { method: 'GET', path: '/a/*', answer: reply('prefix') },
    { method: 'GET', path: '/a/b', answer: reply('exact') },
    { method: 'POST', path: '/a', bodyBytes: 100, answer: reply('body') },
  ])
  const get = async (path: string): Promise<unknown> =>
    (await fetch(`${server.endpoint}${path}`)).json()
  expect(await get('/a/b')).toEqual({ name: 'exact', rest: '' })
  expect(await get('/a/b?c=1')).toEqual({ name: 'exact', rest: '' })
  expect(await get('/a/b/c%2Fd')).toEqual({ name: 'prefix', rest: 'b/c%2Fd' })
  for (const path of ['/a/', '/b', '/A/b', '//a/b']) {
    expect(await get(path)).toMatchObject({ code: 'unknown_url', path })
  }
  const headers = { 'content-type': 'application/json' }
  const posted = await fetch(`${server.endpoint}/a`, { method: 'POST', body: '[1]', headers })
  expect(await posted.json()).toEqual({ name: 'body', body: [1], rest: '' })
})

it('HttpServer: errors have the body that its owner gives them', async () => {
  await using server = await serve([
    {
      method: 'GET',
      path: '/broken',
      answer() {
        throw new Error('secret')
      },
    },
  ])
  const response = await fetch(`${server.endpoint}/broken`)
  expect(response.status).toBe(500)
  expect(await response.json()).toEqual({ code: 'failed', message: 'Failed.', path: '/broken' })
})
