import { describe, expect, it } from 'vitest'
import { toEventNotice } from '../../../src/backends/backend.ts'
import { decode } from '../../../src/cluster/wire/codec.ts'
import type { AgentReport, Message, ResultsMessage } from '../../../src/cluster/wire/messages.ts'
import { TaskProgress } from '../../../src/events/library-events.ts'
import { AgentUnderTest, endedIn, given, use } from './agent-under-test.ts'

function attachedAgent(): AgentUnderTest {
  const agent = new AgentUnderTest()
  agent.attach()
  return agent
}

const uidsOf = (jobs: readonly { readonly uid: string }[]): readonly string[] =>
  jobs.map(({ uid }) => uid)

const progressOf = (taskId: string) =>
  toEventNotice(TaskProgress, { fraction: 0.5, text: null }, { taskId })

const returnedBy = (agent: AgentUnderTest): readonly string[] =>
  agent.takeReports().flatMap(({ returned }) => uidsOf(returned))

describe('jobs of a session on an agent', () => {
  it('jobs begin in their order, on as many cores as they are given', () => {
    const agent = attachedAgent()
    agent.send(['a', 'b', 'c'])
    expect(agent.take('arrived')).toHaveLength(1)
    agent.tell({ kind: 'begin', maxCores: 2 })
    expect(agent.take('submit').flatMap(({ jobs }) => uidsOf(jobs))).toEqual(['a', 'b'])
    expect(agent.machine.held.submittedCores).toBe(2)
    expect(agent.machine.held.queued).toBe(1)
  })

  it('jobs do not begin while the driver is silent', () => {
    const agent = attachedAgent()
    agent.send(['a'])
    agent.pass(2001)
    agent.tell({ kind: 'begin', maxCores: 1 })
    expect(agent.take('submit')).toEqual([])
    agent.beat()
    agent.tell({ kind: 'begin', maxCores: 1 })
    expect(agent.take('submit')).toHaveLength(1)
  })

  it('jobs that cannot run here go back, with the reason', () => {
    const agent = attachedAgent()
    agent.isHelpful = false
    agent.send(['forbidden', 'bundled', 'broken'])
    const [forbidden, bundled, broken] = ['forbidden', 'bundled', 'broken'].map((uid) =>
      agent.held(uid),
    )
    const notAllowed = { message: 'no', hint: 'ask' }
    const why = { kind: 'not-allowed', notAllowed } as const
    agent.tell({ kind: 'unready', jobs: [given(forbidden)], why })
    const lost = { kind: 'lost-bundle', digest: 'd' } as const
    agent.tell({ kind: 'unready', jobs: [given(bundled)], why: lost })
    const failed = { kind: 'failed', error: new Error('no folder') } as const
    agent.tell({ kind: 'unready', jobs: [given(broken)], why: failed })
    agent.pass(0)
    const sent = agent.takeSent()
    const [report] = sent.map(({ payload }) => decode(payload) as AgentReport).slice(-1)
    expect(report?.returned).toMatchObject([{ uid: 'forbidden', notAllowed }, { uid: 'bundled' }])
    expect(report?.lostBundles).toEqual(['d'])
    expect(sent.flatMap(endedIn)).toEqual(['broken'])
    expect(agent.machine.held.size).toBe(0)
  })

  it('jobs whose specs are stored begin when these are loaded', () => {
    const agent = attachedAgent()
    const others = [
      { index: 0, uid: 'large', attempt: 1, spec: null, specObject: 'object', after: 0 },
      { index: 1, uid: 'lost', attempt: 1, spec: null, specObject: 'gone', after: 0 },
      { index: 2, uid: 'canceled', attempt: 1, spec: null, specObject: 'other', after: 0 },
    ]
    const functions = { indexes: [], uids: '', attempts: null, definitions: null }
    const columns = { ...functions, args: null, options: null }
    agent.receive({ kind: 'jobs', definitions: [], functions: columns, others })
    const [large, lost, canceled] = agent.take('load-spec').map(({ request }) => request)
    expect(agent.attach({ driverStart: 10 }).held.map(({ uid }) => uid)).toEqual([
      'large',
      'lost',
      'canceled',
    ])
    agent.receive({ kind: 'cancel', jobs: [['canceled', 1]], reason: 'no need' })
    agent.run('model')
    const { spec } = agent.held('model')
    agent.tell({ kind: 'spec', request: given(large), spec })
    agent.tell({ kind: 'spec', request: given(lost), spec: null })
    agent.tell({ kind: 'spec', request: given(canceled), spec })
    expect(agent.held('large').isQueued).toBe(true)
    agent.pass(0)
    const sent = agent.takeSent()
    expect(sent.flatMap(endedIn)).toEqual(['canceled'])
    const reports = sent.map(({ payload }) => decode(payload) as Partial<AgentReport>)
    expect(reports.flatMap(({ returned = [] }) => uidsOf(returned))).toEqual(['lost'])
  })

  it('jobs are canceled wherever they are', () => {
    const agent = attachedAgent()
    const [running] = agent.run('running')
    agent.send(['waiting'])
    agent.receive({
      kind: 'cancel',
      jobs: [
        ['running', 1],
        ['waiting', 1],
      ],
      reason: 'enough',
    })
    expect(agent.take('cancel')).toEqual([{ kind: 'cancel', job: running, reason: 'enough' }])
    expect(agent.machine.held.get('waiting')).toBeUndefined()
    // Another attempt is meant.
    agent.receive({
      kind: 'cancel',
      jobs: [
        ['running', 2],
        ['running', 1, 9],
      ],
      reason: 'other',
    })
    expect(agent.take('cancel')).toEqual([])
  })

  it('jobs go back if the driver recalls them before they begin', () => {
    const agent = attachedAgent()
    agent.isHelpful = false
    agent.send(['a', 'b'])
    const jobs = ['a', 'b'].map((uid) => agent.held(uid))
    agent.tell({ kind: 'ready', jobs, specs: jobs.map(({ spec }) => spec) })
    agent.tell({ kind: 'begin', maxCores: 2 })
    agent.start('a')
    agent.receive({
      kind: 'recall',
      jobs: [
        ['a', 1],
        ['b', 1],
      ],
    })
    agent.tell({ kind: 'withdrawn', jobs: [agent.held('b')] })
    agent.pass(0)
    expect(returnedBy(agent)).toEqual(['b'])
    expect(agent.machine.held.submittedCores).toBe(1)
  })

  it('jobs give way to a later attempt, and keep their cores until they have ended', () => {
    const agent = attachedAgent()
    const [older] = agent.run('a')
    agent.send(['a'], 2)
    expect(agent.take('cancel')).toMatchObject([{ job: older }])
    expect(agent.held('a').attempt).toBe(2)
    expect(agent.machine.held.submittedCores).toBe(1)
    agent.takeSent()
    agent.end(given(older))
    agent.pass(100)
    expect(agent.machine.held.submittedCores).toBe(0)
    expect(agent.takeSent().flatMap(endedIn)).toEqual([])
  })

  it('jobs beyond the offer go back when another agent is idle', () => {
    const agent = attachedAgent()
    const uids = Array.from({ length: 20 }, (_, at) => `task-${at}`)
    agent.send(uids)
    agent.beat({ hasIdle: true })
    agent.tick()
    agent.pass(0)
    expect(returnedBy(agent)).toEqual(uids.slice(12))
  })

  it('jobs of a draining agent go back, those that arrive later too', () => {
    const agent = attachedAgent()
    const [running] = agent.run('running')
    agent.send(['waiting'])
    agent.tell({ kind: 'drain' })
    agent.send(['later'])
    agent.pass(0)
    expect(returnedBy(agent)).toEqual(['waiting', 'later'])
    agent.end(given(running))
    expect(agent.takeSent().flatMap(endedIn)).toEqual(['running'])
  })
})

