import { describe, expect, it } from 'vitest'
import { unknownReadings } from '../../../src/backends/sampling/sampler.ts'
import { idle, setUp } from './poller-setup.ts'

describe('the events of a poll', () => {
  it('a poll gives one event for the node and one for each GPU, with all fields', async () => {
    const { clock, sink, poller, add } = setUp()
    const node = {
      cpu_percent: 12,
      memory_percent: 34,
      disk_read_bytes: 1,
      disk_write_bytes: 2,
      net_sent_bytes: 3,
      net_recv_bytes: 4,
    }
    const gpus = [30, 90, null].map((gpu_percent, gpu_id) => ({ gpu_id, gpu_percent }))
    add('host').answer = async () => ({ node, gpus })
    await poller.start()
    await clock.advance(5000)
    const common = {
      event_type: 'ResourceUpdate',
      event_time: 1_700_000_005,
      session_id: 's1',
      backend: 'local',
      task_id: null,
      node_id: 'host',
      attributes: {},
    }
    const perNode = { ...common, ...node, resource_scope: 'per_node', gpu_id: null }
    const perGpu = { ...common, ...unknownReadings, resource_scope: 'per_gpu' }
    expect(sink.events).toHaveLength(4)
    expect(sink.take('ResourceUpdate')).toMatchObject({ ...perNode, gpu_percent: 90 })
    for (const gpu of gpus) expect(sink.take('ResourceUpdate')).toMatchObject({ ...perGpu, ...gpu })
    sink.expectNothingMore()
    await poller.stop()
  })

  it.each([
    ['there is no GPU', []],
    ['no GPU tells', [{ gpu_id: 0, gpu_percent: null }]],
  ])('a poll has no aggregate when %s', async (_, gpus) => {
    const { clock, sink, poller, add } = setUp()
    add('host').answer = async () => ({ node: unknownReadings, gpus })
    await poller.start()
    await clock.advance(5000)
    expect(sink.events).toHaveLength(1 + gpus.length)
    expect(sink.events[0]).toMatchObject({ resource_scope: 'per_node', gpu_percent: null })
    await poller.stop()
  })

  it('events of a poll share one time, even with a running clock', async () => {
    const { clock, sink, poller, add } = setUp()
    clock.now = () => performance.now()
    const gpus = [0, 1, 2].map((gpu_id) => ({ gpu_id, gpu_percent: 1 }))
    add('host').answer = async () => ({ ...idle, gpus })
    await poller.start()
    await clock.advance(5000)
    expect(sink.events).toHaveLength(4)
    expect(new Set(sink.events.map((event) => event.event_time)).size).toBe(1)
    await poller.stop()
  })
})
