import { describe, expect, it, onTestFinished } from 'vitest'
import { systemClock } from '../../../../src/foundation/clock.ts'
import { ValueError } from '../../../../src/foundation/errors.ts'
import { startLocalServer } from '../../../../src/runtime/server/guarded-server.ts'
import { InferenceBackend } from '../../../../src/inference/inference-backend.ts'
import { inheritedEnvironment } from '../../../../src/runtime/server/guarded-server.ts'
import type {
  NodeServers,
  ServerOrder,
  ServerRequest,
} from '../../../../src/runtime/server/node-servers.ts'
import { Session } from '../../../../src/session/session.ts'
import { AITask } from '../../../../src/tasks/ai-task.ts'
import { createObedientEngine } from '../../open-backend.ts'
import { serverCommand } from './engine-options.ts'

/** Nodes that are all this machine. */
class LocalNodes implements NodeServers {
  readonly requests: ServerRequest[] = []
  readonly orders: ServerOrder[] = []
  readonly ports: number[] = []
  readonly over = Promise.withResolvers<string>()
  /** Whether the nodes are there; servers on others do not start. */
  isThere = true
  closed = 0

  reserveServers(request: ServerRequest) {
    this.requests.push(request)
    return {
      start: (order: ServerOrder) => {
        this.orders.push(order)
        const toCommand = this.isThere ? order.toCommand : () => ['false']
        const guardEnv = inheritedEnvironment(process.env)
        const server = startLocalServer({
          host: '127.0.0.1',
          toCommand,
          env: { ...guardEnv, ...order.env },
          guardEnv,
          clock: systemClock,
          onLine: () => {},
        })
        void server.launched.then(({ port }) => this.ports.push(port)).catch(() => {})
        return server
      },
      over: this.over.promise,
      close: async () => void this.closed++,
    }
  }
}

type Section = Readonly<Record<string, unknown>>

const open = async (
  nodes: NodeServers,
  hardware: Section,
  { engine = {}, sections = {} }: { readonly engine?: Section; readonly sections?: object } = {},
): Promise<InferenceBackend> => {
  const command = serverCommand('ready', '{host}', '{node}')
  const config = {
    required: { model_name: 'tiny', tp_size: 2 },
    hardware,
    engine: { kind: 'process', command, ...engine },
    ...sections,
  }
  const log = { warn: () => {} }
  const backend = await InferenceBackend.fromConfig(config, {
    name: 'llm',
    useService: false,
    log,
    nodes,
  })
  onTestFinished(() => backend.close())
  return backend
}

const page = async (port: number, path: string): Promise<unknown> =>
  (await fetch(`http://127.0.0.1:${port}${path}`)).json()

