import { describe, expect, it } from 'vitest'
import { BackOff } from '../../src/runtime/back-off.ts'

const open = () => new BackOff({ firstDelayMs: 100, maxDelayMs: 500, giveUpAfter: 3 })

describe('BackOff', () => {
  it('the delay doubles with each failure in a row, up to its limit', () => {
    const backOff = open()
    expect(backOff.delayMs(0)).toBe(0)
    expect([0, 0, 0, 0, 0].map((now) => backOff.fail(now))).toEqual([100, 200, 400, 500, 500])
    expect([backOff.delayMs(0), backOff.delayMs(450), backOff.delayMs(600)]).toEqual([500, 50, 0])
  })

  it('it gives up after so many failures in a row, until another attempt is due', () => {
    const backOff = open()
    backOff.fail(0)
    backOff.fail(1000, new Error('second'))
    expect(backOff.hasGivenUp(1000)).toBe(false)
    backOff.fail(2000, new Error('third'))
    expect([backOff.hasGivenUp(2000), backOff.hasGivenUp(2400)]).toEqual([true, false])
    expect([backOff.failures, backOff.lastError]).toEqual([3, new Error('third')])
  })

  it('a success makes the next failure the first', () => {
    const backOff = open()
    for (const now of [0, 0, 0]) backOff.fail(now, new Error('no'))
    backOff.reset()
    expect([backOff.failures, backOff.lastError, backOff.delayMs(0)]).toEqual([0, undefined, 0])
    expect([backOff.hasGivenUp(0), backOff.fail(10)]).toEqual([false, 100])
  })

  it('without a limit it never gives up', () => {
    const backOff = new BackOff({ firstDelayMs: 1, maxDelayMs: 10 })
    for (let failure = 0; failure < 2000; failure++) backOff.fail(0)
    expect([backOff.hasGivenUp(0), backOff.delayMs(0)]).toEqual([false, 10])
  })
})
