import { expect, it } from 'vitest'
import type { ConfigSections } from '../../../../src/inference/config/inference-config.ts'
import { InferenceBackend } from '../../../../src/inference/inference-backend.ts'
import { post } from '../../server/served.ts'
import { asked, openBefore } from './open-passing.ts'

const rule = { id: 'word', keywords: ['swordfish'], stage: 'output' }
const guarded = { guardrails: { toggle_on: true, rules: [rule] } }

it.each<[string, ConfigSections]>([
  ['without rules', {}],
  ['with rules on answers', guarded],
])(
  'row 68: fields that the upstream server ignores are reported to the client, %s',
  async (_, sections) => {
    await using last = await InferenceBackend.fromConfig(
      { required: { model_name: 'tiny' }, engine: { kind: 'echo' } },
      { port: 0 },
    )
    const engine = { paths: ['/tokenize'] }
    const endpoint = await openBefore(`${last.endpoint}/v1`, { ...sections, engine })
    const unknown = { foo_bar: 5, 'a,b é': 1 }
    const streamed = { stream: true, stream_options: { include_usage: true } }
    const requests = [
      ['/v1/chat/completions', { ...asked, ...unknown }],
      ['/v1/chat/completions', { ...asked, ...unknown, ...streamed }],
      ['/v1/chat/completions', { ...asked, ...unknown, n: 2 }],
      ['/v1/completions', { prompt: 'a', ...unknown }],
      ['/v1/completions', { prompt: 'a', ...unknown, ...streamed }],
      ['/generate', { prompts: ['a', 'b'], ...unknown }],
      ['/tokenize', { prompt: 'a', ...unknown }],
    ] as const
    for (const [path, body] of requests) {
      const { status, headers } = await post(`${endpoint}${path}`, body)
      const ignored = headers.get('x-tutti-ignored-fields')
      expect([path, status, ignored]).toEqual([path, 200, 'foo_bar, a%2Cb%20%C3%A9'])
    }
    const { headers } = await post(`${endpoint}/v1/chat/completions`, asked)
    expect(headers.get('x-tutti-ignored-fields')).toBeNull()
  },
)