describe('the process engine with nodes', () => {
  it('the process engine reserves nodes, starts workers there and releases them', async () => {
    const nodes = new LocalNodes()
    const hardware = { num_nodes: 2, num_gpus: 4, node_offset: 3, num_inf_workers: 3 }
    const backend = await open(nodes, hardware, { engine: { cores: 5 } })
    await expect.poll(() => backend.workers).toBe(3)
    expect(nodes.requests).toEqual([
      {
        service: 'llm',
        nodeOffset: 3,
        nodes: [
          { cores: 10, gpus: 4 },
          { cores: 5, gpus: 2 },
        ],
      },
    ])
    expect(nodes.orders.map(({ node, cores, gpus }) => [node, cores, gpus])).toEqual([
      [0, 5, 2],
      [0, 5, 2],
      [1, 5, 2],
    ])
    const seen = await Promise.all(nodes.ports.map((port) => page(port, '/arguments')))
    const places = seen.map((words) => (words as string[]).slice(1).join(' '))
    expect(places.toSorted()).toEqual([
      'ready 127.0.0.1 3',
      'ready 127.0.0.1 3',
      'ready 127.0.0.1 4',
    ])
    const [answer] = await backend.generate(['question'], 60)
    expect(answer).not.toHaveProperty('error')
    expect(nodes.closed).toBe(0)
    await backend.close()
    expect(nodes.closed).toBe(1)
  })

  it('the process engine gives each server a key, and no GPUs of its own choice', async () => {
    const nodes = new LocalNodes()
    const env = { CUDA_VISIBLE_DEVICES: '7', EXTRA: 'yes' }
    await open(nodes, { num_gpus: 2 }, { engine: { env } })
    const own = new LocalNodes()
    await open(own, { num_gpus: 0 }, { engine: { env: { VLLM_API_KEY: 'a-key-of-mine' } } })
    const [first, second] = [nodes.orders[0]?.env ?? {}, own.orders[0]?.env ?? {}]
    expect(Object.keys(first).toSorted()).toEqual([
      'EXTRA',
      'LLAMA_API_KEY',
      'TUTTI_API_KEY',
      'TUTTI_NODE',
      'VLLM_API_KEY',
    ])
    expect(first['VLLM_API_KEY']).toMatch(/^[0-9a-f]{48}$/)
    expect(first['TUTTI_API_KEY']).toBe(first['VLLM_API_KEY'])
    expect(second).toMatchObject({ VLLM_API_KEY: 'a-key-of-mine', TUTTI_API_KEY: 'a-key-of-mine' })
    expect([nodes.orders[0]?.gpus, own.orders[0]?.gpus]).toEqual([2, 0])
  })

  it('the process engine releases the reservation when no server starts', async () => {
    const nodes = new LocalNodes()
    const attempt = open(
      nodes,
      { num_gpus: 2 },
      { engine: { command: ['no-such-program', '{port}'] } },
    )
    await expect(attempt).rejects.toThrow('"no-such-program" cannot be started: ENOENT')
    expect(nodes.closed).toBe(1)
  })

  it('prompts end with the reason when its nodes are gone', async () => {
    const nodes = new LocalNodes()
    const backend = await open(nodes, { num_gpus: 2 })
    await using session = new Session([backend])
    nodes.isThere = false
    const { pid } = (await page(nodes.ports[0] ?? 0, '/process')) as { readonly pid: number }
    process.kill(pid, 'SIGKILL')
    await expect.poll(() => nodes.orders.length).toBeGreaterThan(1)
    const tasks = ['one', 'two'].map((prompt) => new AITask({ prompt }))
    await session.submitTasks(tasks)
    const generating = backend.generate(['three'], 60)
    expect(tasks.map(({ state }) => state)).toEqual(['QUEUED', 'QUEUED'])
    const reason = 'AllocationLostError: CANCELLED'
    nodes.over.resolve(reason)
    await session.waitTasks(tasks)
    for (const { state, error } of tasks) {
      expect([state, error]).toEqual(['CANCELED', expect.objectContaining({ reason })])
    }
    expect(await generating).toEqual([{ error: { code: 'engine_lost', message: reason } }])
    await expect(session.submitTasks([new AITask({ prompt: 'four' })])).rejects.toThrow(reason)
    await backend.close()
    expect(nodes.closed).toBe(1)
  })

  it('the process engine stops a server that is not ready in time, before it says so', async () => {
    const nodes = new LocalNodes()
    const engine = { command: ['sleep', '100000', '{port}'], start_timeout_seconds: 0.1 }
    await expect(open(nodes, { num_gpus: 2 }, { engine })).rejects.toMatchObject({
      code: 'engine_timeout',
      message: expect.stringMatching(
        /^the server of worker 0 was not ready within 0\.1 s: no answer from http:.+:\d+\/health$/,
      ) as string,
    })
    expect(nodes.closed).toBe(1)
  })

  it('the process engine refuses more workers than its nodes hold', async () => {
    const nodes = new LocalNodes()
    const attempt = open(nodes, { num_nodes: 2, num_gpus: 4, num_inf_workers: 5 })
    await expect(attempt).rejects.toThrow(ValueError)
    await expect(attempt).rejects.toMatchObject({ field: 'hardware.num_inf_workers' })
    const sections = { dynamic_workers: { toggle_on: true, max_workers: 2 } }
    await open(nodes, { num_gpus: 4 }, { sections })
    expect(nodes.requests.map((request) => request.nodes)).toEqual([[{ cores: 2, gpus: 4 }]])
    const more = { dynamic_workers: { toggle_on: true, max_workers: 3 } }
    await expect(open(nodes, { num_gpus: 4 }, { sections: more })).rejects.toMatchObject({
      field: 'dynamic_workers.max_workers',
    })
  })

  it('the process engine alone takes nodes, besides echo, and wants real ones', async () => {
    const nodes = new LocalNodes()
    const source = { required: { model_name: 'tiny' }, engine: { kind: 'echo' } }
    const server = { kind: 'openai', base_url: 'http://localhost:1/v1' }
    const other = { ...source, engine: server }
    await expect(InferenceBackend.fromConfig(other, { nodes })).rejects.toMatchObject({
      field: 'nodes',
      message: 'nodes: the openai engine starts no servers on nodes',
    })
    const own = { nodes, useService: false, engine: createObedientEngine }
    await expect(InferenceBackend.fromConfig(source, own)).rejects.toMatchObject({
      field: 'nodes',
      message: 'nodes: an engine of your own starts no servers on nodes',
    })
    const wrong = { nodes: ['n1'] as unknown as NodeServers, useService: false }
    await expect(InferenceBackend.fromConfig(source, wrong)).rejects.toMatchObject({
      name: 'ValueError',
      field: 'nodes',
    })
    await using echo = await InferenceBackend.fromConfig(source, { nodes, useService: false })
    expect([echo.workers, nodes.requests]).toEqual([1, []])
  })
})
