import { Socket } from 'node:net'
import { inspect } from 'node:util'
import { afterAll, describe, expect, it, onTestFinished } from 'vitest'
import { ConcurrentBackend } from '../../src/backends/local/concurrent-backend.ts'
import type { Backend } from '../../src/backends/backend.ts'
import { Session } from '../../src/session/session.ts'
import { ComputeTask } from '../../src/tasks/compute-task.ts'
import { eventually } from '../eventually.ts'
import { startAgentHere, startTestCluster } from './agents.ts'
import { sharedCluster } from './local-cluster.ts'
import { large } from './fixtures/cluster-tasks.ts'
import { echo, make } from './fixtures/value-tasks.ts'
import { storedObjects } from './stored-names.ts'

class Point {
  readonly x = 1
  readonly #hidden = 2
  get sum(): number {
    return this.x + this.#hidden
  }
}

const cycle: Record<string, unknown> = { name: 'cycle' }
cycle['self'] = [cycle]
const shared = { once: true }
const exception = new DOMException('later', 'TimeoutError')

const values: Readonly<Record<string, unknown>> = {
  undefined: undefined,
  null: null,
  NaN: NaN,
  'negative zero': -0,
  BigInt: 12_345_678_901_234_567_890n,
  'text with a lone surrogate': `a\u{1F600}\uD800`,
  'an array with a hole': Object.assign([], { length: 3, 1: 'one' }),
  Map: new Map<unknown, unknown>([
    ['text', 1],
    [{ key: true }, new Set([1, 'two'])],
  ]),
  Date: new Date(86_400_000),
  'an invalid Date': new Date(NaN),
  RegExp: /a+(?<name>b)/giu,
  'boxed primitives': [Object(1), Object('text'), Object(false), Object(2n)],
  ArrayBuffer: new Uint8Array([1, 2, 3]).buffer,
  Buffer: { buffer: Buffer.from('hello') },
  'typed arrays': [
    new Uint8Array([1, 255]),
    new Uint8ClampedArray([1]),
    new Int16Array([-1]),
    new Float32Array([0.5]),
    new Float64Array([NaN, 1e300]),
    new BigInt64Array([-1n]),
    new Uint32Array([7, 8, 9]).subarray(1),
  ],
  DataView: new DataView(new Uint8Array([9, 8, 7]).buffer),
  Error: new RangeError('out of range', { cause: new Error('why') }),
  'an error of an own class': Object.assign(new TypeError('own'), { code: 'E_OWN' }),
  AggregateError: new AggregateError([new Error('one')], 'several'),
  DOMException: new DOMException('stopped', 'AbortError'),
  'DOMExceptions inside': [
    exception,
    { exception, list: [new Error('why', { cause: new DOMException('x', 'DataError') })] },
    new Map([['key', exception]]),
    new Set([exception]),
  ],
  'a cycle': cycle,
  'one object twice': [shared, shared],
  'an instance of a class': new Point(),
  'an object without a prototype': Object.assign(Object.create(null), { a: 1 }),
  '__proto__ as a key': JSON.parse('{ "__proto__": { "a": 1 } }'),
}

const uncloneable: Readonly<Record<string, unknown>> = {
  function: { list: [1, () => {}] },
  symbol: new Map([['key', Symbol('s')]]),
  socket: { socket: new Socket() },
  'a getter that throws': {
    get broken(): never {
      throw new Error('broken')
    },
  },
  WeakMap: [new WeakMap()],
  Promise: [[Promise.resolve()]],
}

interface End {
  readonly value?: string
  readonly type?: string
  readonly field?: unknown
}

async function endOf(session: Session, task: ComputeTask<unknown>): Promise<End> {
  await session.submitTasks([task])
  await session.waitTasks([task])
  if (task.state === 'DONE') return { value: inspect(task.returnValue, { depth: null }) }
  const cause = task.error?.cause ?? task.error
  return {
    type: (cause as Error).constructor.name,
    field: (cause as { field?: unknown }).field,
  }
}

