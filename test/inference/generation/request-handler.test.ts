import { describe, expect, it } from 'vitest'
import { WorkerLostError } from '../../../src/foundation/errors.ts'
import type {
  CreateEngine,
  GenerationDelta,
} from '../../../src/inference/generation/inference-engine.ts'
import { inferenceError } from '../../../src/inference/generation/inference-errors.ts'
import { Session } from '../../../src/session/session.ts'
import { AITask } from '../../../src/tasks/ai-task.ts'
import { configWith, createObedientEngine, openBackend } from '../open-backend.ts'

/** An engine that answers every request with these deltas. */
function saying(...deltas: readonly GenerationDelta[]): CreateEngine {
  return (worker) =>
    Object.assign(createObedientEngine(worker), {
      async generate(...[requests, listener]: Parameters<ReturnType<CreateEngine>['generate']>) {
        for (const { id, signal } of requests) {
          for (const delta of deltas) if (!signal.aborted) void listener.delta(id, delta)
          const usage = { promptTokens: 7, completionTokens: 5 }
          listener.end(id, { kind: 'done', finishReason: 'stop', usage })
        }
      },
    })
}

const rule = (action: string, more = ''): string =>
  'guardrails:\n  toggle_on: true\n  rules:\n' +
  `    - { id: word, keywords: [swordfish], stage: output, action: ${action} }\n${more}`

const text = (value: string): GenerationDelta => ({
  text: value,
  logprobs: [{ token: value, logprob: -1, top: [] }],
})
const told = saying(text('the password is sword'), text('fish, you know'))

