import { readFileSync } from 'node:fs'
import { expect, it, onTestFinished } from 'vitest'
import type {
  BackendListener,
  ConnectedSession,
  Connection,
  EarlierRun,
  SampledNode,
} from '../../src/backends/backend.ts'
import { Session } from '../../src/session/session.ts'
import { FakeBackend } from '../../src/testing/fake-backend.ts'
import { WorkflowEngine } from '../../src/workflow/workflow-engine.ts'
import { tempFolder } from '../checkpoint/open-writer.ts'
import { fillDisk, mountDisk, mounts } from '../mounts.ts'
import { needs } from '../require.ts'
import { quick, turns } from './open-session.ts'
import { cutBefore } from './recorded-runs.ts'

const log = { warn(): void {} }

/** Shows each session that has connected. */
class ListeningBackend extends FakeBackend {
  readonly sessions: ConnectedSession[] = []

  override connect(listener: BackendListener, session: ConnectedSession): Connection {
    this.sessions.push(session)
    return super.connect(listener, session)
  }

  join(nodeId: string, agentStart?: number): void {
    const node: SampledNode = { nodeId, ...(agentStart === undefined ? {} : { agentStart }) }
    this.notice({ kind: 'node-joined', node })
  }

  lose(nodeId: string): void {
    this.notice({ kind: 'node-left', nodeId, lost: { reason: 'it burned', tasks: [] } })
  }
}

function open(...backends: readonly FakeBackend[]): Session {
  const session = new Session(backends, { log })
  onTestFinished(() => session.close())
  return session
}

/** Runs a session that ends as if it had been killed. Returns its record. */
async function killedRun(
  act: (cluster: ListeningBackend, other: ListeningBackend) => void,
  resumed: string | null = null,
): Promise<string> {
  const cluster = new ListeningBackend({ name: 'cluster' })
  const other = new ListeningBackend({ name: 'other' })
  const session = open(cluster, other)
  if (resumed !== null) await session.resume(resumed)
  const checkpointPath = resumed === null ? { checkpointPath: tempFolder() } : {}
  const { checkpointFile } = await session.startTelemetry(checkpointPath)
  if (checkpointFile === null) throw new Error('the session has no record')
  await session.submitTasks([quick({ uid: resumed === null ? 'first' : 'second' })])
  act(cluster, other)
  await session.close()
  cutBefore(checkpointFile, ({ event_type }) => event_type === 'TaskCanceled')
  return checkpointFile
}

/** What the backend has been told so far: `undefined` while it is not known. */
async function beginningOf(session: ConnectedSession | undefined): Promise<unknown> {
  const { promise: soon, resolve } = Promise.withResolvers<undefined>()
  void turns(1).then(() => resolve(undefined))
  return Promise.race([session?.begun, soon])
}

it.each<[string, (session: Session) => Promise<unknown>]>([
  ['startTelemetry', (session) => session.startTelemetry()],
  ['the first submission', (session) => session.submitTasks([quick()])],
  ['close', (session) => session.close()],
])('begun: a session that resumes nothing begins at %s', async (_, begin) => {
  const backend = new ListeningBackend()
  const session = open(backend)
  expect(await beginningOf(backend.sessions[0])).toBeUndefined()
  await begin(session)
  expect(await beginningOf(backend.sessions[0])).toBeNull()
})

it('begun: a list that was refused is no submission, and the session may resume', async () => {
  const record = await killedRun((cluster) => cluster.join('n1', 7))
  const backend = new ListeningBackend({ name: 'cluster' })
  const session = open(backend)
  const task = quick({ uid: 'twice' })
  await expect(session.submitTasks([task, task])).rejects.toThrow('already submitted')
  expect(await beginningOf(backend.sessions[0])).toBeUndefined()
  await session.resume(record)
  expect(await beginningOf(backend.sessions.at(-1))).toEqual({
    nodes: [{ nodeId: 'n1', start: 7 }],
  })
})

it('begun: a workflow engine begins with its first call', async () => {
  const backend = new ListeningBackend()
  const flow = await WorkflowEngine.create({ backend })
  onTestFinished(() => flow.shutdown())
  expect(await beginningOf(backend.sessions[0])).toBeUndefined()
  void flow.functionTask(() => 1)()
  expect(await beginningOf(backend.sessions[0])).toBeNull()
})

it('begun: a resumed session tells a backend which of its agents have not left', async () => {
  const first = await killedRun((cluster, other) => {
    cluster.join('kept', 1)
    cluster.join('lost', 2)
    cluster.join('drained', 3)
    cluster.join('restarted', 4)
    cluster.join('no agent')
    other.join('kept', 5)
    cluster.lose('lost')
    cluster.notice({ kind: 'node-left', nodeId: 'drained' })
    cluster.lose('restarted')
    cluster.join('restarted', 6)
  })
  const nodes = [
    { nodeId: 'kept', start: 1 },
    { nodeId: 'restarted', start: 6 },
  ]
  expect(await resumedBy(first)).toEqual([{ nodes }, { nodes: [{ nodeId: 'kept', start: 5 }] }])
  const second = await killedRun((cluster) => {
    cluster.join('new', 8)
    cluster.join('kept', 1)
    cluster.lose('kept')
  }, first)
  expect(await resumedBy(second)).toEqual([
    { nodes: [nodes[1], { nodeId: 'new', start: 8 }] },
    { nodes: [{ nodeId: 'kept', start: 5 }] },
  ])
})

