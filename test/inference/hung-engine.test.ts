import { expect, it } from 'vitest'
import { eventually } from '../eventually.ts'
import { modelProcesses } from './engines/llama/model-processes.ts'
import { writeTinyModel } from './engines/tiny-model.ts'
import { configWith, openBackend, tempFolder } from './open-backend.ts'

it('an engine that stands still makes /health unhealthy, and is replaced', async () => {
  const folder = tempFolder()
  const backend = await openBackend({
    configFile: configWith('', folder),
    modelName: writeTinyModel(folder),
    port: 0,
    engine: { kind: 'llama', threads: 1, gpu: false, sequences: 2, hungSeconds: 4 },
  })
  const health = async () => {
    const response = await fetch(`${backend.endpoint}/health`)
    return { status: response.status, body: (await response.json()) as { reason?: string } }
  }
  const ask = async () => {
    const response = await fetch(`${backend.endpoint}/v1/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ prompt: 'a', max_tokens: 5, temperature: 0 }),
    })
    return response.status
  }
  expect(await ask()).toBe(200)
  expect((await health()).status).toBe(200)
  const [hung = 0] = modelProcesses(process.pid)
  process.kill(hung, 'SIGSTOP')
  // Nothing is wrong with an engine that has nothing to do.
  const asked = ask()
  await eventually(async () => {
    const { status, body } = await health()
    expect([status, body.reason]).toEqual([503, expect.stringMatching(/no sign of life for \d+ s/)])
  })
  // Nothing of the answer was sent, so the next process begins it again.
  expect(await asked).toBe(200)
  const next = modelProcesses(process.pid)
  expect(next).toHaveLength(1)
  expect(next).not.toContain(hung)
  expect((await health()).status).toBe(200)
})
