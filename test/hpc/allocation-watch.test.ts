import { describe, expect, it, onTestFinished } from 'vitest'
import type { Allocation, AllocationState } from '../../src/hpc/allocation.ts'
import { AllocationWatch } from '../../src/hpc/allocation-watch.ts'
import { ManualClock } from '../../src/testing/manual-clock.ts'

/** An allocation that the test ends, and all reports about it. */
function watched(limitSeconds: number | null, graceSeconds: number) {
  const clock = new ManualClock()
  const state: { -readonly [Key in keyof AllocationState]: AllocationState[Key] } = {
    endsAt: limitSeconds === null ? null : clock.now() + limitSeconds,
    lost: null,
    isEnding: false,
  }
  let error: Error | null = null
  const allocation: Allocation = {
    label: 'job 7',
    nodes: [],
    limitSeconds,
    hasThisProcess: false,
    state: () => (error === null ? Promise.resolve(state) : Promise.reject(error)),
    start: () => [],
    facts: {},
    startRanks: () => {
      throw new Error('no ranks')
    },
  }
  const told: string[] = []
  const watch = new AllocationWatch({
    allocation,
    graceSeconds,
    clock,
    log: { warn: (code) => told.push(code) },
    onEnding: (seconds) => told.push(`${seconds} s left`),
    onEnd: (reason) => told.push(reason),
  })
  onTestFinished(() => watch.close())
  const fail = (thrown: Error | null): void => {
    error = thrown
  }
  const advance = async (seconds: number): Promise<void> => {
    for (let second = 0; second < seconds; second++) await clock.advance(1000)
  }
  return { state, told, watch, fail, advance }
}

describe('the end of an allocation', () => {
  it('the end of an allocation is reported at a tenth of the limit and at the grace', async () => {
    const { told, advance } = watched(10_000, 60)
    await advance(8_999)
    expect(told).toEqual([])
    await advance(1)
    expect(told).toEqual(['1000 s left'])
    await advance(939)
    expect(told).toHaveLength(1)
    await advance(1)
    expect(told.slice(1)).toEqual(['60 s left', 'AllocationEnding: the time limit of job 7'])
    await advance(100)
    expect(told).toHaveLength(3)
  })

  it('the end of an allocation is reported at twice the grace of a short limit', async () => {
    const { told, advance } = watched(130, 60)
    await advance(10)
    expect(told).toEqual(['120 s left'])
  })

  it('the end of an allocation moves when the limit is changed', async () => {
    const { state, told, advance } = watched(1000, 60)
    state.endsAt = (state.endsAt ?? 0) + 500
    await advance(1379)
    expect(told).toEqual([])
    await advance(1)
    expect(told).toEqual(['120 s left'])
  })

  it('row 101: a lost allocation ends everything with the words of the scheduler', async () => {
    const { state, told, advance } = watched(null, 60)
    await advance(10_000)
    state.lost = 'PREEMPTED (None)'
    await advance(2)
    expect(told).toEqual(['AllocationLostError: PREEMPTED (None)'])
  })

  it('row 101: a job that is ending is lost once the scheduler says how', async () => {
    const { state, told, advance } = watched(1000, 60)
    Object.assign(state, { isEnding: true, endsAt: 0 })
    await advance(10)
    expect(told).toEqual([])
    Object.assign(state, { isEnding: false, lost: 'FAILED (RaisedSignal:9)' })
    await advance(2)
    expect(told).toEqual(['AllocationLostError: FAILED (RaisedSignal:9)'])
  })

  it('row 101: a scheduler that does not answer is told once, and nothing ends', async () => {
    const { state, told, fail, advance } = watched(1000, 60)
    fail(new Error('slurmctld is away'))
    await advance(100)
    expect(told).toEqual(['SchedulerSilent'])
    fail(null)
    state.lost = 'CANCELLED'
    await advance(2)
    expect(told).toEqual(['SchedulerSilent', 'AllocationLostError: CANCELLED'])
  })

  it('a closed allocation watch reports nothing', async () => {
    const { state, told, watch, advance } = watched(1000, 60)
    watch.close()
    state.lost = 'CANCELLED'
    await advance(2000)
    expect(told).toEqual([])
  })
})