/** What a session that resumes the record tells its backends. */
async function resumedBy(record: string): Promise<(EarlierRun | null | undefined)[]> {
  const backends = ['cluster', 'other'].map((name) => new ListeningBackend({ name }))
  const session = new Session(backends, { log })
  await session.resume(record)
  const told = backends.map(async ({ sessions }) => sessions.at(-1)?.begun)
  const runs = await Promise.all(told)
  await session.close()
  return runs
}

it('begun: a session that has ended has left nothing with its agents', async () => {
  const backend = new ListeningBackend({ name: 'cluster' })
  const session = open(backend)
  const { checkpointFile } = await session.startTelemetry({ checkpointPath: tempFolder() })
  backend.join('n1', 7)
  await session.submitTasks([quick({ uid: 'first' })])
  await session.close()
  expect(await resumedBy(checkpointFile ?? '')).toEqual([{ nodes: [] }, { nodes: [] }])
})

it('begun: a connection whose session has got another id has no earlier run', async () => {
  const record = await killedRun((cluster) => cluster.join('n1', 7))
  const backend = new ListeningBackend({ name: 'cluster' })
  const session = open(backend)
  await session.resume(record)
  const [before, after] = backend.sessions
  expect(await beginningOf(before)).toBeNull()
  expect(after?.id).toBe(session.id)
  expect(await beginningOf(after)).toEqual({ nodes: [{ nodeId: 'n1', start: 7 }] })
})

it('begun: a backend that was connected with the id of the record is told about it', async () => {
  const record = await killedRun((cluster) => cluster.join('n1', 7))
  const { session_id: id } = JSON.parse(readFileSync(record, 'utf8').split('\n')[0] ?? '') as {
    readonly session_id: string
  }
  const backend = new ListeningBackend({ name: 'cluster' })
  const session = new Session([backend], { id, log })
  onTestFinished(() => session.close())
  expect(await beginningOf(backend.sessions[0])).toBeUndefined()
  await session.resume(record)
  expect(backend.sessions).toHaveLength(1)
  expect(await beginningOf(backend.sessions[0])).toEqual({ nodes: [{ nodeId: 'n1', start: 7 }] })
})

it('flushed: the record names the nodes that join while telemetry starts', async () => {
  const backend = new ListeningBackend({
    name: 'cluster',
    nodes: [{ nodeId: 'n0', agentStart: 1 }],
  })
  const session = open(backend)
  const flushed = backend.sessions[0]?.flushed?.()
  const { checkpointFile } = await session.startTelemetry({ checkpointPath: tempFolder() })
  const joined = (): string[] =>
    readFileSync(checkpointFile ?? '', 'utf8').match(/"agent_start":\d+/g) ?? []
  await flushed
  expect(joined()).toEqual(['"agent_start":1'])
  backend.join('n1', 2)
  backend.join('n2', 3)
  await Promise.all([backend.sessions[0]?.flushed?.(), backend.sessions[0]?.flushed?.()])
  expect(joined()).toEqual(['"agent_start":1', '"agent_start":2', '"agent_start":3'])
})

it('flushed: a session without a record waits for nothing once it has begun', async () => {
  const backend = new ListeningBackend()
  const session = open(backend)
  await session.submitTasks([quick()])
  await expect(backend.sessions[0]?.flushed?.()).resolves.toBeUndefined()
})

needs(mounts)('flushed: a full disk does not stop the run', async () => {
  const folder = mountDisk('1m')
  const backend = new ListeningBackend()
  const session = open(backend)
  const telemetry = await session.startTelemetry({ checkpointPath: folder })
  const makeRoom = fillDisk(folder)
  backend.join('n'.repeat(8192), 1)
  await expect(telemetry.flush()).rejects.toThrow('not on file yet')
  await expect(backend.sessions[0]?.flushed?.()).resolves.toBeUndefined()
  makeRoom()
})

it.each([
  [true, {}, true],
  [true, { keepResults: false }, false],
  [false, {}, false],
] as const)(
  'keepResults: a backend that wants it (%s) and the option %j: results are stored: %s',
  async (keepsResults, option, areStored) => {
    const backend = Object.assign(new FakeBackend(), { keepsResults })
    const session = open(backend)
    const telemetry = await session.startTelemetry({ checkpointPath: tempFolder(), ...option })
    const task = quick()
    await session.submitTasks([task])
    backend.start(task)
    backend.complete(task, 'kept')
    await telemetry.flush()
    const record = readFileSync(telemetry.checkpointFile ?? '', 'utf8')
    expect(record.includes('"result"')).toBe(areStored)
  },
)
