import { describe, expect, it, onTestFinished } from 'vitest'
import type { Job } from '../../../src/backends/backend.ts'
import type { Broker } from '../../../src/cluster/broker/broker.ts'
import type { SessionStream } from '../../../src/cluster/broker/session-stream.ts'
import { AgentDirectory, type KnownAgent } from '../../../src/cluster/driver/agent-directory.ts'
import type { AgentLink } from '../../../src/cluster/driver/agent-link.ts'
import { NumberSet } from '../../../src/cluster/protocol/number-set.ts'
import { DriverJobs } from '../../../src/cluster/protocol/driver-jobs.ts'
import { EarlierRun } from '../../../src/cluster/protocol/earlier-run.ts'
import type { ResultReceiver } from '../../../src/cluster/driver/result-receiver.ts'
import { SessionAgents } from '../../../src/cluster/driver/session-agents.ts'
import { emptyNotes } from '../../../src/cluster/driver/used-agents.ts'
import { deriveKeys, emptyHeader, open, seal } from '../../../src/cluster/wire/envelope.ts'
import type { AgentNote } from '../../../src/cluster/wire/messages.ts'
import {
  agentSubject,
  announcementSubject,
  sessionSubjects,
} from '../../../src/cluster/wire/subjects.ts'
import { ManualClock } from '../../../src/testing/manual-clock.ts'
import { jobOf } from '../../backends/local/fake-executor.ts'
import { MemoryBroker } from '../memory-broker.ts'
import { agentOf } from './links.ts'
import { runOf, token, useOf } from '../test-token.ts'
import { readMoment } from '../../../src/foundation/clock.ts'

const keys = deriveKeys('a token of the test', runOf('session'))

const noSampler = (): never => expect.unreachable('nothing is sampled')

/** A session with one agent, whose stream and whose agent answer when the test lets them. */
class OneAgent {
  readonly clock = new ManualClock()
  readonly links = new Map<string, AgentLink>()
  readonly agent = agentOf('only')
  readonly streamRead = Promise.withResolvers<void>()
  readonly attached = Promise.withResolvers<void>()
  onFail: (job: Job) => void = () => {}
  onDetach: () => Promise<void> = () => Promise.resolve()
  readonly left: string[] = []
  readonly reasons: string[] = []
  readonly joined: string[] = []
  readonly lost: (string | null)[] = []
  readonly earlier = new EarlierRun()
  /** Agents that a later start of the session will not look for. */
  readonly missed: AgentNote[] = []
  /** The agents that the directory knows. */
  known = [this.agent]
  readonly warnings: string[] = []
  /** Why the agent cannot be attached to. */
  refusal: string | null = null
  /**
   * The number of messages with results that the agent has for an earlier start, and those
   * received.
   */
  endMessages = 0
  readonly received = new NumberSet()
  readonly jobs = new DriverJobs(
    {
      report: (job, report) => {
        if (report.kind === 'fail') this.onFail(job)
      },
      notice() {},
    },
    () => readMoment(this.clock),
  )
  readonly agents: SessionAgents
  /** The messages in the stream: the driver's start, and an agent that it uses. */
  readonly noted: (readonly [number, string])[] = []

