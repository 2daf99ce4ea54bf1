/** Starts a server for a test, and sends requests to it. */

import { connect } from 'node:net'
import type { Log } from '../../../src/foundation/log.ts'
import { systemClock } from '../../../src/foundation/clock.ts'
import {
  InferenceServer,
  type InferenceServerOptions,
} from '../../../src/inference/server/server.ts'
import { FakeGenerator } from './fake-generator.ts'

export class RecordingLog implements Log {
  readonly lines: string[] = []

  warn(code: string, message: string): void {
    this.lines.push(`${code}: ${message}`)
  }
}

export interface Served extends AsyncDisposable {
  readonly server: InferenceServer
  readonly generator: FakeGenerator
  readonly log: RecordingLog
  readonly url: string
  readonly port: number
}

interface ServeOptions extends Partial<InferenceServerOptions> {
  readonly generator?: FakeGenerator
  /** `null` for a server whose model is still loading. Default 8192. */
  readonly contextLength?: number | null
  readonly fields?: readonly string[]
}

/** Starts a server with a fake generator on a free port; `await using` stops it. */
export async function serve({
  contextLength = 8192,
  fields = [],
  ...options
}: ServeOptions = {}): Promise<Served> {
  const generator = options.generator ?? new FakeGenerator()
  const log = new RecordingLog()
  const server = new InferenceServer({
    models: ['tiny', 'tiny-alias'],
    host: '127.0.0.1',
    port: 0,
    apiKey: null,
    batchConfig: { type: 'adaptive', maxBatchSize: 1024, maxBatchWaitMs: 500 },
    metrics: () => 'tutti_up 1\n',
    defaults: { maxTokens: 100 },
    clock: systemClock,
    log,
    ...options,
    generator,
  })
  await server.start()
  if (contextLength !== null) server.modelLoaded({ contextLength, fields })
  const url = server.endpoint
  const port = Number(new URL(url).port)
  return { server, generator, log, url, port, [Symbol.asyncDispose]: () => server.stop() }
}

/** The smallest body of a chat request. */
export const hello = { model: 'tiny', messages: [{ role: 'user', content: 'hello there' }] }

export interface Reply {
  readonly status: number
  readonly headers: Headers
  readonly text: string
  // The tests say what they expect of it.
  readonly json: ReturnType<typeof JSON.parse>
}

export async function post(
  url: string,
  body: unknown,
  headers: Record<string, string> = {},
): Promise<Reply> {
  return ask(url, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: typeof body === 'string' ? body : JSON.stringify(body),
  })
}

export async function ask(url: string, init: RequestInit = {}): Promise<Reply> {
  const response = await fetch(url, init)
  const text = await response.text()
  const isJson = response.headers.get('content-type') === 'application/json'
  return {
    status: response.status,
    headers: response.headers,
    text,
    json: isJson && text !== '' ? JSON.parse(text) : undefined,
  }
}

/** Sends raw bytes; resolves with the response when the server has closed the connection. */
export function raw(port: number, ...parts: readonly (string | Buffer)[]): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = connect(port, '127.0.0.1')
    const chunks: Buffer[] = []
    socket.on('data', (chunk) => chunks.push(chunk))
    socket.on('error', (error) => (chunks.length > 0 ? undefined : reject(error)))
    socket.on('close', () => resolve(Buffer.concat(chunks).toString()))
    for (const part of parts) socket.write(part)
  })
}

/** The status line's number and all headers of a request with these lines. */
export async function speak(
  served: Served,
  request: string,
  headers: readonly string[] = [`Host: 127.0.0.1:${served.port}`],
  body = '',
): Promise<{ readonly status: number; readonly answer: string }> {
  const lines = [`${request} HTTP/1.1`, ...headers, 'Connection: close']
  if (body !== '') lines.push('Content-Type: application/json', `Content-Length: ${body.length}`)
  const answer = await raw(served.port, `${lines.join('\r\n')}\r\n\r\n${body}`)
  return { status: Number(/^HTTP\/1\.1 (\d+)/.exec(answer)?.[1]), answer }
}
