import fc from 'fast-check'
import { expect, it } from 'vitest'
import type { BaseEvent } from '../../src/events/event.ts'
import { hasEnded } from '../../src/tasks/lifecycle.ts'
import { FakeBackend } from '../../src/testing/fake-backend.ts'
import { WorkflowEngine } from '../../src/workflow/workflow-engine.ts'
import type { Handle } from '../../src/workflow/task-function.ts'
import { turns } from '../session/open-session.ts'
import { settled } from './open-engine.ts'
import { assertProperty } from '../property.ts'

/** Node `n` waits for some of the nodes before it. */
const dag = fc
  .integer({ min: 1, max: 12 })
  .chain((size) =>
    fc.tuple(
      ...Array.from({ length: size }, (_, node) =>
        node === 0 ? fc.constant([]) : fc.uniqueArray(fc.nat(node - 1), { maxLength: 3 }),
      ),
    ),
  )
const step = fc.record({
  node: fc.nat(11),
  what: fc.constantFrom('start', 'complete', 'complete', 'complete', 'fail', 'cancel'),
})

const canonical = new RegExp(
  '^TaskCreated (tutti\\.TaskResolved )?TaskSubmitted (TaskQueued )?(TaskStarted )?' +
    'Task(Completed|Failed|Canceled)$',
)

it('workflow: any graph with any ends gives every task one canonical event sequence', async () => {
  await assertProperty(
    fc.asyncProperty(dag, fc.array(step, { maxLength: 40 }), async (dependencies, steps) => {
      const backend = new FakeBackend()
      const flow = await WorkflowEngine.create({ backend })
      const telemetry = await flow.startTelemetry()
      const events: BaseEvent[] = []
      telemetry.subscribe((event) => void events.push(event))
      const f = flow.functionTask((_given: unknown) => undefined)
      const handles: Handle<undefined>[] = []
      for (const needs of dependencies) handles.push(f(needs.map((node) => handles[node])))
      await settled()
      for (const { node, what } of steps) {
        const handle = handles[node % handles.length]
        if (handle === undefined) continue
        const isWithBackend = backend.jobs.some(({ uid }) => uid === handle.uid)
        if (what === 'cancel') handle.cancel('asked')
        else if (!isWithBackend) continue
        else if (what === 'start') backend.start(handle)
        else if (what === 'complete') backend.complete(handle)
        else backend.fail(handle, new Error('no'))
        await settled()
        checkNobodyRanAhead(backend, handles, dependencies)
      }
      await turns(1)
      for (const [node, needs] of dependencies.entries()) {
        const states = needs.map((needed) => handles[needed]?.state)
        const state = handles[node]?.state
        if (states.includes('FAILED') || states.includes('CANCELED')) {
          expect(['FAILED', 'CANCELED']).toContain(state)
        } else if (states.every((one) => one === 'DONE')) expect(state).not.toBe('CREATED')
      }
      await flow.shutdown()
      expect(handles.every(({ state }) => hasEnded(state))).toBe(true)
      for (const { uid } of handles) {
        const own = events.filter((event) => event.task_id === uid)
        expect(own.map(({ event_type: type }) => type).join(' ')).toMatch(canonical)
      }
    }),
    { numRuns: 50, longRuns: 150 },
  )
})

function checkNobodyRanAhead(
  backend: FakeBackend,
  handles: readonly Handle<unknown>[],
  dependencies: readonly (readonly number[])[],
): void {
  for (const [node, needs] of dependencies.entries()) {
    if (!backend.jobs.some(({ uid }) => uid === handles[node]?.uid)) continue
    expect(needs.every((needed) => handles[needed]?.state === 'DONE')).toBe(true)
  }
}
