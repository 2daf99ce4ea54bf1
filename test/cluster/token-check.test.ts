import { randomBytes } from 'node:crypto'
import { describe, expect, it } from 'vitest'
import { TokenCheck } from '../../src/cluster/io/agent/presence/start-checks.ts'
import { deriveKeys, emptyHeader, seal } from '../../src/cluster/wire/envelope.ts'
import { announcementSubject } from '../../src/cluster/wire/subjects.ts'
import { ManualClock } from '../../src/testing/manual-clock.ts'
import { MemoryBroker } from './memory-broker.ts'

/** An agent that has started just now. */
function start() {
  const clock = new ManualClock()
  const broker = new MemoryBroker()
  const mismatches: (string | undefined)[] = []
  const refused: string[] = []
  const check = new TokenCheck({
    broker,
    clock,
    keys: deriveKeys('its token', null),
    name: 'new',
    start: 4,
    onRefused: (reason) => void refused.push(reason),
    onMismatch: ({ code }) => void mismatches.push(code),
  })
  const sealed = (token: string, number: number, scope: number, name: string): Buffer => {
    const payload = { kind: 'announcement', name }
    const { toDriver } = deriveKeys(token, null)
    return seal(toDriver, announcementSubject, { ...emptyHeader, scope, number }, payload)
  }
  const announce = (token: string, number: number): void =>
    broker.publish(announcementSubject, sealed(token, number, 5, 'other'))
  const send = (data: Uint8Array): void => broker.publish(announcementSubject, data)
  return { check, clock, mismatches, refused, announce, send, sealed }
}

describe('the token of an agent that has started', () => {
  it("an agent's token is not wrong because somebody sends bytes, which are refused", async () => {
    const { check, clock, mismatches, refused, send } = start()
    for (let seconds = 0; seconds < 20; seconds++) {
      send(randomBytes(100))
      send(randomBytes(10))
      await clock.advance(1000)
    }
    expect(mismatches).toEqual([])
    // The announcements during the time in which it listens.
    expect(refused.length).toBeGreaterThanOrEqual(10)
    check.close()
  })

  it("an agent's token is not wrong if its altered announcements come back", async () => {
    const { check, clock, mismatches, refused, send, sealed } = start()
    for (let number = 1; number < 20; number++) {
      const own = sealed('its token', number, 4, 'new')
      send(own)
      own[own.length - 1] = (own.at(-1) ?? 0) ^ 1
      send(own)
      await clock.advance(1000)
    }
    expect(mismatches).toEqual([])
    expect(refused.length).toBeGreaterThanOrEqual(5)
    check.close()
  })

  it("an agent's token is wrong if another agent repeatedly announces another token", async () => {
    const { clock, mismatches, announce } = start()
    announce('another token', 1)
    await clock.advance(4000)
    announce('another token', 3)
    expect(mismatches).toEqual([])
    await clock.advance(1000)
    expect(mismatches).toEqual(['TokenMismatchError'])
  })

  it("an agent's token is wrong when another agent's second announcement comes late", async () => {
    const { clock, mismatches, announce } = start()
    announce('another token', 1)
    await clock.advance(6000)
    announce('another token', 1)
    expect(mismatches).toEqual([])
    announce('another token', 2)
    expect(mismatches).toEqual(['TokenMismatchError'])
  })

  it("an agent's token is right when another agent has it", async () => {
    const { clock, mismatches, announce } = start()
    announce('another token', 1)
    announce('another token', 2)
    announce('its token', 1)
    await clock.advance(20_000)
    expect(mismatches).toEqual([])
  })
})
