import { hostname } from 'node:os'
import { describe, expect, it } from 'vitest'
import { createEchoEngine } from '../../src/inference/engines/echo/echo-engine.ts'
import type { InferenceEngine } from '../../src/inference/generation/inference-engine.ts'
import { toInferenceCode } from '../../src/inference/generation/inference-errors.ts'
import { Session } from '../../src/session/session.ts'
import { AITask } from '../../src/tasks/ai-task.ts'
import { configWith, openBackend } from './open-backend.ts'

const ask = (prompt: string, options: object = {}) =>
  new AITask({ prompt, backend: 'llm', ...options })

describe('AI tasks', () => {
  it('AI tasks report why their answers ended', async () => {
    const warnings: string[] = []
    const log = { warn: (code: string, text: string) => void warnings.push(`${code}: ${text}`) }
    await using session = new Session([await openBackend({ log })])
    const telemetry = await session.startTelemetry()
    const told: unknown[] = []
    telemetry.subscribe(({ event_type: type, attributes }) => {
      if (type === 'TaskCompleted') told.push(attributes['gen_ai.response.finish_reasons'])
    })
    const words = 'one two three four five '.repeat(10)
    const tasks = [ask('hi'), ask(words, { maxTokens: 3 })]
    const both = new AITask({ prompt: ['hi', words], backend: 'llm', maxTokens: 12 })
    expect(tasks[0]?.finishReason).toBeUndefined()
    await session.submitTasks([...tasks, both])
    await Promise.all([...tasks, both])
    expect(tasks.map(({ finishReason }) => finishReason)).toEqual(['stop', 'length'])
    expect(both.finishReason).toEqual(['stop', 'length'])
    expect([await both, both.response]).toEqual([both.response, await both])
    await telemetry.flush()
    expect(told).toEqual([['stop'], ['length'], ['stop', 'length']])
    expect(warnings).toEqual([])

    const format = { maxTokens: 3, responseFormat: { type: 'json_object' } }
    const cut = [ask(words, { ...format, uid: 'cut' }), ask(words, format)]
    await session.submitTasks(cut)
    await Promise.all(cut)
    expect(warnings).toEqual([expect.stringMatching(/^AnswerCut: the answer of task cut was cut/)])
  })

  it('AI tasks that a guardrail refuses, or that do not fit, are not retried', async () => {
    const rules = 'guardrails:\n  toggle_on: true\n  rules: [{ id: animals, keywords: [zebra] }]\n'
    await using session = new Session([await openBackend({ configFile: configWith(rules) })])
    const telemetry = await session.startTelemetry()
    const attempts: string[] = []
    telemetry.subscribe(({ event_type: type }) => attempts.push(type))
    const options = { retries: { times: 2, if: () => true } }
    const tasks = [ask('a zebra', options), ask('word '.repeat(100_000), options)]
    const list = new AITask({ prompt: ['fine', 'a zebra'], backend: 'llm', ...options })
    await session.submitTasks([...tasks, list])
    await session.waitTasks([...tasks, list])
    const codes = [...tasks, list].map(({ error }) => toInferenceCode(error?.cause))
    expect(codes).toEqual(['content_filter', 'context_length_exceeded', 'content_filter'])
    expect(attempts.filter((type) => type === 'tutti.TaskAttempt')).toEqual([])
  })

  it('AI tasks have the node of their model as node_id, and this machine without one', async () => {
    const createEngine = (node?: string) => (): InferenceEngine =>
      Object.assign(createEchoEngine(), { nodeId: node })
    const there = await openBackend({ name: 'there', engine: createEngine('n7') })
    const here = await openBackend({ name: 'here', engine: createEngine() })
    await using session = new Session([there, here])
    const telemetry = await session.startTelemetry()
    const nodes: unknown[] = []
    telemetry.subscribe(({ event_type: type, backend, node_id: node }) => {
      if (type === 'TaskStarted' || type === 'TaskCompleted') nodes.push([backend, node])
    })
    for (const backend of ['there', 'here']) {
      const task = ask('x', { backend })
      await session.submitTasks([task])
      await task
    }
    await telemetry.flush()
    const own = ['here', hostname()]
    expect(nodes).toEqual([['there', 'n7'], ['there', 'n7'], own, own])
  })

  it('AI tasks: messages of the engine name the responseFormat as the task named it', async () => {
    const formats: unknown[] = []
    const createEngine = (): InferenceEngine => {
      const echo = createEchoEngine()
      return {
        capacity: echo.capacity,
        start: () => echo.start(),
        generate: (requests, listener) => {
          formats.push(...requests.map(({ sampling }) => sampling.format))
          return echo.generate(requests, listener)
        },
        tokenize: (text) => echo.tokenize(text),
        lost: () => echo.lost(),
        close: () => echo.close(),
      }
    }
    await using session = new Session([await openBackend({ engine: createEngine })])
    const schema = { type: 'string' }
    const task = ask('x', { responseFormat: { type: 'json_schema', json_schema: { schema } } })
    await session.submitTasks([task])
    await session.waitTasks([task])
    expect(formats).toEqual([{ kind: 'json_schema', schema, field: 'responseFormat' }])
  })
})
