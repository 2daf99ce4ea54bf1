import { randomBytes } from 'node:crypto'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { jetstreamManager } from '@nats-io/jetstream'
import { connect, type NatsConnection } from '@nats-io/transport-node'
import { describe, expect, it, onTestFinished } from 'vitest'
import { packCompletions } from '../../src/cluster/wire/completions.ts'
import {
  deriveKeys,
  type Key,
  open,
  seal,
  VersionMismatchError,
} from '../../src/cluster/wire/envelope.ts'
import {
  agentSubject,
  announcementSubject,
  protocolVersion,
  sessionSubjects,
} from '../../src/cluster/wire/subjects.ts'
import type { Log } from '../../src/foundation/log.ts'
import { Session } from '../../src/session/session.ts'
import { ComputeTask } from '../../src/tasks/compute-task.ts'
import { runHere, startProgram } from '../cli/run-command.ts'
import { eventually } from '../eventually.ts'
import { sharedTestCluster, startAgentHere, startTestCluster, type TestCluster } from './agents.ts'
import { work } from './fixtures/cluster-tasks.ts'
import type { KeptTask } from './fixtures/kept-tasks.ts'
import { storedNames } from './stored-names.ts'
import { token, runOf, useOf } from './test-token.ts'

const sharedServer = sharedTestCluster()

interface Message {
  readonly subject: string
  readonly data: Uint8Array
}

/** A second client of the broker that sees everything. */
async function startStranger(
  cluster: TestCluster,
): Promise<{ client: NatsConnection; seen: Message[] }> {
  const client = await connect({ servers: cluster.server.url, token })
  onTestFinished(() => client.close())
  const seen: Message[] = []
  client.subscribe('tutti1.>', {
    callback: (_, { subject, data }) => void seen.push({ subject, data: Uint8Array.from(data) }),
  })
  await client.flush()
  return { client, seen }
}

interface Listed {
  readonly agents: readonly { readonly name: string; readonly refused_messages: number }[]
  readonly unusable: readonly object[]
}

async function listAgents({ server, tokenFile }: TestCluster): Promise<Listed> {
  const listed = await runHere(process.cwd(), [
    '--json',
    'agents',
    '--connect',
    server.url,
    '--token-file',
    tokenFile,
  ])
  return JSON.parse(listed.stdout) as Listed
}

async function refusedBy(cluster: TestCluster): Promise<number> {
  return (await cluster.agents())[0]?.refusedMessages ?? -1
}

const lines = (file: string): string[] => {
  try {
    return readFileSync(file, 'utf8').trim().split('\n')
  } catch {
    return []
  }
}

/** An agent named "first", and what it warns of messages that it refuses. */
async function startWarningAgent(cluster: TestCluster): Promise<{ readonly warnings: string[] }> {
  const warnings: string[] = []
  const log: Log = {
    warn: (code, text) => {
      if (text.includes('refused a message')) warnings.push(code)
    },
  }
  await startAgentHere(cluster, { name: 'first', log })
  return { warnings }
}

const noHeader = { scope: 0, number: 0, acknowledged: 0 }

