import { setImmediate } from 'node:timers/promises'
import { describe, expect, it } from 'vitest'
import { PlacementTrigger } from '../../../src/cluster/driver/placement-trigger.ts'
import { ManualClock } from '../../../src/testing/manual-clock.ts'

/** A trigger whose placements take all that waits. */
function createTrigger() {
  const clock = new ManualClock()
  const placed: number[] = []
  let waiting = 0
  const trigger = new PlacementTrigger(clock, () => {
    if (waiting > 0) placed.push(waiting)
    waiting = 0
  })
  const submit = (count: number): void => {
    waiting += count
    trigger.handleSubmit(count, waiting)
  }
  return { clock, trigger, placed, submit }
}

describe('jobs that are submitted', () => {
  it('submitted jobs are placed immediately if they are few, however soon after others', () => {
    const { placed, submit } = createTrigger()
    submit(1)
    submit(3)
    submit(1)
    expect(placed).toEqual([1, 3, 1])
  })

  it('submitted jobs of a large bag are placed together, the first part immediately', async () => {
    const { placed, submit } = createTrigger()
    for (let part = 0; part < 8; part++) {
      submit(200)
      await setImmediate()
    }
    expect(placed).toEqual([200])
    for (let turn = 0; turn < 3; turn++) await setImmediate()
    expect(placed).toEqual([200, 1400])
  })

  it('submitted jobs are not gathered beyond a number, nor for long', async () => {
    const { clock, placed, submit } = createTrigger()
    for (let part = 0; part < 9; part++) {
      submit(250)
      await setImmediate()
    }
    expect(placed).toEqual([250, 2000])
    submit(250)
    await clock.advance(20)
    submit(250)
    expect(placed).toEqual([250, 2000, 500])
  })

  it('submitted jobs wait for the parts of their bag also if a node has room', async () => {
    const { trigger, placed, submit } = createTrigger()
    submit(250)
    for (let part = 0; part < 4; part++) {
      submit(250)
      trigger.schedule()
      await setImmediate()
    }
    expect(placed).toEqual([250])
    for (let turn = 0; turn < 3; turn++) await setImmediate()
    expect(placed).toEqual([250, 1000])
    trigger.schedule()
    submit(1)
    expect(placed).toEqual([250, 1000, 1])
  })
})
