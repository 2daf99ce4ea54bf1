import { spawn } from 'node:child_process'
import { readdirSync, readFileSync, readlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { describe, expect, onTestFinished } from 'vitest'
import type { HpcBackend } from '../../../src/hpc/hpc-backend.ts'
import {
  InferenceBackend,
  type InferenceBackendOptions,
} from '../../../src/inference/inference-backend.ts'
import { Session } from '../../../src/session/session.ts'
import { AITask } from '../../../src/tasks/ai-task.ts'
import { ComputeTask } from '../../../src/tasks/compute-task.ts'
import { watch } from '../../cli/run-command.ts'
import { eventually } from '../../eventually.ts'
import { needs } from '../../require.ts'
import { where } from '../fixtures/node-tasks.ts'
import { launchedOnSlurm } from '../launched.ts'
import { scriptFile } from '../launcher.ts'
import { slurmNeeds } from '../slurm.ts'

const tutti = fileURLToPath(new URL('../../../src/cli/main.ts', import.meta.url))

/** The programs that have this argument. */
const commandsWith = (argument: string): string[] =>
  readdirSync('/proc').flatMap((pid) => {
    try {
      const [program = '', ...words] = readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0')
      return words.includes(argument) ? [program] : []
    } catch {
      return []
    }
  })

interface RunningServer {
  readonly pid: number
  readonly words: readonly string[]
  readonly env: ReadonlyMap<string, string>
  /** Its network: that of its node. */
  readonly network: string
}

describe('model servers on the nodes of an allocation', () => {
  const { slurm, folder, create, enter } = launchedOnSlurm()

  /** A model that is served by `tutti serve`, as one on a supercomputer would be by vLLM. */
  const served = (name: string): string => {
    const file = join(folder, `${name}.yaml`)
    writeFileSync(file, `required:\n  model_name: ${name}\nengine:\n  kind: echo\n`)
    return file
  }

  const serversOf = (name: string): RunningServer[] =>
    readdirSync('/proc').flatMap((pid) => {
      try {
        if (!/^\d+$/.test(pid)) return []
        const words = readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0')
        if (!words.includes('serve') || !words.includes(join(folder, `${name}.yaml`))) return []
        const lines = readFileSync(`/proc/${pid}/environ`, 'utf8').split('\0')
        const env = new Map(lines.map((line) => line.split(/=(.*)/s) as [string, string]))
        return [{ pid: Number(pid), words, env, network: readlinkSync(`/proc/${pid}/ns/net`) }]
      } catch {
        return []
      }
    })

  const networkOf = async (node: string): Promise<string> =>
    readlinkSync(`/proc/${(await slurm()).pidOf(node)}/ns/net`)

  const open = async (
    nodes: HpcBackend,
    name: string,
    options: Partial<InferenceBackendOptions>,
  ): Promise<InferenceBackend> => {
    const config = served(name)
    const words = ['serve', '--config', config, '--host', '{host}', '--port', '{port}']
    const backend = await InferenceBackend.create({
      name,
      configFile: config,
      modelName: name,
      useService: false,
      log: { warn: () => {} },
      nodes,
      engine: { kind: 'process', command: [process.execPath, tutti, ...words] },
      ...options,
    })
    onTestFinished(() => backend.close())
    return backend
  }

  const ask = async (session: Session, backend: string, count: number): Promise<unknown[]> => {
    const prompts = Array.from({ length: count }, (_, at) => `question ${at} for ${backend}`)
    const tasks = prompts.map((prompt) => new AITask({ prompt, backend }))
    await session.submitTasks(tasks)
    return Promise.all(tasks)
  }

  needs(...slurmNeeds)(
    'two services answer from their own nodes and GPUs, while tasks have the rest',
    async () => {
      const hpc = await create({ log: { warn: () => {} } })
      const wide = await open(hpc, 'wide', { offset: 1, numGpus: 2, tpSize: 2 })
      const narrow = await open(hpc, 'narrow', { offset: 2, numNodes: 2, numGpus: 1 })
      await expect.poll(() => narrow.workers).toBe(2)
      const [[first], others] = [serversOf('wide'), serversOf('narrow')]
      expect(first?.env.get('CUDA_VISIBLE_DEVICES')).toBe('0,1')
      expect(first?.network).toBe(await networkOf('n2'))
      expect(others.map(({ env }) => env.get('CUDA_VISIBLE_DEVICES'))).toEqual(['0', '0'])
      expect(new Set(others.map(({ env }) => env.get('TUTTI_NODE')))).toEqual(new Set(['2', '3']))
      expect(new Set(others.map(({ network }) => network))).toEqual(
        new Set([await networkOf('n3'), await networkOf('n4')]),
      )
      // The script's variables are not for them.
      expect(first?.env.has('TUTTI_LAUNCH')).toBe(false)
      // A client without the key gets nothing, although it can reach the node's address.
      const address = first?.words[first.words.indexOf('--host') + 1] ?? ''
      const port = first?.words[first.words.indexOf('--port') + 1] ?? ''
      const answer = await fetch(`http://${address}:${port}/v1/models`)
      expect([address, answer.status]).toEqual([expect.stringMatching(/^10\./), 401])

      const session = new Session([hpc, wide, narrow])
      const lost: string[] = []
      const nodes = new Map<string, Set<string | null>>()
      const telemetry = await session.startTelemetry({ resourcePollSeconds: 3600 })
      telemetry.subscribe((event) => {
        if (event.event_type === 'tutti.EngineLost') lost.push(event.backend)
        if (event.event_type !== 'TaskStarted') return
        const { backend, node_id: node } = event
        nodes.set(backend, (nodes.get(backend) ?? new Set()).add(node))
      })
      const resources = { gpus: 1 }
      const tasks = Array.from({ length: 8 }, () => new ComputeTask({ function: where, resources }))
      await session.submitTasks(tasks)
      const [answers, more] = await Promise.all([
        ask(session, 'wide', 5),
        ask(session, 'narrow', 5),
      ])
      answers.forEach((text, at) => expect(text).toContain(`question ${at} for wide`))
      more.forEach((text, at) => expect(text).toContain(`question ${at} for narrow`))
      const places = await Promise.all(tasks)
      expect(new Set(places.map(({ host, gpus }) => `${host} ${gpus}`))).toEqual(
        new Set(['n1 0', 'n1 1', 'n3 1', 'n4 1']),
      )
      await telemetry.flush()
      expect(nodes.get('wide')).toEqual(new Set(['n2']))
      expect(['n3', 'n4']).toEqual(expect.arrayContaining([...(nodes.get('narrow') ?? [])]))
      const large = new ComputeTask({ executable: 'true', resources: { ranks: 4, gpus: 2 } })
      await expect(session.submitTasks([large])).rejects.toThrow(
        '; service "wide" holds 2 GPUs and 1 core of n2; service "narrow" holds 1 GPU and 1 core',
      )

      // One that is killed comes back on its node, with its GPUs.
      process.kill(first?.pid ?? 0, 'SIGKILL')
      await expect.poll(() => lost).toEqual(['wide'])
      expect(await ask(session, 'wide', 2)).toHaveLength(2)
      const [again] = serversOf('wide')
      expect(again?.network).toBe(first?.network)
      expect(again?.env.get('CUDA_VISIBLE_DEVICES')).toBe('0,1')

      // So does one whose agent died.
      const { runAt } = await slurm()
      await runAt('n2', 'pkill', '-KILL', '-f', 'node-agent.ts n2')
      await expect.poll(() => lost).toEqual(['wide', 'wide'])
      expect(await ask(session, 'wide', 2)).toHaveLength(2)

      await session.close()
      // A session does not wait forever for its backends.
      await Promise.all([wide, narrow, hpc].map((one) => one.close()))
      expect([...serversOf('wide'), ...serversOf('narrow')]).toEqual([])
    },
  )

  needs(...slurmNeeds)('a script that is killed leaves no server behind', async () => {
    await enter()
    const words = [scriptFile('serving-script'), served('left')]
    const script = watch(spawn(process.execPath, words, { env: process.env }))
    onTestFinished(() => void script.child.kill('SIGKILL'))
    await script.seen('serves')
    expect(serversOf('left')).toHaveLength(1)
    script.child.kill('SIGKILL')
    await eventually(() => expect(serversOf('left')).toEqual([]))
  })

  needs(...slurmNeeds)(
    'a service that fits no node is refused by name; a closed one frees its room',
    async () => {
      const hpc = await create({ log: { warn: () => {} } })
      onTestFinished(() => hpc.close())
      const words = ['serve', '--config', served('chat'), '--host', '{host}', '--port', '{port}']
      // As a server does that starts workers of its own, outside of its process group.
      const script = 'setsid sleep 100013 & exec "$0" "$@"'
      const command = ['sh', '-c', script, process.execPath, tutti, ...words]
      const engine = { kind: 'process', command } as const
      const chat = await open(hpc, 'chat', { offset: 3, numGpus: 1, engine })
      const workers = (): string[] => commandsWith('100013').filter((one) => one === 'sleep')
      await eventually(() => expect(workers()).toHaveLength(1))
      await expect(open(hpc, 'code', { offset: 3, numGpus: 2 })).rejects.toMatchObject({
        name: 'ValueError',
        field: 'hardware.num_gpus',
        message:
          'hardware.num_gpus: node 3 (n4) has 2 GPUs, of which service "chat" holds 1; ' +
          'service "code" needs 2 there',
      })
      await expect(open(hpc, 'code', { offset: 4 })).rejects.toMatchObject({
        field: 'hardware.node_offset',
        message:
          'hardware.node_offset: service "code" needs node 4; ' +
          'there are the nodes 0 to 3 (n1 to n4)',
      })
      await expect(open(hpc, 'code', { offset: 2, numNodes: 3 })).rejects.toMatchObject({
        field: 'hardware.num_nodes',
      })
      await chat.close()
      expect([...serversOf('chat'), ...workers()]).toEqual([])
      const broken = {
        kind: 'process',
        command: ['sh', '-c', 'echo no model; exit 3', '{port}'],
      } as const
      const other = { offset: 3, numGpus: 2, engine: broken }
      await expect(open(hpc, 'code', other)).rejects.toMatchObject({
        message: 'the server of worker 0 ended with exit code 3',
        cause: { message: 'no model' },
      })
    },
  )

  needs(...slurmNeeds)('prompts end when the only node of their service is given up', async () => {
    const warnings: string[] = []
    const hpc = await create({ log: { warn: (code) => void warnings.push(code) } })
    onTestFinished(() => hpc.close())
    const alone = await open(hpc, 'alone', { offset: 1 })
    const { runAt } = await slurm()
    await eventually(async () => {
      await runAt('n2', 'pkill', '-KILL', '-f', 'node-agent.ts n2').catch(() => {})
      expect(warnings).toContain('AgentGivenUp')
    })
    const message = expect.stringContaining('node n2 is not used any more') as unknown
    expect(await alone.generate(['question'], 86_400)).toEqual([
      { error: { code: 'engine_lost', message } },
    ])
    await expect(open(hpc, 'next', { offset: 1 })).rejects.toThrow('node n2 is not used any more')
  })

  needs(...slurmNeeds)('a service waits for tasks that have its GPUs', async () => {
    const hpc = await create({ log: { warn: () => {} } })
    await using session = new Session([hpc])
    const task = (): ComputeTask<unknown> =>
      new ComputeTask({ executable: 'sleep', arguments: ['100000'], resources: { gpus: 2 } })
    const tasks = Array.from({ length: 4 }, task)
    await session.submitTasks(tasks)
    await eventually(() =>
      expect(tasks.map(({ state }) => state)).toEqual(Array(4).fill('RUNNING')),
    )
    const waits = Promise.withResolvers<string>()
    const hardware = { offset: 1, numGpus: 2, tpSize: 2 }
    const opening = open(hpc, 'late', { ...hardware, onProgress: waits.resolve })
    expect(await waits.promise).toBe(
      'the server of worker 0 waits until tasks on node n2 have ended',
    )
    expect(serversOf('late')).toEqual([])
    for (const one of tasks) session.cancel(one)
    await session.waitTasks(tasks)
    const late = await opening
    expect(serversOf('late')).toHaveLength(1)
    // The script closes its session; the service that is left ends with the nodes.
    await session.close()
    await hpc.close()
    expect(serversOf('late')).toEqual([])
    // Later requests fail instead of waiting.
    const message = expect.stringContaining('is closed') as unknown
    expect(await late.generate(['question'], 60)).toEqual([
      { error: { code: 'engine_lost', message } },
    ])
    await late.close()
    const { run } = await slurm()
    await eventually(async () => {
      const steps = await run('squeue', '--steps', '-h', '-o', '%i')
      expect(steps.split('\n').filter((line) => /^\d+\.\d+/.test(line))).toEqual([])
    })
  })
})
