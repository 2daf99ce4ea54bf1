import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { configJsonSchema } from '../../../scripts/config-json-schema.ts'
import { readInferenceConfig } from '../../../src/inference/config/config.ts'
import { engines } from '../../../src/inference/engines/engines.ts'
import { InferenceBackend } from '../../../src/inference/inference-backend.ts'
import { post } from '../server/served.ts'
import { upperCaseEngine } from './added-engine.ts'

const config = (engine: object) => ({
  required: { model_name: 'shout' },
  engine: { kind: 'upper-case', ...engine },
})

describe('an engine kind that is added by one file and one line of the list', () => {
  beforeAll(() => void engines.push(upperCaseEngine))
  afterAll(() => void engines.pop())

  it('an added engine answers a request of a client', async () => {
    const backend = await InferenceBackend.fromConfig(config({}), { port: 0 })
    onTestFinished(() => backend.close())
    const messages = [{ role: 'user', content: 'hello' }]
    const { json } = await post(`${backend.endpoint}/v1/chat/completions`, { messages })
    expect(json.choices[0].message.content).toBe('HELLO')
  })

  it('an added engine has its keys in the configuration, with their checks and defaults', () => {
    const { engine, dynamicWorkers } = readInferenceConfig(config({ max_requests: 5 }))
    expect(engine).toEqual({ kind: 'upper-case', maxRequests: 5 })
    expect(dynamicWorkers.targetOngoingRequests).toBe(5)
    expect(() => readInferenceConfig(config({ max_requests: 0 }))).toThrow(
      'engine.max_requests: expected an integer from 1 to 64, got 0',
    )
    expect(() => readInferenceConfig(config({ sequences: 1 }))).toThrow(
      'engine.sequences: belongs to the llama engine, but the kind is upper-case',
    )
    expect(() => readInferenceConfig({ ...config({}), engine: { max_requests: 1 } })).toThrow(
      'engine.max_requests: belongs to the upper-case engine, but the kind is llama',
    )
  })

  it('an added engine is an option, by its kind or by its keys', () => {
    const sections = { required: { model_name: 'shout' } }
    const read = (engine: unknown) =>
      readInferenceConfig(sections, { engine: engine as never }).engine
    expect(read('upper-case')).toEqual({ kind: 'upper-case', maxRequests: 8 })
    expect(read({ kind: 'upper-case', maxRequests: 2 })).toMatchObject({ maxRequests: 2 })
  })

  it('an added engine is part of the JSON schema of the file', () => {
    expect(JSON.stringify(configJsonSchema())).toContain('Answers in capital letters.')
  })
})