describe('values that go to a function and come back', () => {
  const connect = sharedCluster({ agents: 1, cores: 1 })
  let sessions: Promise<readonly [Session, Session]> | null = null
  const open = async (): Promise<readonly [Session, Session]> => {
    const backends: readonly Backend[] = [
      await ConcurrentBackend.create({ workers: 1 }),
      await connect(),
    ]
    const [local, cluster] = backends.map((backend) => new Session([backend]))
    if (local === undefined || cluster === undefined) throw new Error('no session')
    return [local, cluster]
  }
  const both = async (task: () => ComputeTask<unknown>): Promise<readonly [End, End]> => {
    sessions ??= open()
    const [local, cluster] = await sessions
    return Promise.all([endOf(local, task()), endOf(cluster, task())])
  }
  afterAll(async () => {
    for (const session of (await sessions) ?? []) await session.close()
  })

  it.each(Object.keys(values))(
    'values on a cluster are those of the local backend: %s',
    async (name) => {
      const [local, cluster] = await both(
        () => new ComputeTask({ function: echo, args: [values[name]] }),
      )
      expect(cluster).toEqual(local)
      expect(cluster).toHaveProperty('value')
    },
  )

  it('values that a function has made are those of the local backend: DOMException', async () => {
    const [local, cluster] = await both(
      () => new ComputeTask({ function: make, args: ['exception'] }),
    )
    expect(cluster).toEqual(local)
    expect(cluster.value).toContain('DOMException [AbortError]: stopped')
  })

  it.each(Object.keys(uncloneable))('values are refused as locally, by path: %s', async (name) => {
    const [local, cluster] = await both(
      () => new ComputeTask({ function: echo, args: [0, uncloneable[name]] as never }),
    )
    expect(cluster).toEqual(local)
    expect(cluster.type).toBe('ArgumentNotSerializableError')
  })

  it.each(['function', 'socket', 'symbol'])('values are refused as results: %s', async (name) => {
    const [local, cluster] = await both(() => new ComputeTask({ function: make, args: [name] }))
    expect(cluster).toEqual(local)
    expect(cluster.type).toBe('ResultNotSerializableError')
  })

  it.each([
    ['blob', 'return_value.list[0]'],
    ['shared memory', 'return_value.get("memory")'],
  ])('values that cannot be cloned are refused: %s', async (name, field) => {
    const [, cluster] = await both(() => new ComputeTask({ function: make, args: [name] }))
    expect(cluster).toEqual({ type: 'ResultNotSerializableError', field })
  })

  it.each([
    ['a Blob', { list: [new Blob(['text'])] }, 'args[0].list[0]'],
    ['shared memory', [new Uint8Array(new SharedArrayBuffer(8))], 'args[0][0]'],
  ])('values that cannot be cloned are not sent: %s', async (_, value, field) => {
    const [, cluster] = await both(() => new ComputeTask({ function: echo, args: [value] }))
    expect(cluster).toEqual({ type: 'ArgumentNotSerializableError', field })
  })

  it('values have memory of their own', async () => {
    sessions ??= open()
    const [, cluster] = await sessions
    const task = new ComputeTask({ function: echo, args: [Buffer.from('hello')] })
    await cluster.submitTasks([task])
    const value = (await task) as Uint8Array
    expect(value.constructor).toBe(Uint8Array)
    expect(value.buffer.byteLength).toBe(5)
  })
})

describe('values that are larger than a message', () => {
  it('large values go through the object store and are deleted after receipt', async () => {
    const cluster = await startTestCluster()
    await startAgentHere(cluster, { name: 'first' })
    const session = new Session([await cluster.connect()])
    onTestFinished(() => session.close())
    const task = new ComputeTask({ function: large, args: [new Uint8Array(3_000_000)] })
    await session.submitTasks([task])
    const value = await task
    expect(value).toHaveLength(3_000_000)
    expect(value.every((byte) => byte === 1)).toBe(true)
    await eventually(async () => expect(await storedObjects(cluster.server.url)).toEqual([]))
  })
})
