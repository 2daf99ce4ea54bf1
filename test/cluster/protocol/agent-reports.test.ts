import { expect, it } from 'vitest'
import { toEventNotice } from '../../../src/backends/backend.ts'
import { AgentReports } from '../../../src/cluster/protocol/agent/agent-reports.ts'
import { HeldAttempt } from '../../../src/cluster/protocol/agent/held-attempts.ts'
import { decode } from '../../../src/cluster/wire/codec.ts'
import type { AgentReport } from '../../../src/cluster/wire/messages.ts'
import { TaskProgress } from '../../../src/events/library-events.ts'
import { jobOf } from '../../backends/local/fake-executor.ts'

function startReports() {
  const sent: Buffer[] = []
  const dropped: string[] = []
  const kept = { bytes: 0 }
  const reports = new AgentReports({
    limitBytes: () => 2000,
    header: () => ({ offer: { cores: 1, gpus: 0, memoryMb: 1, ahead: 1 }, needsRoom: false }),
    driverStart: () => 1,
    unacknowledgedBytes: () => kept.bytes,
    send: (payload) => void sent.push(payload),
    onDropped: (why) => void dropped.push(why),
  })
  const told = (): AgentReport[] => sent.map((payload) => decode(payload) as AgentReport)
  return { reports, sent, told, dropped, kept }
}

const heldOf = (uid: string, index: number, beganMs: number): HeldAttempt => {
  const held = new HeldAttempt('session', 1, { index, uid, attempt: 1 }, jobOf(uid).spec, index)
  return Object.assign(held, { isHeld: true, beganMs, workerId: 'node/worker' })
}

it.each(['handed back', 'started'])(
  'jobs that were %s come in as many messages as they need, each once',
  (how) => {
    const { reports, sent, told } = startReports()
    const uids = Array.from({ length: 500 }, (_, at) => `a task with a long name ${at}`)
    for (const [index, uid] of uids.entries()) {
      const job = { index, uid, attempt: 1, driverStart: 1 }
      if (how === 'handed back') reports.addReturned(job, 0)
      else reports.addStart(heldOf(uid, index, 1), 0)
    }
    reports.addLostBundle('digest', 0)
    reports.send(0)
    expect(sent.every(({ length }) => length <= 2000)).toBe(true)
    const named = told().flatMap(({ returned, starts }) => [...returned, ...starts])
    expect(named.map(({ uid }) => uid)).toEqual(uids)
    expect(told().flatMap(({ lostBundles }) => lostBundles)).toEqual(['digest'])
  },
)

it('events of a task come after its start and in their order, however late a clock is read', () => {
  const { reports, told } = startReports()
  const held = heldOf('teller', 0, -100)
  const tell = (agoSeconds: number, lateSeconds: number): void => {
    const fields = { fraction: 1, text: null, event_time: -agoSeconds }
    const notice = toEventNotice(TaskProgress, fields, { taskId: 'teller' })
    reports.addEvent(notice, held, { monotonicMs: 0, wallSeconds: lateSeconds })
  }
  tell(0.09, 5)
  tell(0.08, 0)
  tell(0.07, 1)
  reports.send(0)
  const times = told().flatMap(({ events }) => events.map(({ atMs }) => Math.round(atMs)))
  expect(times).toEqual([-100, -80, -80])
})

it('events that are too large, or too many for the driver, are dropped with one warning', () => {
  const { reports, told, dropped, kept } = startReports()
  const tell = (text: string): void => {
    const notice = toEventNotice(TaskProgress, { fraction: 1, text }, { taskId: 'teller' })
    reports.addEvent(notice, undefined, { monotonicMs: 0, wallSeconds: 0 })
  }
  tell('x'.repeat(3000))
  tell('short')
  reports.send(0)
  kept.bytes = 65 * 1024 * 1024
  tell('more')
  reports.send(0)
  expect(told().flatMap(({ events }) => events)).toMatchObject([{ fields: { text: 'short' } }])
  expect(dropped).toEqual(['tutti.TaskProgress: it is too large for a message'])
})
