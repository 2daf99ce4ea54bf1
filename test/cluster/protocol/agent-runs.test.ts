import { expect, it } from 'vitest'
import { AgentRuns } from '../../../src/cluster/protocol/agent/agent-runs.ts'
import type { Attach } from '../../../src/cluster/wire/messages.ts'
import { useOf } from '../test-token.ts'

const use = useOf('session')

const attachOf = (run: string, driverStart: number): Attach => ({
  kind: 'attach',
  ...use,
  run,
  driverStart,
  nonce: 1,
  link: 1,
  applied: { link: 0, number: 0 },
  use: 0,
  taken: 0,
  ownerTtlSeconds: 60,
  resultTtlSeconds: 60,
  agentTimeoutSeconds: 60,
  folder: '/',
})

const partOf = (run: string, isEnding = false) => ({ run, isEnding })
const detachOf = (run: string, driverStart: number) =>
  ({ kind: 'detach', ...use, run, driverStart, reason: 'the end' }) as const

it('a driver continues its run, and a later start of it as well', () => {
  const runs = new AgentRuns('first')
  expect(runs.describe(use)).toEqual({ run: null, latestStart: 0 })
  expect(runs.admit(attachOf('a', 5), undefined, false).kind).toBe('begin')
  expect(runs.admit(attachOf('a', 5), partOf('a'), false).kind).toBe('continue')
  expect(runs.admit(attachOf('a', 6), partOf('a'), true).kind).toBe('continue')
  expect(runs.describe(use)).toEqual({ run: 'a', latestStart: 6 })
})

it('an earlier start of a driver is refused, whether the session is closed or not', () => {
  const runs = new AgentRuns('first')
  runs.admit(attachOf('a', 6), undefined, false)
  const messageOf = (attach: Attach, part = true): unknown => {
    const admission = runs.admit(attach, part ? partOf('a') : undefined, false)
    return admission.kind === 'refuse' ? admission.answer : admission.kind
  }
  const refused = { kind: 'refused', code: 'SessionInUseError' }
  expect(messageOf(attachOf('a', 5))).toMatchObject({
    ...refused,
    message: 'a later start of session "session" uses agent "first"',
  })
  expect(messageOf(attachOf('b', 6))).toMatchObject(refused)
  expect(runs.detach(detachOf('a', 5), partOf('a'))).toBe('superseded')
  expect(runs.detach(detachOf('a', 7), partOf('a'))).toBe('ends')
  runs.close(use)
  expect(messageOf(attachOf('a', 6), false)).toMatchObject({
    ...refused,
    message: 'a later start of session "session" has closed it',
  })
  expect(messageOf(attachOf('a', 8), false)).toBe('begin')
})

it('a new run ends the part of the earlier one first', () => {
  const runs = new AgentRuns('first')
  runs.admit(attachOf('a', 5), undefined, false)
  expect(runs.admit(attachOf('b', 6), partOf('a'), false).kind).toBe('replace')
  expect(runs.admit(attachOf('b', 6), partOf('a', true), false).kind).toBe('drop')
  expect(runs.admit(attachOf('a', 6), partOf('a', true), false).kind).toBe('wait')
  runs.close(use)
  expect(runs.admit(attachOf('b', 6), undefined, false).kind).toBe('begin')
  expect(runs.detach(detachOf('a', 9), partOf('b'))).toBe('nothing')
})

it('a leaving agent takes no new session', () => {
  const admission = new AgentRuns('first').admit(attachOf('a', 5), undefined, true)
  expect(admission).toMatchObject({ kind: 'refuse', answer: { code: 'AgentDrainingError' } })
})

it('only so many sessions are remembered, and those that are open', () => {
  const runs = new AgentRuns('first')
  runs.admit(attachOf('a', 5), undefined, false)
  for (let count = 0; count < 1001; count++) {
    const other = { ...attachOf('b', 1), sessionId: `session-${count}` }
    runs.admit(other, undefined, false)
    runs.close(other)
  }
  expect(runs.describe(use).run).toBe('a')
  expect(runs.describe({ ...use, sessionId: 'session-0' }).run).toBeNull()
  expect(runs.describe({ ...use, sessionId: 'session-1000' }).run).toBe('b')
})