describe('a driver that attaches', () => {
  it('a driver that attaches again is told what the agent holds', () => {
    const agent = attachedAgent()
    agent.run('running')
    agent.send(['waiting'])
    const { held, resent, start, use: ofAgent } = agent.attach()
    expect(held).toEqual([
      { uid: 'running', attempt: 1, driverStart: 10, beganMs: 1000, workerId: 'first/1' },
      { uid: 'waiting', attempt: 1, driverStart: 10, beganMs: null, workerId: null },
    ])
    expect([resent, start, ofAgent]).toEqual([0, 5, use])
  })

  it('a driver that attaches after a restart finds only what has begun', () => {
    const agent = attachedAgent()
    agent.isHelpful = false
    agent.send(['running', 'withdrawn', 'waiting'])
    const jobs = ['running', 'withdrawn', 'waiting'].map((uid) => agent.held(uid))
    agent.tell({ kind: 'ready', jobs, specs: jobs.map(({ spec }) => spec) })
    agent.tell({ kind: 'begin', maxCores: 2 })
    const running = agent.start('running')
    const attach = { driverStart: 11, link: 2 }
    expect(() => agent.attach(attach)).toThrow('has not answered')
    agent.tell({ kind: 'withdrawn', jobs: [agent.held('withdrawn')] })
    const [answered] = agent.take('answer')
    expect(answered?.answer).toMatchObject({ held: [{ uid: 'running', driverStart: 10 }] })
    expect(agent.machine.held.size).toBe(1)
    // What the earlier start sent, it does not count.
    agent.takeSent()
    agent.end(running)
    const [sent] = agent.takeSent()
    expect(decode(given(sent).payload)).toMatchObject({
      driverStart: 11,
      ends: [{ uid: 'running', driverStart: 10 }],
    })
  })

  it('a driver that attaches gets again what it has not applied, in the old order', () => {
    const agent = attachedAgent()
    agent.run('a', 'b')
    agent.takeSent()
    agent.tell({ kind: 'notice', notice: progressOf('a') })
    agent.end(agent.held('a'))
    agent.tell({ kind: 'notice', notice: progressOf('b') })
    agent.end(agent.held('b'))
    const [first, second, third, fourth] = agent.takeSent().map(({ header }) => header.number)
    expect([first, second, third, fourth]).toEqual([1, 2, 3, 4])
    const again = (attached: Message<'attached'>): readonly string[] => {
      const sent = agent.takeSent()
      expect(sent.map(({ header }) => header.number)).toEqual(sent.map((_, at) => at + 1))
      expect(attached.resent).toBe(sent.length)
      return sent.map(({ payload }) => (decode(payload) as { readonly kind: string }).kind)
    }
    const applied = { link: 1, number: 0 }
    expect(again(agent.attach({ applied }))).toEqual(['report', 'ends', 'report', 'ends'])
    expect(again(agent.attach({ applied: { link: 2, number: 2 }, use, taken: 1 }))).toEqual([
      'report',
      'ends',
    ])
    expect(again(agent.attach({ applied: { link: 3, number: 1 }, use, taken: 2 }))).toEqual([])
    // Another start of the driver has nothing.
    expect(again(agent.attach({ driverStart: 11, use, taken: 2 }))).toEqual(['ends', 'ends'])
  })

  it('a driver that attaches after a restart gets unacknowledged events with starts', () => {
    const agent = attachedAgent()
    agent.run('a', 'b')
    for (const uid of ['a', 'b']) {
      agent.tell({ kind: 'notice', notice: progressOf(uid) })
      agent.pass(0)
    }
    agent.acknowledge(1)
    agent.takeSent()
    agent.attach({ driverStart: 11 })
    const [report, ...others] = agent.takeReports()
    expect(others).toEqual([])
    expect(report?.events).toMatchObject([{ taskId: 'b' }])
    expect(report?.starts.every(({ driverStart }) => driverStart === 10)).toBe(true)
  })

  it('a driver that attaches is answered before it gets messages of its link', () => {
    const agent = attachedAgent()
    agent.runToEnd('a')
    agent.kinds.length = 0
    agent.attach()
    expect(agent.kinds.slice(0, 2)).toEqual(['answer', 'send'])
  })
})