const ask = (endpoint: string | null, body: object): Promise<Response> =>
  fetch(`${endpoint}/v1/chat/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ messages: [{ role: 'user', content: 'hi' }], ...body }),
  })

async function chat(endpoint: string | null, body: object): Promise<Record<string, unknown>> {
  return (await (await ask(endpoint, body)).json()) as Record<string, unknown>
}

describe('output rules', () => {
  it('block a result and count its real tokens when they are known', async () => {
    const configFile = configWith(rule('reject'))
    const backend = await openBackend({ configFile, engine: told })
    const [result] = await backend.generate(['x'], 5)
    expect(result?.finish_reason).toBe('content_filter')
    expect(result?.text).not.toContain('swordfish')
    expect(result?.usage).toEqual({ prompt_tokens: 7, completion_tokens: 5, total_tokens: 12 })
  })

  const cutOff = `${'so '.repeat(60)}swordfish${' on'.repeat(2000)}`
  const deaf: CreateEngine = (worker) =>
    Object.assign(saying({ text: cutOff })(worker), {
      tokenize: () => Promise.reject(new Error('the server does not report its tokens')),
    })
  const cutOffBy: Record<string, readonly [CreateEngine, number]> = {
    'that reports it with the first delta': [saying({ text: cutOff, promptTokens: 9 }), 9],
    'that can only tokenize it': [saying({ text: cutOff }), 'hi there, you'.length],
    'that can do neither (estimated)': [deaf, 4],
  }
  it.each(Object.entries(cutOffBy))(
    'output rules count the prompt tokens of a blocked result with an engine %s',
    async (_, [engine, promptTokens]) => {
      const configFile = configWith(rule('reject'))
      const backend = await openBackend({ configFile, engine, port: 0 })
      const messages = [{ role: 'user', content: 'hi there, you' }]
      const usage = { prompt_tokens: promptTokens, completion_tokens: 1 }
      expect(await chat(backend.endpoint, { messages })).toMatchObject({
        choices: [{ finish_reason: 'content_filter' }],
        usage,
      })
      const options = { stream: true, stream_options: { include_usage: true } }
      const stream = await ask(backend.endpoint, { messages, ...options })
      const events = (await stream.text()).matchAll(/^data: (\{.*)$/gm)
      const chunks = Array.from(events, ([, data = '']): unknown => JSON.parse(data))
      expect(chunks.at(-1)).toMatchObject({ choices: [], usage })
    },
  )

  it('output rules replace a blocked result by the refusal when onBlock is refusal', async () => {
    const configFile = configWith(rule('reject', '  on_block: refusal\n'))
    const backend = await openBackend({ configFile, engine: told })
    const [result] = await backend.generate(['x'], 5)
    expect(result?.text).toMatch(/I cannot help with this request\.$/)
  })

  it('output rules drop log probabilities, which contain the text', async () => {
    const configFile = configWith(rule('redact'))
    const backend = await openBackend({ configFile, engine: told, port: 0 })
    const answer = await chat(backend.endpoint, { logprobs: true, top_logprobs: 1 })
    expect(JSON.stringify(answer)).toContain('[redacted:word]')
    expect(JSON.stringify(answer)).not.toContain('fish')
  })

  it('output rules apply to the arguments of tool calls', async () => {
    const call = { id: 'c1', name: 'say', arguments: '{"what":"swordfish"}' }
    const engine = saying({ text: '', toolCalls: [call] })
    const tools = [{ type: 'function', function: { name: 'say' } }]
    for (const action of ['reject', 'redact']) {
      const configFile = configWith(rule(action))
      const backend = await openBackend({ configFile, engine, port: 0 })
      const answer = JSON.stringify(await chat(backend.endpoint, { tools }))
      expect(answer).not.toContain('swordfish')
      expect(answer).toContain(action === 'redact' ? '[redacted:word]' : 'content_filter')
    }
  })
})

it('input rules read the schema of a required format', async () => {
  const configFile = configWith(rule('reject').replace('output', 'input'))
  const backend = await openBackend({ configFile, engine: told, port: 0 })
  const schema = { type: 'object', properties: { a: { description: 'a swordfish' } } }
  const response_format = { type: 'json_schema', json_schema: { name: 'x', schema } }
  const answer = await chat(backend.endpoint, { response_format })
  expect(answer).toMatchObject({ error: { code: 'content_filter' } })
})

it('all choices of an HTTP request share one guardrail check of the input', async () => {
  const inputs: unknown[] = []
  const engine: CreateEngine = (worker) => {
    const obedient = createObedientEngine(worker)
    return Object.assign(saying(text('fine'))(worker), {
      generate(...[requests, listener]: Parameters<typeof obedient.generate>) {
        inputs.push(...requests.map(({ input }) => input))
        return saying(text('fine'))(worker).generate(requests, listener)
      },
    })
  }
  const configFile = configWith(rule('redact').replace('output', 'input'))
  const backend = await openBackend({ configFile, engine, port: 0 })
  const messages = [{ role: 'user', content: 'a swordfish' }]
  await chat(backend.endpoint, { n: 3, messages })
  expect(inputs).toHaveLength(3)
  expect(new Set(inputs).size).toBe(1)
  expect(inputs[0]).toMatchObject({ messages: [{ content: 'a [redacted:word]' }] })
})

describe('row 79: a request whose engine is lost while it generates', () => {
  /** An engine that is lost in the middle of its first batch, and answers all others. */
  function dyingOnce(): CreateEngine {
    let batches = 0
    return (worker) =>
      Object.assign(createObedientEngine(worker), {
        async generate(...[requests, listener]: Parameters<ReturnType<CreateEngine>['generate']>) {
          const isLost = batches++ === 0
          for (const { id } of requests) {
            void listener.delta(id, text(isLost ? 'a beginning' : 'whole'))
            const usage = { promptTokens: 1, completionTokens: 1 }
            if (!isLost) listener.end(id, { kind: 'done', finishReason: 'stop', usage })
          }
          if (isLost) throw inferenceError('engine_lost', 'it crashed')
        },
      })
  }

  it('a request whose engine is lost is restarted if its client has received no text', async () => {
    const backend = await openBackend({ engine: dyingOnce() })
    const [result] = await backend.generate(['x'], 5)
    expect(result).toMatchObject({ text: 'whole', finish_reason: 'stop' })
    const server = await openBackend({ engine: dyingOnce(), port: 0 })
    const answer = await chat(server.endpoint, { logprobs: true })
    const content = [{ token: 'whole' }]
    expect(answer['choices']).toMatchObject([
      { message: { content: 'whole' }, logprobs: { content } },
    ])
    expect(JSON.stringify(answer)).not.toContain('beginning')
  })

  it('a request whose engine is lost restarts the output rules, too', async () => {
    const configFile = configWith(rule('redact'))
    const backend = await openBackend({ configFile, engine: dyingOnce() })
    expect(await backend.generate(['x'], 5)).toMatchObject([{ text: 'whole' }])
  })

  it('a request whose engine is lost fails if its client has received text', async () => {
    const backend = await openBackend({ engine: dyingOnce(), port: 0 })
    const stream = await (await ask(backend.endpoint, { stream: true })).text()
    expect(stream).toContain('a beginning')
    expect(stream).toContain('engine_lost')
    expect(stream).not.toContain('whole')
  })

  it('a request whose engine is lost fails as a lost worker if it is a task', async () => {
    await using session = new Session([await openBackend({ engine: dyingOnce() })])
    const task = new AITask({ prompt: 'a', backend: 'llm' })
    await session.submitTasks([task])
    await session.waitTasks([task])
    expect(task.error?.cause).toBeInstanceOf(WorkerLostError)
  })
})

describe('the queue limit', () => {
  const small = 'hardware:\n  queue_limit: 2\ninput_batching:\n  max_batch_size: 1\n'
  const slots: CreateEngine = (worker) =>
    Object.assign(createObedientEngine(worker), { capacity: { admits: 'step', slots: 1 } as const })

  it('row 75: the queue limit applies to HTTP requests; tasks of a session wait', async () => {
    const backend = await openBackend({ configFile: configWith(small), engine: slots, port: 0 })
    await using session = new Session([backend])
    const endless = new AITask({ prompt: 'endless', backend: 'llm' })
    const tasks = Array.from({ length: 50 }, () => new AITask({ prompt: 'a', backend: 'llm' }))
    await session.submitTasks([endless, ...tasks])
    const clients = Array.from({ length: 4 }, () => chat(backend.endpoint, {}))
    const refused = await Promise.race(clients)
    expect(refused).toMatchObject({ error: { code: 'queue_full' } })
    session.cancel(endless)
    await session.waitTasks(tasks)
    expect(tasks.map(({ state }) => state)).toEqual(tasks.map(() => 'DONE'))
    await Promise.all(clients)
  })

  it('the queue limit does not apply to generate()', async () => {
    const backend = await openBackend({ configFile: configWith(small), engine: slots })
    expect(await backend.generate(Array.from({ length: 20 }, String), 20)).toHaveLength(20)
  })
})
