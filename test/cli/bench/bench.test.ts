import { createServer, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { readFileSync, writeFileSync } from 'node:fs'
import { createServer as createSecureServer } from 'node:https'
import { describe, expect, it, onTestFinished } from 'vitest'
import { InferenceBackend } from '../../../src/inference/index.ts'
import { createCertificates } from '../../cluster/certificates.ts'
import { tempFolder } from '../../telemetry/open-telemetry.ts'
import { surfaceNames } from '../../../src/cli/bench/surfaces.ts'
import { runHere, startCommand } from '../run-command.ts'

const few = ['--clients', '3', '--requests', '7', '--max-tokens', '5', '--prompt-tokens', '20']

async function startEcho(engine: object = {}, apiKey?: string): Promise<string> {
  const config = { required: { model_name: 'tiny' }, engine: { kind: 'echo', ...engine } }
  const key = apiKey === undefined ? {} : { apiKey }
  const backend = await InferenceBackend.fromConfig(config, { port: 0, ...key })
  onTestFinished(() => backend.close())
  return backend.endpoint ?? ''
}

/** A server that answers each generation in the same way. */
async function startServer(answer: (response: ServerResponse) => void): Promise<string> {
  const server = createServer((request, response) => {
    request.resume()
    if (request.method === 'GET') response.end(JSON.stringify({ data: [{ id: 'm' }] }))
    else answer(response)
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  onTestFinished(() => {
    server.closeAllConnections()
    server.close()
  })
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`
}

const runBench = (url: string, ...args: readonly string[]) =>
  runHere('.', ['bench', url, ...few, ...args])

async function runJson(url: string, ...args: readonly string[]) {
  const { code, stdout } = await runBench(url, '--json', ...args)
  return { code, result: JSON.parse(stdout) as Record<string, unknown> }
}

const event = (value: unknown): string => `data: ${JSON.stringify(value)}\n\n`
const delta = (content: string): string => event({ choices: [{ delta: { content } }] })

describe('tutti bench', () => {
  it.each(surfaceNames)('bench counts requests and tokens of %s', async (surface) => {
    const url = await startEcho()
    const { code, result } = await runJson(url, '--surface', surface)
    expect(code).toBe(0)
    const times = { p50: expect.any(Number), p95: expect.any(Number) }
    expect(result).toMatchObject({
      model: 'tiny',
      surface,
      clients: 3,
      requests: 7,
      failed: 0,
      completion_tokens: 35,
      ttft_seconds: times,
      between_tokens_seconds: times,
      errors: [],
    })
    expect(result['tokens_per_second']).toBeCloseTo(35 / Number(result['seconds']), 6)
  })

  it('bench prints rates, times and a picture of the first tokens', async () => {
    const { code, stdout } = await runBench(`${await startEcho()}/v1/`)
    expect(code).toBe(0)
    expect(stdout).toMatch(/^requests {2}7 answered, 0 failed, 3 clients, /m)
    expect(stdout).toMatch(/^tokens .* 5\.00 per answer$/m)
    expect(stdout).toMatch(/^first token( +[\d.]+ m?s){3}$/m)
    const counts = Array.from(stdout.matchAll(/^ {2}from .*?(\d+)$/gm), ([, count]) =>
      Number(count),
    )
    expect(counts.reduce((sum, count) => sum + count, 0)).toBe(7)
    expect(stdout).toContain('█')
  })

  it('bench measures the pauses between the parts of an answer', async () => {
    const pauseMs = 60
    const url = await startServer((response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' })
      response.write(delta('a'))
      setTimeout(() => response.end(`${delta('b')}data: [DONE]\n\n`), pauseMs)
    })
    const { result } = await runJson(url, '--requests', '1')
    const [first, between, whole] = ['ttft', 'between_tokens', 'answer'].map(
      (name) => (result[`${name}_seconds`] as { p50: number }).p50,
    )
    expect(between).toBeGreaterThan(0)
    // On a busy machine, the first part may be read late. A timer may fire a millisecond early.
    const untilSecond = (first ?? 0) + (between ?? 0)
    expect(untilSecond).toBeGreaterThan((pauseMs - 2) / 1000)
    expect(whole).toBeGreaterThanOrEqual(untilSecond)
    // Without usage, each part counts as a token.
    expect(result['completion_tokens']).toBe(2)
  })

  it('bench exits with 3 where no server listens', async () => {
    const { code, stderr } = await runBench('http://127.0.0.1:1')
    expect([code, stderr]).toEqual([
      3,
      expect.stringContaining('no server answers at http://127.0.0.1:1/'),
    ])
  })

  it('bench says that it does not trust the certificate of a server', async () => {
    const { cert, key } = createCertificates()
    const server = createSecureServer({ cert: readFileSync(cert), key: readFileSync(key) })
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
    onTestFinished(() => void server.close())
    const { port } = server.address() as AddressInfo
    const { code, stderr } = await runBench(`https://127.0.0.1:${port}`)
    expect([code, stderr]).toEqual([3, expect.stringMatching(/ certificate of .* is not trusted/)])
    expect(stderr).toContain('NODE_EXTRA_CA_CERTS=')
  })

  it('bench exits with 2 for an address that is none, and for an unknown surface', async () => {
    expect(await runBench('127.0.0.1:8000')).toMatchObject({
      code: 2,
      stderr: expect.stringMatching(
        /^ValueError {2}url: expected an address .* got "127\.0\.0\.1:8000"/,
      ),
    })
    expect((await runBench('http://127.0.0.1:1', '--surface', 'telepathy')).code).toBe(2)
  })

  it('bench sends the key of a file, and names the option where it is missing', async () => {
    const url = await startEcho({}, 'a-key')
    expect(await runBench(url)).toMatchObject({
      code: 3,
      stderr: expect.stringContaining('--api-key-file'),
    })
    const file = join(tempFolder(), 'key')
    writeFileSync(file, 'a-key\n', { mode: 0o600 })
    expect((await runJson(url, '--api-key-file', file)).result).toMatchObject({ failed: 0 })
  })

  it('bench counts refused requests by their reason, and exits with 1', async () => {
    const { code, result } = await runJson(await startEcho(), '--model', 'another')
    expect(code).toBe(1)
    expect(result).toMatchObject({ requests: 7, failed: 7, tokens_per_second: 0 })
    expect(result['errors']).toEqual([
      { message: expect.stringMatching(/^HTTP 404: .*another/), count: 7 },
    ])
  })

  it.each([
    ['ends early', delta('a'), 'the answer ended before its last event'],
    ['has an error', `${delta('a')}${event({ error: { message: 'no memory' } })}`, 'no memory'],
    ['is not JSON', 'data: {\n\n', 'an event is not a JSON object: {'],
  ])('bench counts an answer as failed whose stream %s', async (_, text, message) => {
    const url = await startServer((response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' })
      response.end(text)
    })
    const { result } = await runJson(url)
    expect(result).toMatchObject({ requests: 7, failed: 7, errors: [{ message, count: 7 }] })
  })

  it('bench ends a request at the error or end of a stream that stays open', async () => {
    const parts = [delta('a'), event({ error: { message: 'no memory' } })]
    const failing = await startServer((response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' })
      response.write(parts.join(''))
    })
    expect((await runJson(failing)).result).toMatchObject({ failed: 7 })
    const done = await startServer((response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' })
      response.write(`${delta('a')}data: [DONE]\n\n`)
    })
    expect((await runJson(done)).result).toMatchObject({ requests: 7, failed: 0 })
  })

  it('bench ignores counts of tokens that are none', async () => {
    const usage = { prompt_tokens: 'many', completion_tokens: -3 }
    const url = await startServer((response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' })
      response.end(`${delta('a')}${event({ choices: [], usage })}data: [DONE]\n\n`)
    })
    const { result } = await runJson(url)
    expect(result).toMatchObject({ prompt_tokens: 0, completion_tokens: 7 })
  })

  it('bench reads only the beginning of an endless refusal', async () => {
    const url = await startServer((response) => {
      response.writeHead(500)
      const text = 'x'.repeat(65_536)
      const write = (): void => {
        while (!response.destroyed && response.write(text));
      }
      response.on('drain', write)
      write()
    })
    const { result } = await runJson(url)
    expect(result['errors']).toEqual([{ message: expect.stringMatching(/^HTTP 500: x/), count: 7 }])
  })

  it('bench lists the reasons of failures on lines of their own, and not all of many', async () => {
    let count = 0
    const url = await startServer((response) => {
      response.writeHead(500)
      response.end(`request ${count++}`)
    })
    const { stdout, stderr } = await runBench(url, '--requests', '40')
    const lines = stdout.split('\n').filter((line) => line.includes(' failed: '))
    expect(lines).toHaveLength(21)
    expect(lines.at(-1)).toBe('20 requests failed: other reasons')
    expect(stdout).not.toContain('\\u000a')
    expect(stderr).toBe('')
  })

  it('bench counts a reply as failed that is no stream', async () => {
    const url = await startServer((response) => response.end('{}'))
    expect((await runJson(url)).result['errors']).toEqual([
      { message: expect.stringContaining('expected a stream of events'), count: 7 },
    ])
  })

  it('SIGINT ends bench with what it has measured', async () => {
    const asked = Promise.withResolvers<void>()
    const url = await startServer((response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' })
      response.write(delta('a'))
      asked.resolve()
    })
    const command = startCommand(['bench', url, ...few, '--json'])
    await asked.promise
    command.child.kill('SIGINT')
    const { code, stdout } = await command.ended
    expect(code).toBe(130)
    expect(JSON.parse(stdout)).toMatchObject({ requests: 0, failed: 0 })
  })

  it('a request without a complete answer within --timeout has failed', async () => {
    const url = await startServer((response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' })
      response.write(delta('a'))
    })
    const { code, result } = await runJson(url, '--timeout', '1')
    expect([code, result]).toMatchObject([
      1,
      { failed: 7, errors: [{ message: 'no complete answer within 1 s', count: 7 }] },
    ])
  })
})
