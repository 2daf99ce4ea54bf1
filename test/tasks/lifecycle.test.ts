import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import {
  advance,
  hasEnded,
  attemptStarted,
  type Lifecycle,
  newLifecycle,
  type Stimulus,
  taskStates,
} from '../../src/tasks/lifecycle.ts'
import { assertProperty } from '../property.ts'

const stimuli = ['submit', 'queue', 'start', 'retry', 'complete', 'fail', 'cancel'] as const
const ends = ['TaskCompleted', 'TaskFailed', 'TaskCanceled']
/** The specification's events; TaskCreated comes with the new life. */
const canonical =
  /^TaskCreated( TaskSubmitted( TaskQueued)?( TaskStarted)?( Task(Completed|Failed|Canceled))?)?$/

const step = fc.record({
  stimulus: fc.constantFrom(...stimuli),
  elapsedMs: fc.nat(10_000),
  /** Somebody sets the wall clock. */
  wallStep: fc.oneof(
    { weight: 3, arbitrary: fc.constant(0) },
    fc.integer({ min: -7200, max: 7200 }),
  ),
})

interface Told {
  readonly change: Lifecycle
  readonly monotonicMs: number
}

function live(steps: readonly { stimulus: Stimulus; elapsedMs: number; wallStep: number }[]) {
  let wallSeconds = 1_700_000_000
  let monotonicMs = 0
  let life = newLifecycle({ wallSeconds, monotonicMs })
  const told: Told[] = []
  for (const { stimulus, elapsedMs, wallStep } of steps) {
    monotonicMs += elapsedMs
    wallSeconds += elapsedMs / 1000 + wallStep
    const change = advance(life, stimulus, { wallSeconds, monotonicMs })
    if (change === null) continue
    life = change
    told.push({ change, monotonicMs })
  }
  return { life, told }
}

describe('advance', () => {
  it('any stimuli give a canonical sequence with at most one end', () => {
    assertProperty(
      fc.property(fc.array(step, { maxLength: 30 }), (steps) => {
        const { life, told } = live(steps)
        const events = told.flatMap(({ change }) => (change.event === null ? [] : [change.event]))
        const ofTheSpecification = events.filter((event) => !event.startsWith('tutti.'))
        expect(['TaskCreated', ...ofTheSpecification].join(' ')).toMatch(canonical)
        // A failed attempt belongs to a task that was submitted and has not ended.
        const attempt = events.indexOf('tutti.TaskAttempt')
        if (attempt !== -1) expect(events.indexOf('TaskSubmitted')).toBeLessThan(attempt)
        if (hasEnded(life.state)) expect(ends).toContain(events.at(-1))
        expect(events.filter((event) => ends.includes(event)).length).toBe(
          Number(hasEnded(life.state)),
        )
        expect(taskStates).toContain(life.state)
      }),
      { numRuns: 200, longRuns: 2000 },
    )
  })

  it('row 28: times never decrease and durations are never negative, whatever the clocks', () => {
    assertProperty(
      fc.property(fc.array(step, { maxLength: 30 }), (steps) => {
        let last = 1_700_000_000
        for (const { change } of live(steps).told) {
          expect(change.time).toBeGreaterThanOrEqual(last)
          last = change.time
          expect(change.durationSeconds).toBeGreaterThanOrEqual(0)
        }
      }),
      { numRuns: 200, longRuns: 1000 },
    )
  })

  it('row 28: an end counts from TaskStarted, a failed attempt from its own start', () => {
    assertProperty(
      fc.property(fc.array(step, { maxLength: 30 }), (steps) => {
        let startedMs: number | null = null
        let attemptMs: number | null = null
        for (const { change, monotonicMs } of live(steps).told) {
          if (change.event === 'TaskStarted') startedMs = monotonicMs
          if (change.event === 'TaskStarted' || change.event === attemptStarted)
            attemptMs = monotonicMs
          const sinceMs = change.event === 'tutti.TaskAttempt' ? attemptMs : startedMs
          const ranMs = sinceMs === null ? 0 : monotonicMs - sinceMs
          expect(change.durationSeconds).toBeCloseTo(ranMs / 1000, 9)
          if (change.event !== 'tutti.TaskAttempt') continue
          expect(change.failedStart?.monotonicMs ?? null).toBe(attemptMs)
          attemptMs = null
        }
      }),
      { numRuns: 200, longRuns: 1000 },
    )
  })

  it('advance leaves the life alone, and changes nothing after the end', () => {
    const at = (seconds: number) => ({ wallSeconds: seconds, monotonicMs: seconds * 1000 })
    const created = Object.freeze(newLifecycle(at(1)))
    const submitted = advance(created, 'submit', at(2))
    expect(created.state).toBe('CREATED')
    expect(submitted).toMatchObject({ event: 'TaskSubmitted', time: 2 })
    const canceled = advance(Object.freeze(submitted ?? created), 'cancel', at(3))
    expect(canceled).toMatchObject({
      event: 'TaskCanceled',
      durationSeconds: 0,
      state: 'CANCELED',
    })
    for (const stimulus of stimuli) {
      expect(advance(canceled ?? created, stimulus, at(4))).toBe(null)
    }
  })

  it('advance reports the start once, and measures each attempt and the whole', () => {
    const at = (seconds: number) => ({ wallSeconds: seconds, monotonicMs: seconds * 1000 })
    const script: [Stimulus, string | undefined, number][] = [
      ['submit', 'TaskSubmitted', 0],
      ['start', 'TaskStarted', 0],
      ['start', undefined, 0],
      ['retry', 'tutti.TaskAttempt', 2],
      ['start', 'tutti.AttemptStarted', 3],
      ['start', undefined, 0],
      ['retry', 'tutti.TaskAttempt', 2],
      ['start', 'tutti.AttemptStarted', 6],
      ['complete', 'TaskCompleted', 7],
    ]
    let life = newLifecycle(at(0))
    script.forEach(([stimulus, event, seconds], index) => {
      const change = advance(life, stimulus, at(index + 1))
      expect(change?.event).toBe(event)
      if (change === null) return
      expect(change.durationSeconds).toBe(seconds)
      life = change
    })
    expect(life.state).toBe('DONE')
  })
})
