import { readFileSync } from 'node:fs'
import { expect, it } from 'vitest'
import { post, type Reply } from '../../server/served.ts'
import type { Step } from './fixtures/openai-server.ts'
import { openPassing } from './open-passing.ts'

interface HttpExchange {
  readonly path: string
  /** The request that our engine sent. */
  readonly body: object
  readonly status: number
  readonly contentType: string
  readonly answer: string
}

interface Recording {
  readonly name: string
  /** The request that a client sends to our server. */
  readonly path: string
  readonly body: { readonly stream?: boolean }
  readonly exchanges: readonly [HttpExchange]
}

/** Recorded from a real llama-server by scripts/record-llama-server.ts. */
const recordings = JSON.parse(
  readFileSync(new URL('fixtures/llama-server.json', import.meta.url), 'utf8'),
) as readonly Recording[]

const chunksOf = (text: string): Reply['json'][] =>
  text
    .split('\n\n')
    .filter((event) => event.startsWith('data: {'))
    .map((event) => JSON.parse(event.slice('data: '.length)))

/** Sends the request of a recording through our server, behind which the recorded answer comes. */
async function replay({ path, body, exchanges: [exchange] }: Recording) {
  const sent: object[] = []
  const answer: Step = (response, recorded) => {
    sent.push(recorded.body)
    response.writeHead(exchange.status, { 'content-type': exchange.contentType })
    response.end(exchange.answer)
  }
  const { upstream, endpoint } = await openPassing(
    { required: { model_name: 'stories' }, engine: { paths: ['/tokenize', '/v1/embeddings'] } },
    { models: [{ id: 'stories' }], others: { [exchange.path]: answer } },
  )
  upstream.plan(answer)
  return { reply: await post(`${endpoint}${path}`, body), sent }
}

/** The parts of an answer that a client can read, streamed or not. */
function contentOf(chunks: readonly Reply['json'][]) {
  const choices = chunks.flatMap((chunk) => chunk.choices)
  const parts = choices.map(({ delta, message, text }) => delta ?? message ?? { content: text })
  return {
    text: parts.map(({ content }) => content ?? '').join(''),
    logprobs: choices.flatMap(({ logprobs }) => logprobs?.content ?? []),
    finishReason: choices.at(-1)?.finish_reason,
    usage: chunks.at(-1).usage,
    timings: chunks.findLast(({ timings }) => timings !== undefined)?.timings,
  }
}

const statusOf = ({ exchanges: [exchange] }: Recording): number => exchange.status
const isGenerated = ({ path }: Recording): boolean => path.endsWith('completions')
const answers = recordings.filter((one) => statusOf(one) === 200)
const refusals = recordings.filter((one) => statusOf(one) !== 200 && statusOf(one) !== 500)

it('the recordings have every kind of answer', () => {
  const counts = [answers.filter(isGenerated), answers, refusals].map(({ length }) => length)
  expect(counts).toEqual([7, 8, 4])
})

it.each(answers.filter(isGenerated))('llama-server answers: $name', async (recording) => {
  const [{ body, answer }] = recording.exchanges
  const { reply, sent } = await replay(recording)
  expect(sent).toEqual([body])
  const chunks = recording.body.stream === true ? chunksOf(reply.text) : [reply.json]
  const [ours, theirs] = [contentOf(chunks), contentOf(chunksOf(answer))]
  expect(theirs.text).not.toBe('')
  expect(ours).toEqual({ ...theirs, usage: expect.objectContaining(theirs.usage) })
})

it.each(answers.filter((one) => !isGenerated(one)))(
  'llama-server answers on another path: $name',
  async (recording) => {
    const [{ body, answer }] = recording.exchanges
    const { reply, sent } = await replay(recording)
    expect(sent).toEqual([body])
    expect(JSON.parse(reply.text)).toEqual(JSON.parse(answer))
  },
)

it.each(refusals)('llama-server refuses: $name', async (recording) => {
  const [{ body, status, answer }] = recording.exchanges
  const { reply, sent } = await replay(recording)
  expect(sent).toEqual([body])
  expect(reply.status).toBe(status)
  expect(reply.json.error.message).toBe(JSON.parse(answer).error.message)
})

it('llama-server fails: an image, which the model does not take', async () => {
  const recording = recordings.find((one) => statusOf(one) === 500)
  if (recording === undefined) throw new Error('not recorded')
  const { reply } = await replay(recording)
  const [{ answer }] = recording.exchanges
  const words: string = JSON.parse(answer).error.message
  expect([reply.status, reply.json.error.code]).toEqual([502, 'upstream_error'])
  expect(reply.json.error.message).toContain(`answered 500: ${words}`)
})
