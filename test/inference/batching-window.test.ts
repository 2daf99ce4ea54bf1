import { describe, expect, it } from 'vitest'
import { Session } from '../../src/session/session.ts'
import { AITask } from '../../src/tasks/ai-task.ts'
import { ManualClock } from '../../src/testing/manual-clock.ts'
import { configWith, openBackend } from './open-backend.ts'

describe('the batching window', () => {
  const batchesOf = async (sections: string, options: object): Promise<number[]> => {
    const clock = new ManualClock()
    const backend = await openBackend({ clock, configFile: configWith(sections), ...options })
    await using session = new Session([backend])
    const telemetry = await session.startTelemetry()
    const sizes: number[] = []
    telemetry.subscribe((event) => {
      if (event.event_type === 'tutti.Batch') sizes.push(Number(Object(event)['size']))
    })
    const tasks = ['first', 'second'].map((prompt) => new AITask({ prompt, backend: 'llm' }))
    await session.submitTasks(tasks.slice(0, 1))
    await clock.advance(100)
    await session.submitTasks(tasks.slice(1))
    await clock.advance(200)
    await session.waitTasks(tasks)
    await telemetry.flush()
    return sizes
  }
  const window = 'input_batching:\n  max_batch_wait_ms: 300\n'

  it.each([
    ['in the file', window, {}, [2]],
    ['as an option', '', { maxBatchWaitMs: 300 }, [2]],
    ['by nobody', '', {}, [1, 1]],
    ['beside `type: adaptive`', `${window}  type: adaptive\n`, {}, [1, 1]],
  ])(
    'a batching window of 300 ms, asked for %s: 2 requests 100 ms apart',
    async (_, sections, options, sizes) => {
      expect(await batchesOf(sections, options)).toEqual(sizes)
    },
  )

  it.each([
    [{}, { type: 'adaptive', max_batch_wait_ms: 500 }],
    [{ maxBatchWaitMs: 300 }, { type: 'fixed', max_batch_wait_ms: 300 }],
  ])('the batching window with the options %j is reported by /health', async (options, told) => {
    const { endpoint } = await openBackend({ port: 0, ...options })
    const health = await (await fetch(`${endpoint}/health`)).json()
    expect(health).toMatchObject({ batch_config: told })
  })
})
