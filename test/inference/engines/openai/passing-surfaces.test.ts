import { describe, expect, it } from 'vitest'
import { post } from '../../server/served.ts'
import { surfaceClients, toParts } from '../../server/surfaces/surface-clients.ts'
import { ends, says, stream } from './fixtures/openai-server.ts'
import { vllmToolStream } from './fixtures/server-shapes.ts'
import { openPassing } from './open-passing.ts'

/** Without this list, `/v1/responses` would be passed on instead of translated. */
const translating = { engine: { paths: ['/v1/embeddings'] } } as const

describe('surfaces of a server that passes requests on', () => {
  it.each(Object.entries(surfaceClients))(
    'the surface %s shows reasoning, a call in pieces and cached tokens of vLLM',
    async (_, client) => {
      const { upstream, endpoint } = await openPassing(translating)
      const body = client.toBody({ turns: [{ role: 'user', text: 'How is the weather?' }] })
      upstream.plan(stream(...vllmToolStream), stream(...vllmToolStream))
      const whole = await post(endpoint + client.path, body)
      const streamed = await post(endpoint + client.path, { ...body, ...client.streamFields })
      for (const reading of [
        client.readWhole(whole.json),
        client.readStream(toParts(streamed.text)),
      ]) {
        const calls = reading.calls.map((call) => ({
          ...call,
          arguments: JSON.parse(call.arguments) as unknown,
        }))
        expect({ ...reading, calls }).toEqual({
          text: '',
          reasoning: 'The user wants the weather.',
          calls: [{ id: 'chatcmpl-tool-1', name: 'get_weather', arguments: { city: 'Paris' } }],
          finish: 'tool_calls',
          tokens: [40, 12],
        })
      }
    },
  )

  it('images, thinking and a begun answer reach the server behind the engine', async () => {
    const { upstream, endpoint } = await openPassing(translating)
    const answer = stream(says('a cat'), ends())
    upstream.plan(answer, answer, answer)
    const begun = { role: 'assistant', content: 'It is' }
    await post(`${endpoint}/v1/messages`, {
      max_tokens: 5,
      thinking: { type: 'disabled' },
      messages: [
        {
          role: 'user',
          content: [
            { type: 'text', text: 'What is this?', cache_control: { type: 'ephemeral' } },
            { type: 'image', source: { type: 'base64', media_type: 'image/png', data: 'iVBOR' } },
          ],
        },
        begun,
      ],
    })
    await post(`${endpoint}/api/chat`, {
      model: 'tiny',
      stream: false,
      think: true,
      messages: [{ role: 'user', content: 'What is this?', images: ['iVBOR'] }, begun],
    })
    await post(`${endpoint}/v1/responses`, {
      input: [
        {
          role: 'user',
          content: [
            { type: 'input_text', text: 'What is this?' },
            { type: 'input_image', image_url: 'data:image/png;base64,iVBOR' },
          ],
        },
      ],
    })
    const user = {
      role: 'user',
      content: [
        { type: 'text', text: 'What is this?' },
        { type: 'image_url', image_url: { url: 'data:image/png;base64,iVBOR' } },
      ],
    }
    const continued = { continue_final_message: true, add_generation_prompt: false }
    const kwargs = (enable_thinking: boolean) => ({ chat_template_kwargs: { enable_thinking } })
    const [first, second, third] = upstream.generations.map(({ body }) => body)
    expect(first).toMatchObject({ messages: [user, begun], ...continued, ...kwargs(false) })
    expect(second).toMatchObject({ messages: [user, begun], ...continued, ...kwargs(true) })
    expect(third).toMatchObject({ messages: [user] })
    expect(third).not.toHaveProperty('chat_template_kwargs')
  })
})
