import { execFileSync } from 'node:child_process'
import { readdirSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { describe, expect, onTestFinished } from 'vitest'
import { ConcurrentBackend } from '../../src/backends/local/concurrent-backend.ts'
import { Session } from '../../src/session/session.ts'
import { ComputeTask } from '../../src/tasks/compute-task.ts'
import { startProgram } from '../cli/run-command.ts'
import { eventually } from '../eventually.ts'
import { needs, requireCommand } from '../require.ts'
import { where } from './fixtures/node-tasks.ts'
import { launchedOnSlurm } from './launched.ts'
import { slurmNeeds } from './slurm.ts'

const here = import.meta.url
const names = ['n1', 'n2', 'n3', 'n4']

const shell = (script: string, gpus = 0): ComputeTask =>
  new ComputeTask({ executable: 'sh', arguments: ['-c', script], resources: { gpus } })

/** A program that prints its rank. */
function compileMpi(program: string): string {
  onTestFinished(() => rmSync(program))
  execFileSync('mpicc', ['-o', program, fileURLToPath(new URL('fixtures/rank.c', here))])
  return program
}

describe('an HPC backend on Slurm', () => {
  const { slurm, folder, enter, create } = launchedOnSlurm()
  /** The steps of all agents; the job itself is a step of another form. */
  const steps = async (): Promise<string[]> => {
    const { run } = await slurm()
    const all = await run('squeue', '--steps', '-h', '-o', '%i')
    return all.split('\n').filter((id) => /^\d+\.\d+$/.test(id))
  }

  needs(...slurmNeeds)('tasks run on the nodes, with their cores and GPUs', async () => {
    const backend = await create()
    const capacities = backend.nodes.map(({ nodeId, capacity }) => [nodeId, capacity])
    expect(Object.fromEntries(capacities)).toEqual(
      Object.fromEntries(
        names.map((name) => [name, expect.objectContaining({ cores: 4, gpus: 2 }) as unknown]),
      ),
    )
    // Slurm gives the job less than the machine has.
    for (const { capacity } of backend.nodes) expect(capacity?.memoryMb).toBeLessThanOrEqual(4000)
    const session = new Session([backend])
    const large = new ComputeTask({ executable: 'true', resources: { memoryMb: 4001 } })
    await expect(session.submitTasks([large])).rejects.toThrow(/^(?!.*largestNode).*no agent has/)
    const nodes = new Map<string, string | null>()
    const telemetry = await session.startTelemetry({ resourcePollSeconds: 3600 })
    telemetry.subscribe((event) => {
      if (event.event_type === 'TaskStarted') nodes.set(event.task_id ?? '', event.node_id)
    })
    const options = { function: where, resources: { gpus: 2 } }
    const functions = names.map(() => new ComputeTask(options))
    await session.submitTasks(functions)
    const found = await Promise.all(functions)
    await telemetry.flush()
    for (const [at, task] of functions.entries()) {
      expect(found[at]).toEqual({ host: nodes.get(task.uid), gpus: '0,1' })
    }
    await session.close()
    // Everything of the run has ended with the backend.
    expect(readdirSync(folder)).toEqual(['launch.json'])
    await expect.poll(steps).toEqual([])
  })

  needs(...slurmNeeds, requireCommand('mpicc'))(
    'a task sees the job and nothing of the step that its agent runs in',
    async () => {
      await using session = new Session([await create()])
      const variables = shell(
        'env | grep -E "^(SLURM|PMI|TUTTI_(LAUNCH|RUN)=|ROCR|GPU_)" | cut -d= -f1 | sort',
      )
      const gpus = [0, 1, 2].map((count) => shell('echo "${CUDA_VISIBLE_DEVICES-all}"', count))
      const none = new ComputeTask({ function: where })
      const step = shell(
        'srun --overlap -N2 -n2 --ntasks-per-node=1 hostname | sort | uniq | wc -l',
      )
      const program = new ComputeTask({ executable: compileMpi(join(folder, 'rank')) })
      const tasks = [variables, step, program, ...gpus, none]
      await session.submitTasks(tasks)
      await session.waitTasks(tasks)
      expect(variables.stdout).toBe('SLURMD_NODENAME\nSLURM_CONF\nSLURM_JOB_ID\n')
      // Tasks that request none see none: -1 for CUDA and for HIP.
      expect(gpus.map(({ stdout }) => stdout?.trim())).toEqual([
        '-1',
        expect.stringMatching(/^[01]$/),
        '0,1',
      ])
      expect(await none).toMatchObject({ gpus: '-1' })
      expect([step.stdout?.trim(), step.stderr]).toEqual(['2', ''])
      expect([program.stdout, program.stderr]).toEqual(['rank 0 of 1\n', ''])
    },
  )

  needs(...slurmNeeds)('a node that a local backend has, too, is sampled as its own', async () => {
    const hpc = await create()
    const local = await ConcurrentBackend.create({ name: 'local', nodeId: 'n1', workers: 1 })
    const session = new Session([local, hpc])
    onTestFinished(() => session.close())
    const telemetry = await session.startTelemetry({ resourcePollSeconds: 0.1 })
    const owners = new Map<string | null, Set<string>>()
    telemetry.subscribe(({ event_type: type, node_id: node, backend }) => {
      if (type === 'ResourceUpdate') owners.set(node, (owners.get(node) ?? new Set()).add(backend))
    })
    await eventually(() => expect(owners.size).toBe(names.length))
    const expected = names.map((name) => [name, new Set(['hpc'])] as const)
    expect(owners).toEqual(new Map(expected))
  })

  needs(...slurmNeeds)('agents end when the script is killed', async () => {
    await enter()
    const script = startProgram(fileURLToPath(new URL('fixtures/idle-driver.ts', here)), [])
    onTestFinished(() => void script.child.kill('SIGKILL'))
    await script.seen('4 nodes')
    expect(await steps()).toHaveLength(1)
    script.child.kill('SIGKILL')
    await expect.poll(steps).toEqual([])
  })
})
