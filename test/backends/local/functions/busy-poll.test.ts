import { describe, expect, it } from 'vitest'
import { BusyPoll } from '../../../../src/backends/local/functions/thread-link.ts'
import { bankSize, Mailbox } from '../../../../src/backends/local/functions/mailbox.ts'
import { ManualClock } from '../../../../src/testing/manual-clock.ts'
import { busyMs, echo, fail } from './fixtures/functions.ts'
import { errorOf, PoolDriver, valueOf } from './pool-driver.ts'

const limitMs = 0.1

/** A poll whose time and turns of the loop the test controls. */
function setUp(): {
  readonly mailbox: Mailbox
  readonly poll: BusyPoll
  readonly results: () => number
  readonly passTime: () => void
  readonly turn: () => void
  readonly hasTurn: () => boolean
} {
  const mailbox = new Mailbox()
  let results = 0
  let nowMs = 1000
  let next: (() => void) | null = null
  const clock = new ManualClock()
  clock.nextTurn = (callback) => {
    expect(next, 'one poll a turn').toBe(null)
    next = callback
  }
  const time = { limitMs, nowMs: () => nowMs }
  const poll = new BusyPoll(mailbox, clock, () => void results++, time)
  const turn = (): void => {
    const callback = next
    next = null
    callback?.()
  }
  return {
    mailbox,
    poll,
    results: () => results,
    passTime: () => void (nowMs += 2 * limitMs),
    turn,
    hasTurn: () => next !== null,
  }
}

/** As after a single job whose result came immediately. */
function makeBrisk(poll: BusyPoll): void {
  poll.begin(0, 1)
  poll.end()
}

describe('a busy poll', () => {
  it('busy poll: starts only after a single job that ended within the limit', () => {
    const { poll, mailbox, hasTurn, passTime } = setUp()
    poll.begin(0, 1)
    expect(mailbox.isPolled(0)).toBe(false)
    passTime()
    poll.end()
    poll.begin(1, 1)
    expect(mailbox.isPolled(1)).toBe(false)
    poll.end()
    poll.begin(0, 1)
    expect(mailbox.isPolled(0)).toBe(true)
    expect(mailbox.isPolled(1)).toBe(false)
    expect(hasTurn()).toBe(true)
  })

  it('busy poll: does not start for a batch of several jobs', () => {
    const { poll, mailbox, hasTurn } = setUp()
    makeBrisk(poll)
    poll.begin(0, 2)
    expect(mailbox.isPolled(0)).toBe(false)
    expect(hasTurn()).toBe(false)
    poll.end()
    poll.begin(0, 1)
    expect(mailbox.isPolled(0)).toBe(false)
  })

  it('busy poll: reports the result once and stops', () => {
    const { poll, mailbox, results, turn, hasTurn } = setUp()
    makeBrisk(poll)
    poll.begin(1, 1)
    mailbox.write(bankSize, 42)
    mailbox.setFinishedCount(1, 1)
    turn()
    expect(results()).toBe(1)
    expect(mailbox.isPolled(1)).toBe(false)
    expect(hasTurn()).toBe(false)
  })

  it('busy poll: leaves a result that needs a message to the message', () => {
    const { poll, mailbox, results, turn, hasTurn } = setUp()
    makeBrisk(poll)
    mailbox.markAsMessage(0)
    mailbox.setFinishedCount(0, 1)
    poll.begin(0, 1)
    poll.end()
    turn()
    expect(results()).toBe(0)
    expect(hasTurn()).toBe(false)
    expect(mailbox.isPolled(0)).toBe(false)
  })

  it('busy poll: polls once a turn, however many jobs were ended by messages meanwhile', () => {
    const { poll, mailbox, results, turn } = setUp()
    makeBrisk(poll)
    for (let round = 0; round < 3; round++) {
      poll.begin(round % 2, 1)
      poll.end()
    }
    poll.begin(0, 1)
    mailbox.setFinishedCount(0, 1)
    turn()
    expect(results()).toBe(1)
  })

  it('busy poll: checks a last time when the limit has passed, then stops', () => {
    const { poll, mailbox, results, turn, hasTurn, passTime } = setUp()
    makeBrisk(poll)
    poll.begin(0, 1)
    passTime()
    turn()
    expect(results()).toBe(1)
    expect(mailbox.isPolled(0)).toBe(false)
    expect(hasTurn()).toBe(false)
    poll.begin(0, 1)
    expect(mailbox.isPolled(0)).toBe(false)
  })

  it('busy poll: goes on for its job when another is posted behind it', () => {
    const { poll, mailbox, results, turn } = setUp()
    makeBrisk(poll)
    poll.begin(0, 1)
    poll.begin(1, 1)
    expect(mailbox.isPolled(0)).toBe(true)
    expect(mailbox.isPolled(1)).toBe(false)
    mailbox.setFinishedCount(0, 1)
    turn()
    expect(results()).toBe(1)
  })
})

describe('jobs that come one by one', () => {
  it('single jobs in a row: each returns its value, however long it takes', async () => {
    const driver = new PoolDriver({ size: 1 })
    for (let at = 0; at < 2000; at++) {
      expect(valueOf(await driver.run(echo, at))).toBe(at)
      if (at % 7 === 0) expect(valueOf(await driver.run(echo, `text ${at}`))).toBe(`text ${at}`)
      if (at % 11 === 0) expect(valueOf(await driver.run(echo, { at }))).toEqual({ at })
      if (at % 13 === 0) expect(errorOf(await driver.run(fail, 'string'))).toBe('a string')
      // About as long as the limit: polling may stop while the result arrives.
      if (at % 5 === 0) await driver.run(busyMs, (at % 20) * 0.01)
    }
    await driver.expectAllOver()
  })
})
