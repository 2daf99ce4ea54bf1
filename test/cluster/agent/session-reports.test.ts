import { expect, it } from 'vitest'
import { toEventNotice } from '../../../src/backends/backend.ts'
import { HeldAttempt } from '../../../src/cluster/agent/held-attempt.ts'
import { SessionReports } from '../../../src/cluster/agent/session-reports.ts'
import { decode } from '../../../src/cluster/wire/codec.ts'
import type { AgentReport } from '../../../src/cluster/wire/messages.ts'
import { TaskProgress } from '../../../src/events/library-events.ts'
import { ManualClock } from '../../../src/testing/manual-clock.ts'
import { jobOf } from '../../backends/local/fake-executor.ts'

it.each(['handed back', 'started'])(
  'jobs that were %s come in as many messages as they need, each once',
  (how) => {
    const sent: Buffer[] = []
    const reports = new SessionReports({
      clock: new ManualClock(),
      header: () => ({
        offer: { cores: 1, gpus: 0, memoryMb: 1, ahead: 1 },
        endMessages: 0,
        needsRoom: false,
      }),
      limitBytes: () => 2000,
      link: () => ({ send: (payload) => void sent.push(payload), unconfirmedBytes: 0 }),
      onDropped: (type) => expect.unreachable(type),
    })
    const uids = Array.from({ length: 500 }, (_, at) => `a task with a long name ${at}`)
    for (const [index, uid] of uids.entries()) {
      const job = { index, uid, attempt: 1 }
      if (how === 'handed back') reports.addReturned(job)
      else {
        const held = new HeldAttempt('session', job, jobOf(uid).spec, index)
        reports.addStart(Object.assign(held, { isHeld: true, beganMs: 1, workerId: 'node/worker' }))
      }
    }
    reports.addLostBundle('digest')
    reports.send()
    expect(sent.every(({ length }) => length <= 2000)).toBe(true)
    const told = sent.map((payload) => decode(payload) as AgentReport)
    const named = told.flatMap(({ returned, starts }) => [...returned, ...starts])
    expect(named.map(({ uid }) => uid)).toEqual(uids)
    expect(told.flatMap(({ lostBundles }) => lostBundles)).toEqual(['digest'])
  },
)

it('the start of a task that has ended since is told with its events', () => {
  const sent: Buffer[] = []
  const reports = new SessionReports({
    clock: new ManualClock(),
    header: () => ({
      offer: { cores: 1, gpus: 0, memoryMb: 1, ahead: 1 },
      endMessages: 0,
      needsRoom: false,
    }),
    limitBytes: () => 2000,
    link: () => ({ send: (payload) => void sent.push(payload), unconfirmedBytes: 0 }),
    onDropped: (type) => expect.unreachable(type),
  })
  const startOf = (uid: string, index: number): HeldAttempt => {
    const held = new HeldAttempt('session', { index, uid, attempt: 1 }, jobOf(uid).spec, index)
    return Object.assign(held, { isHeld: true, beganMs: 1, workerId: 'node/worker' })
  }
  const [teller, other] = [startOf('teller', 0), startOf('other', 1)]
  reports.addStart(teller)
  reports.addStart(other)
  reports.addEvent(toEventNotice(TaskProgress, { fraction: 1, text: null }, { taskId: 'teller' }))
  for (const held of [teller, other]) held.isHeld = false
  reports.sendEvents()
  const [told] = sent.map((payload) => decode(payload) as AgentReport)
  expect(told?.starts.map(({ uid }) => uid)).toEqual(['teller'])
  expect(told?.events.map(({ taskId }) => taskId)).toEqual(['teller'])
})

/** Another process runs for a while before each reading of the wall clock. */
class LateClock extends ManualClock {
  lateSeconds = 0

  override now(): number {
    return super.now() + this.lateSeconds
  }
}

it('events of a task come after its start and in their order, however late a clock is read', () => {
  const sent: Buffer[] = []
  const clock = new LateClock()
  const reports = new SessionReports({
    clock,
    header: () => ({
      offer: { cores: 1, gpus: 0, memoryMb: 1, ahead: 1 },
      endMessages: 0,
      needsRoom: false,
    }),
    limitBytes: () => 2000,
    link: () => ({ send: (payload) => void sent.push(payload), unconfirmedBytes: 0 }),
    onDropped: (type) => expect.unreachable(type),
  })
  const job = { index: 0, uid: 'teller', attempt: 1 }
  const held = new HeldAttempt('session', job, jobOf('teller').spec, 0)
  Object.assign(held, { isHeld: true, beganMs: -100, workerId: 'node/worker' })
  const tell = (agoSeconds: number, late: number): void => {
    clock.lateSeconds = 0
    const fields = { fraction: 1, text: null, event_time: clock.now() - agoSeconds }
    clock.lateSeconds = late
    reports.addEvent(toEventNotice(TaskProgress, fields, { taskId: 'teller' }), held)
  }
  tell(0.09, 5)
  tell(0.08, 0)
  tell(0.07, 1)
  reports.send()
  const told = sent.flatMap((payload) => (decode(payload) as AgentReport).events)
  expect(told.map(({ atMs }) => Math.round(atMs))).toEqual([-100, -80, -80])
})
