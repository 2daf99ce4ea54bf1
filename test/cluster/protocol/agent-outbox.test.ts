import { describe, expect, it } from 'vitest'
import { decode } from '../../../src/cluster/wire/codec.ts'
import type { ResultsMessage } from '../../../src/cluster/wire/messages.ts'
import { AgentUnderTest, endedIn, given, use } from './agent-under-test.ts'

function attachedAgent(): AgentUnderTest {
  const agent = new AgentUnderTest()
  agent.attach()
  return agent
}

/** Runs tasks, of which one ends every so many milliseconds. Returns the sizes of messages. */
function runSteadily(agent: AgentUnderTest, count: number, everyMs: number): readonly number[] {
  const jobs = agent.run(...Array.from({ length: count }, (_, at) => `task-${at}`))
  agent.takeSent()
  const sizes: number[] = []
  for (const job of jobs) {
    agent.pass(everyMs)
    agent.end(job)
    sizes.push(...agent.takeSent().map((sent) => endedIn(sent).length))
  }
  return sizes.filter((size) => size > 0)
}

describe('results on their way to the driver', () => {
  it('results are sent immediately with the last job', () => {
    const agent = attachedAgent()
    const jobs = agent.run('a', 'b', 'c')
    for (const job of jobs) agent.end(job)
    expect(agent.takeSent().flatMap(endedIn)).toEqual(['a', 'b', 'c'])
  })

  it('results share messages while other jobs wait at the agent', () => {
    const sizes = runSteadily(attachedAgent(), 200, 2)
    expect(sizes[0]).toBe(1)
    expect(Math.max(...sizes)).toBeGreaterThan(5)
    expect(sizes.reduce((sum, size) => sum + size, 0)).toBe(200)
  })

  it('results of one among many agents share larger messages', () => {
    const one = attachedAgent()
    const many = attachedAgent()
    many.beat({ agents: 64 })
    const [few, large] = [runSteadily(one, 300, 1), runSteadily(many, 300, 1)]
    expect(large.length).toBeLessThan(few.length)
  })

  it('results go to the driver and to the stream in one message', () => {
    const agent = attachedAgent()
    agent.runToEnd('a', 5)
    const [sent] = agent.takeSent()
    expect(sent).toMatchObject({ kind: 'append', number: 1, header: { scope: 1, number: 1 } })
    const message = decode(given(sent).payload) as ResultsMessage
    expect(message).toMatchObject({ agent: 'first', use, number: 1, driverStart: 10, ahead: 2 })
  })

  it('results are kept until they are recorded and stored', () => {
    const agent = attachedAgent()
    agent.runToEnd('a')
    const resent = (): number => agent.attach({ driverStart: agent.driverStart + 1 }).resent
    expect(resent()).toBe(1)
    agent.receive({ kind: 'recorded', through: 1, taken: 1 })
    expect([resent(), agent.machine.isRecorded(1)]).toEqual([1, false])
    agent.store()
    expect([resent(), agent.machine.isRecorded(1)]).toEqual([0, true])
  })

  it('results whose lines the record has lost stay in the stream', () => {
    const agent = attachedAgent()
    agent.runToEnd('a')
    agent.runToEnd('b')
    agent.store()
    agent.receive({ kind: 'recorded', through: 2, taken: 2, lost: [1] })
    expect([1, 2].map((number) => agent.machine.isRecorded(number))).toEqual([false, true])
  })

  it('results that the broker refuses are stored later, and nothing new begins', () => {
    const agent = attachedAgent()
    agent.runToEnd('a')
    const error = new Error('no responders')
    agent.take('append')
    agent.tell({ kind: 'append-refused', number: 1, connection: 1, error, isFull: false })
    expect(agent.take('throttled')).toEqual([{ kind: 'throttled', error }])
    agent.send(['b'])
    agent.tell({ kind: 'begin', maxCores: 1 })
    expect(agent.take('submit').slice(1)).toEqual([])
    agent.beat()
    agent.tick()
    expect(agent.take('open-stream')).toHaveLength(1)
    agent.tell({ kind: 'stream', isOurs: false, created: 'later' })
    expect(agent.take('append')).toEqual([])
    agent.tick()
    agent.tell({ kind: 'stream', isOurs: true, created: 'later' })
    // This copy is for the stream alone.
    expect(agent.take('append')).toMatchObject([{ number: 1, header: { number: 0 } }])
    agent.tell({ kind: 'appended', number: 1, connection: 1 })
    agent.beat()
    agent.tell({ kind: 'begin', maxCores: 1 })
    expect(agent.take('submit')).toHaveLength(1)
  })

  it('results wait for a look at the stream while the driver is silent', () => {
    const agent = attachedAgent()
    const [job] = agent.run('a')
    agent.takeSent()
    agent.pass(2001)
    agent.end(given(job))
    // The driver may be there, so it gets the result.
    const sent = agent.takeSent().filter((one) => endedIn(one).length > 0)
    expect(sent.map(({ kind }) => kind)).toEqual(['send'])
    expect(agent.take('open-stream')).toHaveLength(1)
    agent.tell({ kind: 'stream', isOurs: true, created: 'first' })
    expect(agent.store()).toEqual([1])
  })

  it('results are all stored again after a reconnect and in a new stream', () => {
    const agent = attachedAgent()
    for (const uid of ['a', 'b']) agent.runToEnd(uid)
    expect(agent.store()).toEqual([1, 2])
    agent.tell({ kind: 'link', isUp: false })
    agent.tell({ kind: 'link', isUp: true })
    expect(agent.take('open-stream')).toHaveLength(1)
    agent.tell({ kind: 'stream', isOurs: true, created: 'first' })
    const again = agent.take('append')
    expect(again.map(({ number }) => number)).toEqual([1, 2])
    // An answer over the earlier connection does not count.
    agent.tell({ kind: 'appended', number: 1, connection: 1 })
    agent.tell({ kind: 'appended', number: 2, connection: 2 })
    const error = new Error('no responders')
    agent.tell({ kind: 'append-refused', number: 1, connection: 2, error, isFull: false })
    agent.tick()
    agent.tell({ kind: 'stream', isOurs: true, created: 'second' })
    expect(agent.store()).toEqual([1, 2])
  })

  it('results make room for themselves in a full store, or say that they need some', () => {
    const agent = attachedAgent()
    agent.runToEnd('a')
    const refuse = (): void => {
      agent.take('append')
      const error = new Error('insufficient resources')
      agent.tell({ kind: 'append-refused', number: 1, connection: 1, error, isFull: true })
    }
    refuse()
    expect(agent.take('make-room')).toHaveLength(1)
    agent.tell({ kind: 'room', isMade: true })
    expect(agent.take('throttled')).toEqual([])
    refuse()
    agent.tell({ kind: 'room', isMade: false })
    expect(agent.take('throttled')).toHaveLength(1)
    agent.takeSent()
    agent.tick()
    expect(agent.takeReports()[0]).toMatchObject({ needsRoom: true })
    agent.take('make-room')
    // Another agent needs room.
    agent.beat({ needsRoom: true })
    expect(agent.take('make-room')).toHaveLength(1)
  })
})

