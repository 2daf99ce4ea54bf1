import { describe, expect, it } from 'vitest'
import { machineMs } from '../../../../src/backends/local/machine-time.ts'
import { bankSize, briskMs, Mailbox } from '../../../../src/backends/local/functions/mailbox.ts'
import { Vigil } from '../../../../src/backends/local/functions/busy-poll.ts'
import { systemClock } from '../../../../src/foundation/clock.ts'
import { busyMs, echo, fail } from './fixtures/functions.ts'
import { errorOf, PoolDriver, valueOf } from './pool-driver.ts'

/** A vigil whose turns come when the test says so. */
function setUp(): {
  readonly mailbox: Mailbox
  readonly vigil: Vigil
  readonly heard: () => number
  readonly turn: () => void
  readonly hasTurn: () => boolean
} {
  const mailbox = new Mailbox()
  let heard = 0
  let next: (() => void) | null = null
  const nextTurn = (callback: () => void): void => {
    expect(next, 'one look a turn').toBe(null)
    next = callback
  }
  const clock = { ...systemClock, nextTurn }
  const vigil = new Vigil(mailbox, clock, () => void heard++)
  const turn = (): void => {
    const callback = next
    next = null
    callback?.()
  }
  return { mailbox, vigil, heard: () => heard, turn, hasTurn: () => next !== null }
}

/** As after a lone job whose answer came at once. */
function makeBrisk(vigil: Vigil): void {
  vigil.begin(0, 1)
  vigil.end()
}

function pass(moments: number): void {
  for (const until = machineMs() + moments * briskMs; machineMs() < until;);
}

describe('the vigil for a lone result', () => {
  it('is kept only after a lone result that came at once', () => {
    const { vigil, mailbox, hasTurn } = setUp()
    vigil.begin(0, 1)
    expect(mailbox.isWatched(0)).toBe(false)
    pass(2)
    vigil.end()
    vigil.begin(1, 1)
    expect(mailbox.isWatched(1)).toBe(false)
    vigil.end()
    vigil.begin(0, 1)
    expect(mailbox.isWatched(0)).toBe(true)
    expect(mailbox.isWatched(1)).toBe(false)
    expect(hasTurn()).toBe(true)
  })

  it('is not kept for many jobs at a time', () => {
    const { vigil, mailbox, hasTurn } = setUp()
    makeBrisk(vigil)
    vigil.begin(0, 2)
    expect(mailbox.isWatched(0)).toBe(false)
    expect(hasTurn()).toBe(false)
    vigil.end()
    vigil.begin(0, 1)
    expect(mailbox.isWatched(0)).toBe(false)
  })

  it('hears the result once, and then watches no more', () => {
    const { vigil, mailbox, heard, turn, hasTurn } = setUp()
    makeBrisk(vigil)
    vigil.begin(1, 1)
    mailbox.write(bankSize, 42)
    mailbox.pass(1, 1)
    turn()
    expect(heard()).toBe(1)
    expect(mailbox.isWatched(1)).toBe(false)
    expect(hasTurn()).toBe(false)
  })

  it('leaves a result that needs a message to the message', () => {
    const { vigil, mailbox, heard, turn, hasTurn } = setUp()
    makeBrisk(vigil)
    mailbox.leaveToMessage(0)
    mailbox.pass(0, 1)
    vigil.begin(0, 1)
    vigil.end()
    turn()
    expect(heard()).toBe(0)
    expect(hasTurn()).toBe(false)
    expect(mailbox.isWatched(0)).toBe(false)
  })

  it('looks once a turn, however many were ended by messages meanwhile', () => {
    const { vigil, mailbox, heard, turn } = setUp()
    makeBrisk(vigil)
    for (let round = 0; round < 3; round++) {
      vigil.begin(round % 2, 1)
      vigil.end()
    }
    vigil.begin(0, 1)
    mailbox.pass(0, 1)
    turn()
    expect(heard()).toBe(1)
  })

  it('ends after a moment, and looks once more: the worker may have counted on it', () => {
    const { vigil, mailbox, heard, turn, hasTurn } = setUp()
    makeBrisk(vigil)
    vigil.begin(0, 1)
    pass(2)
    turn()
    expect(heard()).toBe(1)
    expect(mailbox.isWatched(0)).toBe(false)
    expect(hasTurn()).toBe(false)
    vigil.begin(0, 1)
    expect(mailbox.isWatched(0)).toBe(false)
  })

  it('goes on for its own job when another is posted behind it', () => {
    const { vigil, mailbox, heard, turn } = setUp()
    makeBrisk(vigil)
    vigil.begin(0, 1)
    vigil.begin(1, 1)
    expect(mailbox.isWatched(0)).toBe(true)
    expect(mailbox.isWatched(1)).toBe(false)
    mailbox.pass(0, 1)
    turn()
    expect(heard()).toBe(1)
  })
})

describe('jobs that come one by one', () => {
  it('have their answers, however long they take and whatever they give', async () => {
    const driver = new PoolDriver({ size: 1 })
    for (let at = 0; at < 2000; at++) {
      expect(valueOf(await driver.run(echo, at))).toBe(at)
      if (at % 7 === 0) expect(valueOf(await driver.run(echo, `text ${at}`))).toBe(`text ${at}`)
      if (at % 11 === 0) expect(valueOf(await driver.run(echo, { at }))).toEqual({ at })
      if (at % 13 === 0) expect(errorOf(await driver.run(fail, 'string'))).toBe('a string')
      // Around the length of a moment, where one side gives up while the other comes.
      if (at % 5 === 0) await driver.run(busyMs, (at % 20) * 0.01)
    }
    await driver.expectAllOver()
  })
})