  constructor() {
    const known = (): KnownAgent[] => this.known
    const directory: Partial<AgentDirectory> = {
      get agents() {
        return known()
      },
      find: (name) => known().find(({ announcement }) => announcement.name === name),
      receivingSinceMs: 0,
      request: async (_, { kind }) => {
        if (this.refusal !== null) throw new Error(this.refusal)
        if (kind === 'challenge') return { kind: 'challenged', nonce: 1 }
        if (kind === 'detach') await this.onDetach()
        await this.attached.promise
        const offer = { ...this.agent.announcement.facts, ahead: 1 }
        const { endMessages } = this
        const unrecorded = Array.from({ length: endMessages }, (__, index) => index + 1)
        const told = { endsEpoch: 1, endMessages, unrecorded }
        return { kind: 'attached', epoch: 1, offer, held: [], ...told }
      },
    }
    const results: Partial<ResultReceiver> = {
      hasUsedEpoch: () => false,
      acceptEpoch: () => this.received,
      readStream: () => this.streamRead.promise,
    }
    const stream: Partial<SessionStream> = { open: () => Promise.resolve(null) }
    const append = async (subject: string, data: Uint8Array): Promise<void> => {
      const { epoch, payload } = open(keys.toDriver, subject, data)
      const note = payload as AgentNote
      if (note.state === 'missing') this.missed.push(note)
      else this.noted.push([epoch, note.name])
    }
    const store: Partial<Broker['store']> = { append }
    const broker: Partial<Broker> = {
      store: store as Broker['store'],
      publish() {},
      onConnection: () => () => {},
    }
    this.agents = new SessionAgents({
      use: useOf('session'),
      token,
      epoch: () => 1,
      keys: () => keys,
      run: () => runOf('session').run,
      subjects: sessionSubjects(useOf('session')),
      broker: broker as Broker,
      directory: directory as AgentDirectory,
      listener: {
        report() {},
        notice: (notice) => {
          if (notice.kind === 'node-left') {
            this.left.push(notice.nodeId)
            this.reasons.push(notice.lost?.reason ?? 'drained')
          } else if (notice.kind === 'node-joined') this.joined.push(notice.node.nodeId)
          else if (notice.kind === 'event') this.lost.push(notice.nodeId)
        },
      },
      clock: this.clock,
      log: { warn: (code, text) => void this.warnings.push(`${code} ${text}`) },
      jobs: this.jobs,
      results: results as ResultReceiver,
      stream: stream as SessionStream,
      earlier: this.earlier,
      agents: new Map(),
      links: this.links,
      lossSeconds: 1,
      ownerTtlSeconds: 60,
      agentTimeoutSeconds: 60,
      resultTtlSeconds: 60,
      onChange() {},
      toNode: ({ announcement: { name: nodeId } }) => ({ nodeId, createSampler: noSampler }),
      onReport() {},
      onRefused() {},
      onFailed() {},
    })
  }
}

