import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { describe, expect, it } from 'vitest'
import { Session } from '../../../../src/session/session.ts'
import { AITask } from '../../../../src/tasks/ai-task.ts'
import { eventually } from '../../../eventually.ts'
import { post, type Reply } from '../../server/served.ts'
import { configWith, openBackend, tempFolder } from '../../open-backend.ts'

const command = fileURLToPath(new URL('../../../../src/cli/main.ts', import.meta.url))

/** The processes that were started with this file as an argument, with their environments. */
function serversOf(configFile: string): { pid: number; env: Map<string, string> }[] {
  return readdirSync('/proc').flatMap((name) => {
    if (!/^\d+$/.test(name)) return []
    try {
      const args = readFileSync(`/proc/${name}/cmdline`, 'utf8').split('\0')
      if (!args.includes('serve') || !args.includes(configFile)) return []
      const environ = readFileSync(`/proc/${name}/environ`, 'utf8').split('\0')
      const env = new Map(environ.map((line) => line.split(/=(.*)/s) as [string, string]))
      return [{ pid: Number(name), env }]
    } catch {
      return []
    }
  })
}

describe('workers of the process engine that run tutti serve', () => {
  it('workers that run tutti serve get GPU slices, answer, and restart when killed', async () => {
    const served = join(tempFolder(), 'served.yaml')
    writeFileSync(served, 'required:\n  model_name: tiny\nengine:\n  kind: echo\n')
    const argv = [process.execPath, command, 'serve', '--config', served, '--port', '{port}']
    const backend = await openBackend({
      configFile: configWith('hardware:\n  node_offset: 3\n'),
      numGpus: 4,
      tpSize: 2,
      offset: 3,
      engine: { kind: 'process', command: argv },
    })
    await expect.poll(() => backend.workers).toBe(2)
    const servers = serversOf(served)
    const slices = new Set(servers.map(({ env }) => env.get('CUDA_VISIBLE_DEVICES')))
    expect(slices).toEqual(new Set(['0,1', '2,3']))
    expect(servers).toHaveLength(2)
    for (const { env } of servers) expect(env.get('TUTTI_NODE')).toBe('3')
    const session = new Session([backend])
    const telemetry = await session.startTelemetry()
    const lost: string[] = []
    telemetry.subscribe((event) => {
      if (event.event_type === 'tutti.EngineLost') lost.push(event.worker_id)
    })
    const ask = async (): Promise<unknown[]> => {
      const tasks = Array.from(
        { length: 10 },
        (_, at) => new AITask({ prompt: `question ${at}`, backend: 'llm' }),
      )
      await session.submitTasks(tasks)
      return Promise.all(tasks)
    }
    const answers = await ask()
    answers.forEach((answer, at) => expect(answer).toContain(`question ${at}`))
    process.kill(servers[0]?.pid ?? 0, 'SIGKILL')
    await expect.poll(() => lost.length).toBe(1)
    expect(await ask()).toHaveLength(10)
    await expect.poll(() => backend.workers).toBe(2)
    await session.close()
    expect(serversOf(served)).toEqual([])
  })

  it('row 79: HTTP requests wait for a server that was killed, and are answered', async () => {
    const served = join(tempFolder(), 'served.yaml')
    const engine = 'engine:\n  kind: echo\n  latency_ms: 1000\n'
    writeFileSync(served, `required:\n  model_name: tiny\n${engine}`)
    const argv = [process.execPath, command, 'serve', '--config', served, '--port', '{port}']
    const backend = await openBackend({ port: 0, engine: { kind: 'process', command: argv } })
    const url = `${backend.endpoint}/v1/chat/completions`
    const ask = (content: string): Promise<Reply> =>
      post(url, { messages: [{ role: 'user', content }] })
    const running = ask('running')
    await eventually(async () => {
      const metrics = await (await fetch(`${backend.endpoint}/metrics`)).text()
      expect(metrics).toMatch(/^tutti_requests_running\S* 1$/m)
    })
    process.kill(serversOf(served)[0]?.pid ?? 0, 'SIGKILL')
    await eventually(() => expect(backend.workers).toBe(0))
    const waiting = ask('waiting')
    for (const { status } of await Promise.all([running, waiting])) expect(status).toBe(200)
  })
})
