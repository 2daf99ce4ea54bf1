import { describe, expect, it } from 'vitest'
import {
  parseRetryAfterMs,
  toRefusal,
} from '../../../../src/inference/engines/openai/upstream-refusal.ts'
import { registerSecret } from '../../../../src/foundation/secrets.ts'

const refusal = (status: number, body: string) => toRefusal(status, body, null, 0)

describe('toRefusal', () => {
  it.each([
    [400, '{"error":{"code":"context_length_exceeded"}}', 'context_length_exceeded', false],
    [400, '{"error":{"type":"exceed_context_size_error"}}', 'context_length_exceeded', false],
    [400, '{"error":{"code":"content_filter"}}', 'content_filter', false],
    [400, 'nonsense', 'unsupported', false],
    [422, '{"detail":[]}', 'unsupported', false],
    [404, '{"detail":"Not Found"}', 'upstream_error', false],
    [408, '', 'engine_timeout', false],
    [429, '', 'queue_full', true],
    [500, 'maximum context length? no, a crash', 'upstream_error', false],
    [501, '', 'unsupported', false],
    [502, '<html>', 'upstream_error', false],
    [503, '', 'not_ready', true],
    [504, '', 'engine_timeout', false],
  ])('toRefusal maps status %i with %s to %s', (status, body, code, isWorthARetry) => {
    const { error, waitMs } = refusal(status, body)
    expect(error.code).toBe(code)
    expect(waitMs !== null).toBe(isWorthARetry)
    const told =
      code === 'upstream_error' ? `behind this one answered ${status}` : `status ${status}`
    expect(error.message).toContain(told)
  })

  it("toRefusal keeps the server's message in the cause, short and without secrets", () => {
    registerSecret('hunter2hunter2')
    const message = `path=secret.txt token=hunter2hunter2 ${'x'.repeat(9000)}`
    const { error } = refusal(400, JSON.stringify({ error: { message } }))
    expect(error.message).toBe('the server does not support the request (status 400)')
    const cause = error.cause as Error
    expect(cause.message).toMatch(/^path=secret\.txt token=\[masked\] x+$/)
    expect(cause.message.length).toBeLessThanOrEqual(2000)
  })

  it('toRefusal shortens the names in messages to clients', () => {
    const error = { message: 'no', param: 'p'.repeat(9000), code: 'c'.repeat(9000) }
    const told = refusal(400, JSON.stringify({ error })).error.refusal
    expect([told?.param?.length, told?.code?.length]).toEqual([200, 200])
  })

  it.each([
    [401, /key/],
    [403, /key/],
    [404, /base URL/],
    [307, /redirects/],
  ])('toRefusal has a hint for status %i', (status, hint) => {
    expect(refusal(status, '').error.hint).toMatch(hint)
  })
})

it('a client gets the time and the words of a server that is busy', () => {
  const body = '{"error":{"message":"slow down","code":"rate_limit"}}'
  const { error, waitMs } = toRefusal(429, body, '60', 0)
  expect(error.refusal).toEqual({
    status: 429,
    message: 'slow down',
    param: null,
    code: 'rate_limit',
    retryAfterSeconds: 60,
  })
  expect(waitMs).toBe(10_000)
  expect(toRefusal(429, '', null, 0).error.refusal).toMatchObject({
    message: 'the server is busy (status 429)',
    code: 'queue_full',
    retryAfterSeconds: 1,
  })
})

describe('askedWaitMs', () => {
  it.each([
    [null, 1000],
    ['', 1000],
    ['soon', 1000],
    ['0', 0],
    ['2', 2000],
    ['0.5', 500],
    ['-5', 0],
    ['Infinity', 86_400_000],
    ['999', 999_000],
    ['Thu, 01 Jan 1970 00:01:44 GMT', 4000],
    ['Thu, 01 Jan 1970 00:00:00 GMT', 0],
  ])('askedWaitMs is, for Retry-After %j, %i ms', (header, ms) => {
    expect(parseRetryAfterMs(header, 100)).toBe(ms)
  })
})