describe('the agent of a session', () => {
  it('a lost agent gets no further attempt, although it was heard just now', async () => {
    const one = new OneAgent()
    one.attached.resolve()
    await one.agents.attachAll()
    const link = one.links.get('only') as AgentLink
    const job = one.jobs.add(jobOf('task'), 0)
    one.jobs.placement.push(job)
    expect([...one.jobs.placement.assign().keys()]).toEqual(['only'])
    one.jobs.assign(job, link.agent, 0)
    one.jobs.reportStart(job, link.agent, { beganMs: 0, workerId: 'only/w1' }, one.jobs.readTime())
    const placedOn: string[] = []
    // As a session does it: the next attempt is submitted while the end of the last is reported.
    one.onFail = (failed) => {
      one.jobs.placement.push(one.jobs.add({ ...failed, attempt: 2, isRetry: true }, 0))
      placedOn.push(...one.jobs.placement.assign().keys())
    }
    one.known = []
    one.agents.agentLost(one.agent, 'it was started again')
    one.agents.tick(0)
    one.streamRead.resolve()
    await one.clock.advance(0)
    expect(one.left).toEqual(['only'])
    expect(one.warnings).toEqual([])
    expect([placedOn, one.jobs.placement.waiting]).toEqual([[], 1])
  })

  it('an agent that rejoins during its loss report is reported as joined after it', async () => {
    const one = new OneAgent()
    one.attached.resolve()
    await one.agents.attachAll()
    one.agents.agentLost(one.agent, 'it was started again')
    one.agents.agentJoined(one.agent)
    expect([one.left, one.joined]).toEqual([[], []])
    one.streamRead.resolve()
    await one.clock.advance(0)
    expect([one.left, one.joined]).toEqual([['only'], ['only']])
  })

  it.each([
    [true, 'drained'],
    [false, 'its process is gone'],
  ])('an agent whose process has ended, as reported (%s), is %s', async (isExpected, reason) => {
    const one = new OneAgent()
    const broker = new MemoryBroker()
    const options = { broker, keys, clock: one.clock, log: { warn() {} }, lossSeconds: 10 }
    const directory = new AgentDirectory(options)
    onTestFinished(() => directory.close())
    broker.subscribe(agentSubject('only'), (message) => {
      const { subject, data } = message
      const { epoch } = open(keys.toAgent, subject, data)
      const pong = { kind: 'pong', epoch: 1, receivedMs: 0, sentMs: 0 }
      message.respond(seal(keys.toDriver, subject, { ...emptyHeader, epoch }, pong))
    })
    const header = { ...emptyHeader, epoch: 1, number: 1 }
    const { announcement } = agentOf('only')
    broker.publish(
      announcementSubject,
      seal(keys.toDriver, announcementSubject, header, announcement),
    )
    await one.clock.advance(0)
    one.known = [...directory.agents]
    one.attached.resolve()
    one.streamRead.resolve()
    await one.agents.attachAll()
    directory.listen(one.agents)
    // The message that it has left may arrive after its process has exited.
    directory.handleExit('only', isExpected)
    await one.clock.advance(0)
    expect(one.reasons).toEqual([reason])
  })

  it('a reported agent is reported as lost, although the session did not use it', () => {
    const one = new OneAgent()
    one.known = []
    one.agents.agentLost(one.agent, 'it was silent')
    expect([one.left, one.joined]).toEqual([['only'], []])
  })

  it.each(['before', 'after'])(
    'an agent lost during its attach is reported once, when the request fails %s the report',
    async (when) => {
      const one = new OneAgent()
      const attaching = one.agents.attachAll()
      await one.clock.advance(0)
      one.known = []
      one.agents.agentLost(one.agent, 'its process is gone')
      const fail = async (): Promise<void> => {
        one.attached.reject(new Error('no answer'))
        await attaching
      }
      if (when === 'before') await fail()
      one.streamRead.resolve()
      await one.clock.advance(0)
      if (when === 'after') await fail()
      expect([one.left, one.links.size, one.warnings]).toEqual([['only'], 0, []])
    },
  )

  it('an agent gets no job before all its results for an earlier start have come', async () => {
    const one = new OneAgent()
    one.endMessages = 1
    one.attached.resolve()
    one.streamRead.resolve()
    let isAttached = false
    const attached = one.agents.attachAll().then(() => (isAttached = true))
    one.jobs.placement.push(one.jobs.add(jobOf('task'), 0))
    await one.clock.advance(60_000)
    expect([isAttached, one.jobs.placement.assign().size]).toEqual([false, 0])
    one.received.add(1)
    await one.clock.advance(1000)
    await attached
    expect([...one.jobs.placement.assign().keys()]).toEqual(['only'])
  })

  it('an agent that joins before the session is claimed is attached to after that', async () => {
    const one = new OneAgent()
    one.agents.agentJoined(one.agent)
    expect(one.links.size).toBe(0)
    one.attached.resolve()
    await one.agents.attachAll()
    expect(one.links.get('only')?.agent.isAttached).toBe(true)
  })

  it('an agent that is being attached is awaited by a later request to attach to all', async () => {
    const one = new OneAgent()
    void one.agents.attachAll()
    let isAttached = false
    const attached = one.agents.attachAll().then(() => (isAttached = true))
    await one.clock.advance(0)
    expect(isAttached).toBe(false)
    one.attached.resolve()
    await attached
    one.jobs.placement.push(one.jobs.add(jobOf('task'), 0))
    expect([...one.jobs.placement.assign().keys()]).toEqual(['only'])
  })

  it('an agent is not silent for the time that it took to attach', async () => {
    const one = new OneAgent()
    one.streamRead.resolve()
    const attaching = one.agents.attachAll()
    await one.clock.advance(3000)
    one.attached.resolve()
    await attaching
    one.agent.lastHeardMs = one.clock.monotonicMs()
    one.agents.tick(one.clock.monotonicMs())
    await one.clock.advance(0)
    expect([one.left, one.links.size]).toEqual([[], 1])
  })

  it('an agent of an earlier start is awaited while attaching to it fails', async () => {
    const one = new OneAgent()
    one.attached.resolve()
    one.refusal = 'a time-out'
    const used = [{ name: 'only', epoch: 1 }]
    one.agents.earlier.setUsed(used)
    await one.agents.attachAll()
    let isOver = false
    const over = one.agents.earlier
      .reportMissingAgents({ ...emptyNotes, used })
      .then(() => (isOver = true))
    await one.clock.advance(1000)
    expect(isOver).toBe(false)
    one.refusal = null
    one.agents.tick(one.clock.monotonicMs())
    await one.clock.advance(1000)
    await over
    expect(one.earlier.nextUnknownAttempts('task', true)).toBe(null)
    expect(one.lost).toEqual([])
  })

  it.each(['it is gone', 'it cannot be attached to'])(
    'an agent of an earlier start is missing when %s',
    async (why) => {
      const one = new OneAgent()
      one.refusal = 'refused'
      if (why === 'it is gone') one.known = []
      const used = [{ name: 'only', epoch: 1 }]
      one.agents.earlier.setUsed(used)
      await one.agents.attachAll()
      const over = one.agents.earlier.reportMissingAgents({ ...emptyNotes, used })
      await one.clock.advance(60_000)
      await over
      expect(one.earlier.nextUnknownAttempts('task', true)).toEqual({
        agent: { name: 'only', epoch: 1 },
        attempts: 1,
      })
      expect(one.lost).toEqual(['only'])
      expect(one.missed).toMatchObject([{ name: 'only', epoch: 1 }])
    },
  )

  it('an agent of an earlier start that is lost before it has answered is missing', async () => {
    const one = new OneAgent()
    one.streamRead.resolve()
    one.agents.earlier.setUsed([{ name: 'only', epoch: 1 }])
    void one.agents.attachAll()
    await one.clock.advance(0)
    one.agents.agentLost(one.agent, 'it was silent')
    await one.clock.advance(0)
    expect([one.left, one.missed.map(({ name }) => name)]).toEqual([['only'], ['only']])
  })

  it('an agent that cannot be attached causes one warning for each reason', async () => {
    const one = new OneAgent()
    one.attached.resolve()
    const attach = async (refusal: string | null): Promise<void> => {
      one.refusal = refusal
      for (const _ of [1, 2, 3]) await one.agents.attachAll()
    }
    await attach('no answer')
    await attach('it was started again')
    expect(one.warnings).toEqual([
      'AttachFailed agent "only": no answer; it is tried again',
      'AttachFailed agent "only": it was started again; it is tried again',
    ])
    await attach(null)
    expect([one.links.size, one.warnings.length]).toEqual([1, 2])
  })

  it("an agent is noted again, with the driver's start, before the stream forgets it", async () => {
    const one = new OneAgent()
    one.attached.resolve()
    await one.agents.attachAll()
    expect(one.noted).toEqual([[1, 'only']])
    // The stream keeps its messages for 60 s.
    for (let seconds = 0; seconds < 60; seconds++) {
      await one.clock.advance(1000)
      one.agent.lastHeardMs = one.clock.monotonicMs()
      one.agents.tick(one.clock.monotonicMs())
    }
    expect(one.noted.length).toBeGreaterThanOrEqual(3)
    expect(new Set(one.noted.map((note) => note.join(' ')))).toEqual(new Set(['1 only']))
  })

  it('an agent that leaves while the session removes its stream causes no warning', async () => {
    const one = new OneAgent()
    one.attached.resolve()
    await one.agents.attachAll()
    one.agents.agentLost(one.agent, 'it left')
    one.agents.close()
    one.streamRead.reject(new Error('stream not found'))
    await one.clock.advance(5000)
    expect([one.warnings, one.left]).toEqual([[], ['only']])
  })

  it('an agent that is lost during its detachment causes no warning', async () => {
    const one = new OneAgent()
    one.attached.resolve()
    await one.agents.attachAll()
    one.streamRead.resolve()
    one.known = []
    const asked = Promise.withResolvers<void>()
    one.onDetach = () => asked.promise
    const detached = one.agents.detach('the job was canceled')
    one.agents.agentLost(one.agent, 'its process has ended')
    while (one.links.size > 0) await Promise.resolve()
    asked.reject(new Error('no answer'))
    expect(await detached).toBe(true)
    expect(one.warnings).toEqual([])
  })

  it('an agent whose results cannot be read when it is lost causes a warning', async () => {
    const one = new OneAgent()
    one.attached.resolve()
    await one.agents.attachAll()
    one.agents.agentLost(one.agent, 'its process is gone')
    one.streamRead.reject(new Error('no answer'))
    for (let step = 0; step < 10; step++) await one.clock.advance(1000)
    expect(one.warnings).toEqual([
      'StreamUnreadable results of agent "only" cannot be read: no answer',
    ])
  })
})
