/** Our own server in front of a fixture server, both closed after the test. */

import { onTestFinished } from 'vitest'
import type { ConfigSections } from '../../../../src/inference/config/inference-config.ts'
import {
  type FromConfigOptions,
  InferenceBackend,
} from '../../../../src/inference/inference-backend.ts'
import { post, type Reply } from '../../server/served.ts'
import { OpenAiServer, type OpenAiServerOptions } from './fixtures/openai-server.ts'

export interface Passing {
  /** The server behind the engine. */
  readonly upstream: OpenAiServer
  /** The address of our own server. */
  readonly endpoint: string
  /** Asks our own server. */
  readonly chat: (body: object) => Promise<Reply>
  /** The chunks of a streamed answer, without `[DONE]`. */
  readonly chatStream: (body: object) => Promise<Reply['json'][]>
}

export async function openPassing(
  sections: ConfigSections = {},
  serverOptions: Partial<OpenAiServerOptions> = {},
  options: FromConfigOptions = {},
): Promise<Passing> {
  const upstream = new OpenAiServer(serverOptions)
  await upstream.listen()
  onTestFinished(() => upstream.close())
  const endpoint = await openBefore(upstream.url, sections, options)
  const chat = (body: object): Promise<Reply> => post(`${endpoint}/v1/chat/completions`, body)
  return { upstream, endpoint, chat, chatStream: async (body) => chunksOf(await chat(body)) }
}

/** Opens our own server with the `openai` engine before another one; resolves with its address. */
export async function openBefore(
  baseUrl: string,
  sections: ConfigSections = {},
  options: FromConfigOptions = {},
): Promise<string> {
  const backend = await InferenceBackend.fromConfig(
    {
      required: { model_name: 'tiny' },
      ...sections,
      engine: { kind: 'openai', base_url: baseUrl, ...sections.engine },
    },
    { port: 0, ...options },
  )
  onTestFinished(() => backend.close())
  return backend.endpoint ?? ''
}

/** The parsed events of a stream, without `[DONE]`. */
function chunksOf({ text }: Reply): Reply['json'][] {
  return text
    .split('\n\n')
    .filter((event) => event.startsWith('data: {'))
    .map((event) => JSON.parse(event.slice('data: '.length)))
}

export const asked = { model: 'tiny', messages: [{ role: 'user', content: 'Hello' }] }
