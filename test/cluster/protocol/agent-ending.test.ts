import { expect, it } from 'vitest'
import { toEventNotice } from '../../../src/backends/backend.ts'
import { decode } from '../../../src/cluster/wire/codec.ts'
import type { ResultsMessage } from '../../../src/cluster/wire/messages.ts'
import { TaskProgress } from '../../../src/events/library-events.ts'
import { AgentUnderTest, endedIn, given } from './agent-under-test.ts'

/** An agent that ends a session with a running and a waiting job. */
function endingAgent(keepsResults: boolean): AgentUnderTest {
  const agent = new AgentUnderTest()
  agent.attach()
  const [running] = agent.run('running')
  agent.send(['waiting'])
  agent.takeSent()
  agent.tell({ kind: 'end', reason: 'the end', keepsResults })
  expect(agent.take('release')).toEqual([{ kind: 'release', reason: 'the end' }])
  agent.tell({ kind: 'report', job: given(running), report: { kind: 'cancel', reason: 'the end' } })
  agent.tell({ kind: 'released' })
  return agent
}

it('a session that nobody needs ends with its last job', () => {
  const agent = endingAgent(false)
  expect(agent.take('done')).toEqual([{ kind: 'done', undelivered: 0 }])
  agent.tell({ kind: 'tick' })
  expect(agent.takeSent().filter((sent) => endedIn(sent).length === 0)).toEqual([])
})

it('an abandoned session ends when the stream has its results', () => {
  const agent = endingAgent(true)
  expect(agent.take('done')).toEqual([])
  agent.send(['later'])
  agent.store()
  expect(agent.take('done')).toEqual([{ kind: 'done', undelivered: 0 }])
})

it('an abandoned session stores the events that no driver has acknowledged', () => {
  const agent = new AgentUnderTest()
  agent.attach()
  const [job] = agent.run('teller')
  agent.takeSent()
  const fields = { fraction: 0.5, text: null }
  agent.tell({ kind: 'notice', notice: toEventNotice(TaskProgress, fields, { taskId: 'teller' }) })
  agent.end(given(job))
  agent.store()
  agent.tell({ kind: 'end', reason: 'the end', keepsResults: true })
  agent.tell({ kind: 'released' })
  expect(agent.take('done')).toEqual([])
  agent.tick()
  expect(agent.take('append')).toEqual([])
  agent.pass(2600)
  agent.beat()
  agent.tick()
  const [events] = agent.take('append')
  const { reports } = decode(given(events).payload) as ResultsMessage
  expect(reports).toMatchObject([{ events: [{ taskId: 'teller' }] }])
  agent.tell({ kind: 'appended', number: 2, connection: 1 })
  expect(agent.take('done')).toHaveLength(1)
})

it('events that the driver acknowledges are not stored', () => {
  const agent = new AgentUnderTest()
  agent.attach()
  agent.send(['teller'])
  const fields = { fraction: 0.5, text: null }
  agent.tell({ kind: 'notice', notice: toEventNotice(TaskProgress, fields, {}) })
  agent.pass(0)
  agent.tell({ kind: 'end', reason: 'the end', keepsResults: true })
  agent.tell({ kind: 'released' })
  agent.store()
  agent.acknowledge(2)
  expect(agent.take('done')).toHaveLength(1)
})

it('an abandoned session waits for its stream as long as there may be one', () => {
  const agent = endingAgent(true)
  const [append] = agent.take('append')
  const { number, connection } = given(append)
  const error = new Error('no stream takes the message')
  agent.tell({ kind: 'append-refused', number, connection, error, isFull: false })
  agent.tick()
  expect(agent.take('open-stream')).toHaveLength(1)
  agent.tell({ kind: 'stream', isOurs: true, created: null })
  for (let ticks = 0; ticks < 200; ticks++) agent.tick()
  expect(agent.take('done')).toEqual([])
  agent.tell({ kind: 'stream', isOurs: false, created: null })
  expect(agent.take('done')).toEqual([{ kind: 'done', undelivered: 0 }])
})

it('a leaving agent waits for the stream for `ownerTtlSeconds` without progress', () => {
  const agent = endingAgent(true)
  agent.tell({ kind: 'limit-wait' })
  const [first] = agent.take('append')
  for (let ticks = 0; ticks < 100; ticks++) agent.tick()
  agent.tell({ kind: 'appended', number: given(first).number, connection: 1 })
  for (let ticks = 0; ticks < 119; ticks++) agent.tick()
  agent.tell({ kind: 'stream', isOurs: true, created: null })
  expect(agent.take('done')).toEqual([])
  agent.tick()
  agent.tell({ kind: 'stream', isOurs: true, created: null })
  expect(agent.take('done')).toEqual([{ kind: 'done', undelivered: 1 }])
})

it('a leaving agent without a connection waits for `ownerTtlSeconds`', () => {
  const agent = endingAgent(true)
  agent.tell({ kind: 'limit-wait' })
  agent.tell({ kind: 'link', isUp: false })
  for (let ticks = 0; ticks < 119; ticks++) agent.tick()
  expect(agent.take('done')).toEqual([])
  agent.tick()
  expect(agent.take('done')).toEqual([{ kind: 'done', undelivered: 2 }])
})

it('a session whose results are dropped ends at once', () => {
  const agent = endingAgent(true)
  agent.tell({ kind: 'drop' })
  expect(agent.take('done')).toHaveLength(1)
})
