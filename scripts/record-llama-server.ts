/**
 * Records the responses of a real llama-server to the `openai` engine, as fixtures for the tests of
 * that engine: `node scripts/record-llama-server.ts`, which builds the server if necessary. The
 * exchanges between engine and server are recorded unchanged.
 */

import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { fileURLToPath } from 'node:url'
import { startLlamaServer } from '../bench/llama-cpp-server.ts'
import { InferenceBackend } from '../src/inference/index.ts'
import { installModel } from '../src/inference/models/model-file.ts'

const pathOf = (path: string): string => fileURLToPath(new URL(`../${path}`, import.meta.url))
const target = pathOf('test/inference/engines/openai/fixtures/llama-server.json')

const messages = [{ role: 'user', content: 'Tell me about the red ball.' }]
const chat = { model: 'stories', messages, max_tokens: 6, temperature: 0, seed: 7 }
const streamed = { stream: true, stream_options: { include_usage: true } }
const weather = {
  type: 'function',
  function: {
    name: 'get_weather',
    parameters: { type: 'object', properties: { city: { enum: ['Paris'] } }, required: ['city'] },
  },
}
const schema = {
  type: 'object',
  properties: { size: { enum: ['small', 'large'] } },
  required: ['size'],
  additionalProperties: false,
}

/** The requests of a client to tutti's server. */
const requests: readonly { name: string; path: string; body: object }[] = [
  { name: 'a chat', path: '/v1/chat/completions', body: chat },
  { name: 'a streamed chat', path: '/v1/chat/completions', body: { ...chat, ...streamed } },
  { name: 'a repeated chat', path: '/v1/chat/completions', body: { ...chat, ...streamed } },
  {
    name: 'log probabilities',
    path: '/v1/chat/completions',
    body: { ...chat, ...streamed, logprobs: true, top_logprobs: 2 },
  },
  {
    name: 'a forced call of a tool',
    path: '/v1/chat/completions',
    body: { ...chat, ...streamed, max_tokens: 60, tools: [weather], tool_choice: 'required' },
  },
  {
    name: 'a schema',
    path: '/v1/chat/completions',
    body: {
      ...chat,
      max_tokens: 40,
      response_format: { type: 'json_schema', json_schema: { name: 'size', schema } },
    },
  },
  {
    name: 'fields of its own',
    path: '/v1/chat/completions',
    body: { ...chat, min_p: 0.1, dry_multiplier: 0.5, grammar: 'root ::= "yes" | "no"' },
  },
  {
    name: 'a completion',
    path: '/v1/completions',
    body: { model: 'stories', prompt: 'Once upon a time', max_tokens: 6, temperature: 0 },
  },
  {
    name: 'a grammar that is none',
    path: '/v1/chat/completions',
    body: { ...chat, grammar: 'root ::= "' },
  },
  {
    name: 'a prompt that is too long',
    path: '/v1/chat/completions',
    body: { ...chat, messages: [{ role: 'user', content: 'red ball '.repeat(400) }] },
  },
  {
    name: 'an image, which the model does not take',
    path: '/v1/chat/completions',
    body: {
      ...chat,
      messages: [
        {
          role: 'user',
          content: [{ type: 'image_url', image_url: { url: 'data:image/png;base64,AAAA' } }],
        },
      ],
    },
  },
  { name: 'tokens of a text', path: '/tokenize', body: { content: 'Once upon a time' } },
  { name: 'an embedding', path: '/v1/embeddings', body: { model: 'stories', input: 'red' } },
]

interface HttpExchange {
  readonly path: string
  readonly body: unknown
  readonly status: number
  readonly contentType: string
  readonly answer: string
}

const model = installModel('stories15M', { folder: pathOf('.models'), onProgress: () => {} }).path
const { child: server, origin } = await startLlamaServer(
  { model, alias: 'stories', threads: 1, parallel: 2, 'ctx-size': 512, 'chat-template': 'chatml' },
  ['--jinja'],
)

let exchanges: HttpExchange[] = []
const proxy = createServer((request, response) => {
  void (async () => {
    const text = Buffer.concat(await request.toArray()).toString()
    const upstream = await fetch(`${origin}${request.url}`, {
      method: request.method ?? 'GET',
      headers: { 'content-type': 'application/json' },
      ...(text === '' ? {} : { body: text }),
    })
    const answer = await upstream.text()
    const contentType = upstream.headers.get('content-type') ?? ''
    if (request.method === 'POST') {
      const path = request.url ?? ''
      exchanges.push({ path, body: JSON.parse(text), status: upstream.status, contentType, answer })
    }
    response.writeHead(upstream.status, { 'content-type': contentType })
    response.end(answer)
  })()
})
proxy.listen(0, '127.0.0.1')
await once(proxy, 'listening')
const { port: proxyPort } = proxy.address() as AddressInfo

const backend = await InferenceBackend.fromConfig(
  {
    required: { model_name: 'stories' },
    engine: {
      kind: 'openai',
      base_url: `http://127.0.0.1:${proxyPort}`,
      paths: ['/tokenize', '/v1/embeddings'],
    },
  },
  { port: 0 },
)
const recorded: object[] = []
for (const { name, path, body } of requests) {
  exchanges = []
  const reply = await fetch(`${backend.endpoint}${path}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
  })
  await reply.text()
  process.stdout.write(`${name}: ${reply.status}, ${exchanges.length} exchanges\n`)
  recorded.push({ name, path, body, exchanges })
}
await backend.close()
proxy.close()
server.kill()
writeFileSync(target, `${JSON.stringify(recorded, null, 1)}\n`)