describe('large results', () => {
  it('large results are sent when their value is stored, and are held until then', () => {
    const agent = attachedAgent()
    agent.limitBytes = 2000
    agent.runToEnd('large', 'x'.repeat(3000))
    expect(agent.takeSent().flatMap(endedIn)).toEqual([])
    const [put] = agent.take('put')
    expect(put?.object).toMatchObject({ prefix: 'large/1/result' })
    expect(agent.attach().held).toMatchObject([{ uid: 'large', beganMs: 1000 }])
    agent.tell({ kind: 'put', id: given(put).id, name: 'object' })
    const [sent] = agent.takeSent()
    const { ends } = decode(given(sent).payload) as ResultsMessage
    expect(ends).toMatchObject([
      { uid: 'large', driverStart: 10, outcome: { kind: 'stored', object: 'object' } },
    ])
    agent.receive({ kind: 'restore', number: 1 })
    const [again] = agent.take('put')
    expect(again?.object).toEqual(put?.object)
    agent.tell({ kind: 'put', id: given(again).id, name: 'object' })
    expect(agent.takeSent()).toEqual([])
  })

  it('large results fail if they never fit into the store', () => {
    const agent = attachedAgent()
    agent.limitBytes = 2000
    agent.runToEnd('large', 'x'.repeat(3000))
    const [put] = agent.take('put')
    agent.tell({ kind: 'unputable', id: given(put).id, error: new Error('too small') })
    const [sent] = agent.takeSent()
    const { ends } = decode(given(sent).payload) as ResultsMessage
    expect(ends).toMatchObject([{ outcome: { kind: 'fail', error: { message: 'too small' } } }])
  })

  it('large results are canceled while they are stored', () => {
    const agent = attachedAgent()
    agent.limitBytes = 2000
    agent.runToEnd('large', 'x'.repeat(3000))
    const [put] = agent.take('put')
    agent.receive({ kind: 'cancel', jobs: [['large', 1]], reason: 'enough' })
    expect(agent.take('cancel-put')).toEqual([{ kind: 'cancel-put', id: given(put).id }])
    expect(agent.takeSent().flatMap(endedIn)).toEqual(['large'])
    // It was stored in the meantime.
    agent.tell({ kind: 'put', id: given(put).id, name: 'object' })
    expect(agent.take('delete')).toEqual([{ kind: 'delete', name: 'object' }])
    expect(agent.takeSent()).toEqual([])
  })

  it('large results of failed programs are stored with their output and error', () => {
    const agent = attachedAgent()
    agent.limitBytes = 2000
    const [job] = agent.run('failed')
    const facts = { stdout: 'x'.repeat(3000), stderr: '' }
    const error = new Error('y'.repeat(3000))
    agent.tell({ kind: 'report', job: given(job), report: { kind: 'fail', error, facts } })
    const [put] = agent.take('put')
    const stored = decode(given(put).object.data)
    expect(stored).toMatchObject({ facts, outcome: { error: { message: error.message } } })
    agent.tell({ kind: 'put', id: given(put).id, name: 'object' })
    const [sent] = agent.takeSent()
    const { ends } = decode(given(sent).payload) as ResultsMessage
    expect(ends).toMatchObject([{ facts: null, outcome: { kind: 'stored', of: 'fail' } }])
  })
})
