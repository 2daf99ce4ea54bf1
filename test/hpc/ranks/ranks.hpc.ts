import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect } from 'vitest'
import { Session } from '../../../src/session/session.ts'
import { ComputeTask } from '../../../src/tasks/compute-task.ts'
import { needs } from '../../require.ts'
import { where } from '../fixtures/node-tasks.ts'
import { launchedOnSlurm } from '../launched.ts'
import { compileRanks, mpiNeeds, ranksTask, ranksWait, transports } from './mpi.ts'

describe('MPI programs on Slurm', () => {
  const { slurm, jobId, folder, create } = launchedOnSlurm()

  /** Steps besides the agents' one, and processes of the program. */
  const left = async (): Promise<string> => {
    const { run } = await slurm()
    const steps = await run('squeue', '--steps', '-h', '-o', '%i %j')
    const own = steps.split('\n').filter((line) => /^\d+\.\d+ /.test(line))
    const processes = readdirSync('/proc').filter((pid) => {
      if (!/^\d+$/.test(pid)) return false
      try {
        return readFileSync(`/proc/${pid}/cmdline`, 'utf8').startsWith(join(folder, 'ranks'))
      } catch {
        return false
      }
    })
    return `${own.length} steps, ${processes.length} processes`
  }
  const nothing = '1 steps, 0 processes'

  needs(...mpiNeeds)('two at once have GPUs of their own, beside other tasks', async () => {
    await using session = new Session([await create()])
    const resources = { ranks: 4, ranksPerNode: 1, gpus: 1 }
    const files = ['first', 'second'].map((name) => join(folder, name))
    const tasks = files.map((file) => ranksTask(folder, `wait ${file}`, { resources }))
    await session.submitTasks(tasks)
    for (const [at, task] of tasks.entries()) await ranksWait(task, files[at] ?? '', 4)
    // All GPUs are taken, cores are not.
    const gpu = new ComputeTask({ function: where, resources: { gpus: 1 } })
    const core = new ComputeTask({ function: where })
    await session.submitTasks([gpu, core])
    await core
    expect(gpu.state).toBe('QUEUED')
    for (const task of tasks) session.cancel(task)
    await session.waitTasks(tasks)
    await gpu
    const seen = tasks.flatMap(({ stdout }) => stdout?.match(/on n\d, sum 0, gpus \d$/gm) ?? [])
    expect(new Set(seen).size).toBe(8)
  })

  needs(...mpiNeeds)('tasks after it in the same list do not pass it', async () => {
    await using session = new Session([await create()])
    const [go, file] = [join(folder, 'go'), join(folder, 'first-of-list')]
    const busy = new ComputeTask({
      executable: 'sh',
      arguments: ['-c', `until [ -e ${go} ]; do sleep 0.1; done`],
    })
    await session.submitTasks([busy])
    await expect.poll(() => busy.state).toBe('RUNNING')
    const all = ranksTask(folder, `wait ${file}`, { resources: { ranks: 4, cores: 4 } })
    const behind = new ComputeTask({ executable: 'hostname' })
    const long = new ComputeTask({ executable: 'hostname', resources: { seconds: 600 } })
    await session.submitTasks([all, behind, long])
    writeFileSync(go, '')
    await ranksWait(all, file, 4)
    expect([behind.state, long.state]).toEqual(['QUEUED', 'QUEUED'])
    session.cancel(all)
    await Promise.all([behind, long])
  })

  needs(...mpiNeeds)('a canceled one leaves nothing on its nodes', async () => {
    await using session = new Session([await create()])
    const file = join(folder, 'canceled')
    const task = ranksTask(folder, `wait ${file}`, { resources: { ranks: 6, cores: 2 } })
    await session.submitTasks([task])
    await ranksWait(task, file, 6)
    session.cancel(task, 'not needed')
    await session.waitTasks([task])
    expect([task.state, String(task.error)]).toEqual([
      'CANCELED',
      expect.stringContaining('not needed'),
    ])
    // The output of the ranks is kept, rank by rank.
    expect(task.stdout?.match(/rank \d/g)).toEqual([0, 1, 2, 3, 4, 5].map((at) => `rank ${at}`))
    await expect.poll(left).toBe(nothing)
  })

  needs(...mpiNeeds)('a rank that aborts or exits ends all, and is named', async () => {
    await using session = new Session([await create()])
    const resources = { ranks: 4, ranksPerNode: 1 }
    const modes = [`abort ${join(folder, 'abort')} 2 5`, `exit ${join(folder, 'exit')} 1 9`]
    const tasks = modes.map((mode) => ranksTask(folder, mode, { resources }))
    await session.submitTasks(tasks)
    await session.waitTasks(tasks)
    const found = tasks.map(({ error }) => error)
    expect(found).toMatchObject([
      { name: 'ExecutableFailedError', exitCode: 5, rank: 2 },
      { name: 'ExecutableFailedError', exitCode: 9, rank: 1 },
    ])
    expect(found.map(String)).toEqual([
      expect.stringMatching(/rank 2 of .*ranks on node n\d exited with code 5$/),
      expect.stringMatching(/rank 1 of .*ranks on node n\d exited with code 9$/),
    ])
    await expect.poll(left).toBe(nothing)
  })

  needs(...mpiNeeds)(
    'an MPI program has a time limit, files for its ranks, and an error if it is missing',
    async () => {
      const cwd = folder
      await using session = new Session([await create()], { workDir: cwd })
      const telemetry = await session.startTelemetry({ resourcePollSeconds: 3600 })
      const ends = new Map<string, Record<string, unknown>>()
      telemetry.subscribe((event) => {
        if (/Task(?:Completed|Failed)$/.test(event.event_type)) {
          ends.set(event.task_id ?? '', event.attributes)
        }
      })
      const resources = { ranks: 2, ranksPerNode: 1 }
      const slow = ranksTask(folder, 'wait slow', { resources, timeoutSeconds: 0.2 })
      const files = ranksTask(folder, 'end', { resources, captureStdio: { stdout: 'out.%r.txt' } })
      const missing = new ComputeTask({ executable: './no-such-program', resources, retries: 0 })
      writeFileSync(join(folder, 'text'), 'no program', { mode: 0o644 })
      const text = new ComputeTask({ executable: './text', resources, retries: 0 })
      const tasks = [slow, files, missing, text]
      await session.submitTasks(tasks)
      await session.waitTasks(tasks)
      await telemetry.flush()
      expect(slow.error).toMatchObject({ cause: { name: 'TimeoutError' } })
      expect(files.error).toBe(null)
      const lines = [0, 1].map((rank) => readFileSync(join(folder, `out.${rank}.txt`), 'utf8'))
      expect(lines).toEqual([
        expect.stringMatching(/^rank 0 of 2 on n\d, sum 1/),
        expect.stringMatching(/^rank 1 of 2 on n\d, sum 1/),
      ])
      expect(ends.get(files.uid)).toMatchObject({
        stdout_path: join(folder, 'out.%r.txt'),
        cpu_seconds: expect.any(Number) as unknown,
        peak_memory_bytes: expect.any(Number) as unknown,
        exit_code: 0,
      })
      expect(missing.error).toMatchObject({ cause: { name: 'ExecutableNotFoundError' } })
      expect(text.error).toMatchObject({ cause: { name: 'ExecutableNotPermittedError' } })
      await expect.poll(left).toBe(nothing)
    },
  )

  needs(...mpiNeeds)(
    'a request that no set of nodes can hold is refused with the existing nodes',
    async () => {
      await using session = new Session([await create()])
      const labeled = { ranks: 2, labels: { disk: 'fast' } }
      const refused: [string, object, Partial<ConstructorParameters<typeof ComputeTask>[0]>][] = [
        ['room for 16 of 17 ranks of 1 core,', { ranks: 17 }, {}],
        ['there are 4 nodes with 4 cores, 2 GPUs', { ranks: 9, gpus: 1 }, {}],
        ['room for 8 of 12 ranks of 2 cores, 0 GPUs', { ranks: 12, ranksPerNode: 2, cores: 2 }, {}],
        [
          'room for 0 of 2 ranks of 1 core, 0 GPUs, 0 MB of memory and the label disk=fast',
          labeled,
          {},
        ],
        ['4 ranks cannot be divided into 3 per node', { ranks: 4, ranksPerNode: 3 }, {}],
        ['%r stands for the rank', { ranks: 2 }, { captureStdio: { stdout: 'out.txt' } }],
      ]
      for (const [words, resources, more] of refused) {
        const task = new ComputeTask({ executable: 'true', resources, ...more } as never)
        await expect(session.submitTasks([task]), words).rejects.toThrow(words)
      }
      const task = new ComputeTask({ function: where, resources: { ranks: 2 } })
      await expect(session.submitTasks([task])).rejects.toThrow('only a program has ranks')
    },
  )

  needs(...mpiNeeds)('a lost node ends it; another attempt runs on the others', async () => {
    const backend = await create({ log: { warn: () => {} } })
    await using session = new Session([backend], { log: { warn: () => {} } })
    const marker = join(folder, 'again')
    const program = compileRanks(folder)
    const script = `[ -e ${marker}.0 ] && exec ${program} end; exec ${program} wait ${marker}`
    const task = new ComputeTask({
      executable: 'sh',
      arguments: ['-c', script],
      env: transports,
      resources: { ranks: 2, ranksPerNode: 1, cores: 4 },
      retries: 1,
    })
    const telemetry = await session.startTelemetry({ resourcePollSeconds: 3600 })
    const nodes: string[] = []
    telemetry.subscribe((event) => {
      if (/TaskStarted|AttemptStarted/.test(event.event_type)) nodes.push(event.node_id ?? '')
    })
    await session.submitTasks([task])
    await ranksWait(task, marker, 2)
    await expect.poll(() => nodes.length).toBe(1)
    const [node = ''] = nodes
    const { run } = await slurm()
    const step = ['--overlap', `--jobid=${await jobId()}`, '-w', node, '-N1', '-n1', '--mem=0']
    await run('srun', ...step, 'pkill', '-KILL', '-f', `node-agent.ts ${node}`)
    await session.waitTasks([task])
    expect([task.state, nodes.length]).toEqual(['DONE', 2])
    expect(task.stdout).toContain('rank 1 of 2')
    expect(task.stdout).not.toContain(`on ${node},`)
  })
})
