import { describe, expect } from 'vitest'
import { Session } from '../../../src/session/session.ts'
import { needs } from '../../require.ts'
import { launchedOnSlurm } from '../launched.ts'
import { mpiNeeds, ranksTask } from './mpi.ts'

describe('an MPI program on Slurm', () => {
  const { folder, create } = launchedOnSlurm()

  needs(...mpiNeeds)('ranks of a program run on several nodes and reach each other', async () => {
    await using session = new Session([await create()])
    const telemetry = await session.startTelemetry({ resourcePollSeconds: 3600 })
    const started: unknown[] = []
    const workers: unknown[] = []
    telemetry.subscribe((event) => {
      if (/^Task(?:Started|Completed)$/.test(event.event_type)) {
        workers.push((event.attributes as Record<string, unknown>)['worker_id'])
      }
      if (event.event_type !== 'TaskStarted') return
      const { nodes, ranks } = event.attributes
      started.push([event.node_id, nodes, ranks])
    })
    const task = ranksTask(folder, 'end', {
      resources: { ranks: 4, ranksPerNode: 2, cores: 2, gpus: 1 },
      stdin: 'words for rank 0\n',
    })
    await session.submitTasks([task])
    await session.waitTasks([task])
    const [node = ''] = /n\d/.exec(task.stdout ?? '') ?? []
    const lines = (task.stdout ?? '').trim().split('\n')
    expect([task.stderr, lines.map((line) => line.replace(/n\d/, 'N'))]).toEqual([
      '',
      [
        'rank 0 of 4 on N, sum 6, gpus 0',
        'read words for rank 0',
        'rank 1 of 4 on N, sum 6, gpus 1',
        'rank 2 of 4 on N, sum 6, gpus 0',
        'rank 3 of 4 on N, sum 6, gpus 1',
      ],
    ])
    await telemetry.flush()
    const nodes = [...new Set((task.stdout ?? '').match(/n\d/g))]
    expect(nodes).toHaveLength(2)
    expect(started).toEqual([[node, nodes, 4]])
    expect(workers).toEqual([`${node}/ranks/1`, `${node}/ranks/1`])
    expect(task.exitCode).toBe(0)
  })
})
