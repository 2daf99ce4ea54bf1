import { describe, expect, expectTypeOf, it } from 'vitest'
import type { AnyTask } from '../../src/backends/backend.ts'
import { Session } from '../../src/session/session.ts'
import { AITask } from '../../src/tasks/ai-task.ts'
import { FakeBackend } from '../../src/testing/fake-backend.ts'

const ask = (options: object = {}) => new AITask({ prompt: 'Why?', backend: 'llm', ...options })

describe('an AI task', () => {
  it('an AI task keeps its prompt, its model and its sampling options', () => {
    const responseFormat = { type: 'json_object' } as const
    const prompts = ['a', 'b']
    const task = new AITask({
      prompt: prompts,
      model: 'small',
      systemPrompt: 'Be brief.',
      temperature: 0,
      maxTokens: 1,
      topP: 1,
      topK: 0,
      stop: '###',
      seed: -7,
      responseFormat,
      timeoutSeconds: 3,
    })
    prompts.push('c')
    expect(task).toMatchObject({
      kind: 'ai',
      prompt: ['a', 'b'],
      model: 'small',
      backend: null,
      timeoutSeconds: 3,
      response: undefined,
    })
    expect(task.sampling).toEqual({
      systemPrompt: 'Be brief.',
      temperature: 0,
      maxTokens: 1,
      topP: 1,
      topK: 0,
      stop: ['###'],
      seed: -7,
      responseFormat,
    })
    expect(Object.isFrozen(task.sampling)).toBe(true)
    expect(ask().sampling).toEqual({})
    expect(ask({ stop: ['a', 'b'] }).sampling.stop).toEqual(['a', 'b'])
  })

  const invalid: readonly [object, string][] = [
    [{ prompt: undefined }, 'prompt'],
    [{ prompt: 7 }, 'prompt'],
    [{ prompt: ['a', 7] }, 'prompt[1]'],
    [{ model: '' }, 'model'],
    [{ backend: '' }, 'backend'],
    [{ systemPrompt: 7 }, 'systemPrompt'],
    [{ temperature: -0.1 }, 'temperature'],
    [{ temperature: 2.1 }, 'temperature'],
    [{ temperature: Number.NaN }, 'temperature'],
    [{ maxTokens: 0 }, 'maxTokens'],
    [{ maxTokens: 1.5 }, 'maxTokens'],
    [{ topP: 0 }, 'topP'],
    [{ topP: 1.1 }, 'topP'],
    [{ topK: -1 }, 'topK'],
    [{ stop: 7 }, 'stop'],
    [{ stop: ['a', ''] }, 'stop'],
    [{ seed: 0.5 }, 'seed'],
    [{ responseFormat: 'json' }, 'responseFormat'],
    [{ max_tokens: 7 }, 'max_tokens'],
    [{ executable: 'x' }, 'executable'],
  ]
  it('an AI task keeps the response format as it was given', () => {
    const schema = { type: 'object', required: ['age'] }
    const json_schema = { name: 'person', schema }
    const task = new AITask({ prompt: 'x', responseFormat: { type: 'json_schema', json_schema } })
    schema.required.push('name')
    expect(task.spec.sampling.responseFormat).toMatchObject({
      json_schema: { schema: { required: ['age'] } },
    })
    const large = { type: 'json_object' as const, size: 1n }
    expect(() => new AITask({ prompt: 'x', responseFormat: large })).toThrow(/responseFormat/)
  })

  it('an AI task needs neither a backend nor a model: routing decides', () => {
    const task = new AITask({ prompt: 'Why?' })
    expect([task.backend, task.model]).toEqual([null, null])
  })

  it.each(invalid)('an AI task refuses %j and names the field', (options, field) => {
    expect(() => ask(options)).toThrow(expect.objectContaining({ name: 'ValueError', field }))
  })

  it('an AI task gives a string for a string, an array in prompt order for an array', async () => {
    const backend = new FakeBackend({ name: 'llm' })
    await using session = new Session([backend])
    const one = ask()
    const list = new AITask({ prompt: ['a', 'b'], backend: 'llm' })
    await session.submitTasks([one, list])
    backend.complete(one, 'Because.')
    backend.complete(list, ['A', 'B'])
    expect([await one, one.response]).toEqual(['Because.', 'Because.'])
    expect([await list, list.response]).toEqual([
      ['A', 'B'],
      ['A', 'B'],
    ])
  })

  it('an AI task infers what awaiting gives', () => {
    const one = new AITask({ prompt: 'a', model: 'm' })
    expectTypeOf<Awaited<typeof one>>().toEqualTypeOf<string>()
    expectTypeOf(one.response).toEqualTypeOf<string | undefined>()
    const list = new AITask({ prompt: ['a', 'b'], model: 'm' })
    expectTypeOf<Awaited<typeof list>>().toEqualTypeOf<string[]>()
    const given = ['a', ['b']].at(0) ?? ''
    const either = new AITask({ prompt: given, model: 'm' })
    expectTypeOf<Awaited<typeof either>>().toEqualTypeOf<string | string[]>()
    const all: AnyTask[] = [one, list, either]
    expect(all).toHaveLength(3)
    // @ts-expect-error a prompt is text
    expect(() => new AITask({ prompt: 7, model: 'm' })).toThrow()
    // @ts-expect-error a prompt is needed
    expect(() => new AITask({ model: 'm' })).toThrow()
  })
})