describe('the link of an agent', () => {
  it('the link of an agent ignores duplicates, and asks for a new link after a gap', () => {
    const agent = attachedAgent()
    agent.send(['a'])
    const header = { scope: 1, number: 1, acknowledged: 0 }
    const cancel = { kind: 'cancel', jobs: [['a', 1]], reason: 'a copy' } as const
    agent.tell({ kind: 'message', header, message: cancel })
    expect(agent.held('a').isQueued).toBe(true)
    agent.takeSent()
    agent.receive(cancel, { skipped: 1 })
    expect(agent.held('a').isQueued).toBe(true)
    const [asked] = agent.takeSent()
    expect(decode(given(asked).payload)).toMatchObject({ kind: 'idle', isBroken: true })
    agent.attach()
    agent.receive(cancel)
    expect(agent.machine.held.size).toBe(0)
  })

  it('the link of an agent counts malformed messages, and goes on', () => {
    const agent = attachedAgent()
    const header = { scope: 1, number: 1, acknowledged: 0 }
    agent.tell({ kind: 'message', header, message: null })
    agent.tell({ kind: 'message', header: { ...header, number: 2 }, message: cancelOf('a') })
    expect(agent.machine.driver.link.isBroken).toBe(false)
    expect(agent.machine.driver.link.received).toBe(2)
  })

  it('the link of an agent ignores messages of other links and other starts', () => {
    const agent = attachedAgent()
    agent.send(['a'])
    const header = { scope: 8, number: 2, acknowledged: 0 }
    agent.tell({ kind: 'message', header, message: cancelOf('a') })
    expect(agent.machine.held.size).toBe(1)
    const beat = { hasWaiting: true, hasIdle: false, agents: 9, needsRoom: false }
    const ofEarlier = { scope: 9, number: 1, acknowledged: 0 }
    agent.tell({ kind: 'beat', header: ofEarlier, beat: { kind: 'beat', ...beat } })
    expect(agent.machine.agents).toBe(1)
  })

  it('the link of an agent is broken after a reconnect', () => {
    const agent = attachedAgent()
    agent.takeSent()
    agent.tell({ kind: 'link', isUp: false })
    agent.tick()
    expect(agent.takeSent()).toEqual([])
    agent.tell({ kind: 'link', isUp: true })
    expect(agent.takeSent().map(({ payload }) => decode(payload))).toMatchObject([
      { kind: 'idle', isBroken: true },
    ])
  })

  it('the link of an agent refuses copied heartbeats, but not those of a new driver', () => {
    const agent = attachedAgent()
    agent.beat()
    const beat = { hasWaiting: true, hasIdle: false, agents: 9, needsRoom: false }
    const header = { scope: 10, number: 1, acknowledged: 0 }
    agent.tell({ kind: 'beat', header, beat: { kind: 'beat', ...beat } })
    agent.tell({ kind: 'unreadable-beat', reason: 'its signature is wrong' })
    expect(agent.take('refused-message').map(({ reason }) => reason)).toEqual([
      'it was sent before',
      'its signature is wrong',
    ])
    agent.pass(2001)
    agent.tell({ kind: 'unreadable-beat', reason: 'its signature is wrong' })
    expect(agent.take('refused-message')).toEqual([])
  })

  it('the link of an agent gives up a driver that was silent for too long', () => {
    const agent = attachedAgent()
    agent.pass(59_400)
    agent.tell({ kind: 'tick' })
    expect(agent.take('give-up')).toEqual([])
    agent.tick()
    agent.tick()
    expect(agent.take('give-up')).toHaveLength(1)
  })
})

const cancelOf = (uid: string) => ({ kind: 'cancel', jobs: [[uid, 1]], reason: 'no' }) as const

describe('reports of an agent', () => {
  it('reports name the starts of tasks that run for a while, and no others', () => {
    const agent = attachedAgent()
    agent.run('long', 'short')
    agent.end(agent.held('short'))
    agent.takeSent()
    agent.pass(60)
    expect(agent.takeReports().flatMap(({ starts }) => uidsOf(starts))).toEqual(['long'])
  })

  it('reports with events of a task come before its result', () => {
    const agent = attachedAgent()
    const [job] = agent.run('teller')
    agent.takeSent()
    agent.tell({ kind: 'notice', notice: progressOf('teller') })
    agent.end(given(job))
    const [report, ends] = agent.takeSent().map(({ payload }) => decode(payload))
    expect((report as AgentReport).starts).toMatchObject([{ uid: 'teller' }])
    expect((report as AgentReport).events).toMatchObject([{ taskId: 'teller' }])
    expect((ends as ResultsMessage).completions.uids).toBe('teller')
  })
})
