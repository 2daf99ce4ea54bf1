/** A model of 323 MB that is too slow for every run. */

import { fileURLToPath } from 'node:url'
import { join } from 'node:path'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { InferenceBackend } from '../../../../src/inference/inference-backend.ts'
import { installModel } from '../../../../src/inference/models/model-file.ts'
import { Session } from '../../../../src/session/session.ts'
import { AITask } from '../../../../src/tasks/ai-task.ts'

describe('a real chat model', () => {
  let folder = ''
  let backend: InferenceBackend
  beforeAll(async () => {
    folder = mkdtempSync(join(tmpdir(), 'tutti-tiny-llama-'))
    const configFile = join(folder, 'model.yaml')
    writeFileSync(configFile, 'required:\n  model_name: tinyllama\nllm:\n  max_model_len: 1024\n')
    const models = fileURLToPath(new URL('../../../../.models/', import.meta.url))
    backend = await InferenceBackend.create({
      name: 'llm',
      configFile,
      modelName: installModel('tinyllama-1.1b-chat', { folder: models, onProgress() {} }).path,
      useService: false,
      engine: { kind: 'llama', gpu: false, sequences: 4 },
    })
  }, 600_000)
  afterAll(async () => {
    await backend.close()
    rmSync(folder, { recursive: true })
  })

  it('a real chat model answers through its own chat template, and stops by itself', async () => {
    const [answer] = await backend.generate(['What is the capital of France?'], 300)
    expect(answer?.text).toContain('Paris')
    expect(answer?.finish_reason).toBe('stop')
  }, 600_000)

  it('a real chat model keeps to a schema', async () => {
    await using session = new Session([backend])
    const schema = {
      type: 'object',
      properties: { capital: { type: 'string', enum: ['Paris', 'Rome', 'Berlin'] } },
      required: ['capital'],
      additionalProperties: false,
    }
    const task = new AITask({
      prompt: 'What is the capital of Italy?',
      systemPrompt: 'Answer with JSON.',
      backend: 'llm',
      temperature: 0,
      responseFormat: { type: 'json_schema', json_schema: { name: 'answer', schema } },
    })
    await session.submitTasks([task])
    const { capital } = JSON.parse(await task) as { capital: string }
    expect(schema.properties.capital.enum).toContain(capital)
    await session.close({ keepBackends: true })
  }, 600_000)
})