describe('a stranger at the broker', () => {
  it('row 97: a stranger with another token runs nothing and completes nothing', async () => {
    const cluster = await sharedServer()
    const { warnings } = await startWarningAgent(cluster)
    const { client } = await startStranger(cluster)
    const session = new Session([await cluster.connect()], { id: 'watched' })
    onTestFinished(() => session.close())
    const begun = join(cluster.folder, 'begun')
    const task = new ComputeTask({ uid: 'slow', function: work, args: [begun, 'slow', 60_000] })
    await session.submitTasks([task])
    await eventually(() => expect(lines(begun)).toEqual(['slow']))
    const keys = deriveKeys('a token of somebody else', runOf('watched'))
    const subjects = sessionSubjects(useOf('watched'))
    const down = subjects.toAgent('first')
    const definition = { module: new URL('fixtures/cluster-tasks.ts', import.meta.url).href }
    const jobs = {
      kind: 'jobs',
      definitions: [{ ...definition, name: 'work' }],
      functions: {
        indexes: [1],
        uids: ['forged'],
        attempts: [1],
        definitions: [0],
        args: [[begun, 'forged', 0]],
        options: null,
      },
      others: [],
    }
    const cancel = { kind: 'cancel', jobs: [['slow', 1]], reason: 'forged' }
    for (const payload of [jobs, cancel]) {
      client.publish(down, seal(keys.toAgent, down, { ...noHeader, number: 1 }, payload))
    }
    const ends = subjects.agentResults('first')
    const end = {
      kind: 'ends',
      agent: 'first',
      ahead: 1,
      completions: packCompletions([
        {
          index: 0,
          uid: 'slow',
          attempt: 1,
          beganMs: 0,
          atMs: 1,
          workerId: 'first/1',
          value: 'forged',
        },
      ]),
      ends: [],
    }
    client.publish(ends, seal(keys.toDriver, ends, { ...noHeader, number: 1 }, end))
    await client.flush()
    await eventually(async () => expect(await refusedBy(cluster)).toBe(2))
    expect(task.state).toBe('RUNNING')
    expect(lines(begun)).toEqual(['slow'])
    expect(warnings).toHaveLength(1)
  })

  it('row 97: a stranger begins nothing twice by replayed or altered messages', async () => {
    const cluster = await sharedServer()
    await startAgentHere(cluster, { name: 'first' })
    const { client, seen } = await startStranger(cluster)
    const begun = join(cluster.folder, 'begun')
    const again = async (messages: readonly Message[]): Promise<void> => {
      for (const { subject, data } of messages) client.publish(subject, data)
      await client.flush()
    }
    // The messages of the first run, without the one that ends the session.
    let ofFirst: Message[] | null = null
    const run = async (value: string): Promise<unknown> => {
      const session = new Session([await cluster.connect()], { id: 'again' })
      try {
        const task = new ComputeTask({ uid: 'one', function: work, args: [begun, value, 300] })
        await session.submitTasks([task])
        await eventually(() => expect(task.state).toBe('RUNNING'))
        const messages = [...seen]
        ofFirst ??= messages
        await again(messages)
        await again(messages.map(({ subject, data }) => ({ subject, data: altered(data) })))
        await again(messages.map(({ data }) => ({ subject: agentSubject('first'), data })))
        return await task
      } finally {
        await session.close()
      }
    }
    expect(await run('first')).toBe('first')
    // The first time attaches, the second time has somebody who listens to jobs.
    for (const _ of [1, 2]) {
      await again(ofFirst ?? [])
      expect(await refusedBy(cluster)).toBeGreaterThan(0)
    }
    expect(lines(begun)).toEqual(['first'])
    expect(await run('second')).toBe('second')
    await again(ofFirst ?? [])
    expect(await refusedBy(cluster)).toBeGreaterThan(0)
    expect(lines(begun)).toEqual(['first', 'second'])
  })

  it('row 97: a stranger cannot pretend that a session is in use, or that it is not', async () => {
    const cluster = await sharedServer()
    await startAgentHere(cluster, { name: 'first' })
    const { client } = await startStranger(cluster)
    const { owner, stream, claim, allResults } = sessionSubjects(useOf('claimed'))
    const forged = seal(
      deriveKeys('another token', runOf('claimed')).toDriver,
      owner,
      noHeader,
      null,
    )
    const answers = [new Uint8Array(), randomBytes(100), forged]
    client.subscribe(owner, {
      callback: (_, message) => answers.forEach((answer) => message.respond(answer)),
    })
    // As if an earlier driver had claimed the session.
    const manager = await jetstreamManager(client)
    await manager.streams.add({ name: stream, subjects: [claim, allResults] })
    client.publish(claim, randomBytes(100))
    await client.flush()
    const start = async (): Promise<{ session: Session; task: ComputeTask<string> }> => {
      const session = new Session([await cluster.connect()], { id: 'claimed' })
      onTestFinished(() => session.close())
      const begun = join(cluster.folder, 'begun')
      const task = new ComputeTask({ function: work, args: [begun, 'done', 0] })
      await session.submitTasks([task])
      await session.waitTasks([task])
      return { session, task }
    }
    const first = await start()
    expect(first.task.state).toBe('DONE')
    const second = await start()
    expect(second.task.error?.cause).toMatchObject({ code: 'SessionInUseError' })
  })

  it('row 97: a stranger is not taken for the driver, and gets no stored results', async () => {
    const cluster = await startTestCluster()
    const agent = await startAgentHere(cluster, { name: 'first' })
    const { client } = await startStranger(cluster)
    const { owner, stream } = sessionSubjects(useOf('kept'))
    const program = fileURLToPath(new URL('fixtures/kept-driver.ts', import.meta.url))
    const tasks: KeptTask[] = [{ uid: 'held', kind: 'held failure', retries: 1 }]
    const given = [cluster.server.url, cluster.folder, JSON.stringify(tasks)]
    const driver = startProgram(program, given)
    onTestFinished(() => void driver.child.kill('SIGKILL'))
    const begun = join(cluster.folder, 'begun')
    await eventually(() => expect(lines(begun)).toEqual(['held 1', 'held 2']))
    driver.child.kill('SIGKILL')
    await driver.ended
    client.subscribe(owner, { callback: (_, message) => void message.respond(randomBytes(100)) })
    await client.flush()
    // As a driver that has closed the session.
    const manager = await jetstreamManager(client)
    await manager.streams.delete(stream)
    writeFileSync(join(cluster.folder, 'go'), '')
    agent.drain()
    expect(await agent.left).toBe(0)
    expect(await storedNames(cluster.server.url)).toEqual([])
  })

  it('row 97: a stranger that replays announcements of an ended agent adds no node', async () => {
    const cluster = await sharedServer()
    const { client } = await startStranger(cluster)
    const recorded: Uint8Array[] = []
    const recording = client.subscribe(announcementSubject, {
      callback: (_, { data }) => void recorded.push(Uint8Array.from(data)),
    })
    await client.flush()
    const ended = await cluster.agent('ended', '--cores', '4')
    await eventually(() => expect(recorded.length).toBeGreaterThan(0))
    ended.child.kill('SIGKILL')
    await ended.ended
    recording.unsubscribe()
    const session = new Session([await cluster.connect()])
    onTestFinished(() => session.close())
    const telemetry = await session.startTelemetry()
    const nodes: unknown[] = []
    telemetry.subscribe(({ event_type: type, node_id: node }) => {
      if (type.startsWith('tutti.Node')) nodes.push([type, node])
    })
    for (const data of recorded) client.publish(announcementSubject, data)
    await client.flush()
    // With a watcher, because otherwise any subscriber would count as an agent of this name.
    await cluster.agent('living', '--cores', '1')
    for (const data of recorded) client.publish(announcementSubject, data)
    await client.flush()
    const task = new ComputeTask({ function: work, args: [join(cluster.folder, 'begun'), 'x', 0] })
    await session.submitTasks([task])
    expect(await task).toBe('x')
    await telemetry.flush()
    expect(nodes).toEqual([['tutti.NodeJoined', 'living']])
  })

  it('row 98: a stranger is refused for malformed, unknown or foreign messages', async () => {
    const cluster = await sharedServer()
    const { warnings } = await startWarningAgent(cluster)
    const { client } = await startStranger(cluster)
    const keys = deriveKeys(token, null)
    const subject = agentSubject('first')
    const malformed = [
      new Uint8Array(),
      randomBytes(10),
      randomBytes(900_000),
      seal(keys.toAgent, subject, noHeader, { kind: 'unheard of' }),
      seal(keys.toAgent, subject, noHeader, { kind: 'attach', nonce: 7, sessionId: 'x' }),
      ofVersion(9, keys.toAgent, subject),
      ofVersion(9, keys.toAgent, subject),
    ]
    for (const data of malformed) client.publish(subject, data)
    await client.flush()
    await eventually(async () => expect(await refusedBy(cluster)).toBe(malformed.length))
    const listed = await listAgents(cluster)
    expect(listed.agents[0]?.refused_messages).toBe(malformed.length)
    // The first that was refused, and the first of another version.
    expect(warnings).toHaveLength(2)
  })

  it('row 98: an agent of another version is named, with both versions', async () => {
    const cluster = await sharedServer()
    const { client } = await startStranger(cluster)
    const { toDriver } = deriveKeys(token, null)
    const named = { kind: 'announcement', name: 'newer' }
    const announce = setInterval(() => {
      const data = ofVersion(9, toDriver, announcementSubject, named)
      client.publish(announcementSubject, data)
    }, 50)
    onTestFinished(() => clearInterval(announce))
    const versions = { ours: protocolVersion, theirs: 9 }
    const both = `version 9 of the protocol, this side version ${protocolVersion}`
    const reason = `agent "newer" uses ${both}`
    expect(await listAgents(cluster)).toEqual({
      agents: [],
      unusable: [{ name: 'newer', code: 'VersionMismatchError', ...versions, reason }],
      complete: true,
    })
    const warnings: string[] = []
    const log = { warn: (_: string, text: string): void => void warnings.push(text) }
    const session = new Session([await cluster.connect({ agentTimeoutSeconds: 1, log })])
    onTestFinished(() => session.close())
    const task = new ComputeTask({ executable: '/bin/true' })
    await session.submitTasks([task])
    await session.waitTasks([task])
    const error = task.error?.cause as Error
    expect(error).toMatchObject({ code: 'NoAgentError' })
    expect(error.message).toContain(reason)
    expect(error.cause).toBeInstanceOf(VersionMismatchError)
    expect(error.cause).toMatchObject({ agent: 'newer', ...versions })
    expect(warnings).toEqual([reason])
  })

  it('row 98: another version is an error with both numbers', () => {
    const { toAgent } = deriveKeys(token, null)
    const thrown = (): unknown => {
      try {
        return open(toAgent, 'subject', ofVersion(9, toAgent, 'subject'))
      } catch (error) {
        return error
      }
    }
    expect(thrown()).toBeInstanceOf(VersionMismatchError)
    expect(thrown()).toMatchObject({ ours: protocolVersion, theirs: 9 })
  })
})

function altered(data: Uint8Array): Uint8Array {
  const copy = data.slice()
  copy[copy.length - 1] = (copy.at(-1) ?? 0) ^ 1
  return copy
}

/** Signed as every version does it. */
function ofVersion(
  version: number,
  key: Key,
  subject: string,
  payload: object = { kind: 'ping' },
): Buffer {
  const message = seal(key, subject, noHeader, payload)
  message[0] = version
  key.sign(subject, version, message.subarray(33)).copy(message, 1)
  return message
}
