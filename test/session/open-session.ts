/** A session over a fake backend, on a clock of its own, whose events a test can look at. */

import { expect, onTestFinished } from 'vitest'
import type { AnyTask } from '../../src/backends/backend.ts'
import type { BaseEvent } from '../../src/events/event.ts'
import type { JsonValue } from '../../src/foundation/json-value.ts'
import type { SessionTelemetryOptions } from '../../src/core/session-options.ts'
import { Session } from '../../src/session/session.ts'
import { ComputeTask, type FunctionOptions } from '../../src/tasks/compute-task.ts'
import { FakeBackend, type FakeBackendOptions } from '../../src/testing/fake-backend.ts'
import { ManualClock } from '../../src/testing/manual-clock.ts'
import { eventually } from '../eventually.ts'

export interface OpenSessionOptions {
  readonly backends?: readonly FakeBackendOptions[]
  readonly telemetry?: SessionTelemetryOptions
}

/** The session is closed after the test; the fake backend answers immediately. */
export async function openSession(options: OpenSessionOptions = {}) {
  const clock = new ManualClock(1000)
  const backends = (options.backends ?? [{ name: 'local' }]).map((one) => new FakeBackend(one))
  const session = new Session(backends, { id: 's1', clock })
  onTestFinished(() => session.close())
  const all: BaseEvent[] = []
  const telemetry = await session.startTelemetry(options.telemetry)
  telemetry.subscribe((event) => void all.push(event))
  const [backend = new FakeBackend()] = backends
  return {
    clock,
    session,
    backend,
    backends,
    telemetry,
    /** Every event of tasks so far. */
    events: async (): Promise<readonly BaseEvent[]> => {
      await telemetry.flush()
      return all.filter((event) => event.task_id !== null)
    },
    /** The events of one task so far. */
    eventsOf: async (task: AnyTask): Promise<readonly EventRecord[]> => {
      await telemetry.flush()
      return all.filter((event) => event.task_id === task.uid)
    },
    /** Every event, even after the session was closed. */
    all: all as readonly BaseEvent[],
  }
}

/** An event with the fields that only some have. */
export interface EventRecord extends BaseEvent {
  readonly duration_seconds?: number
  readonly error_type?: string
  readonly error_message?: string | null
  readonly attempt?: number
}

export const typesOf = (events: readonly BaseEvent[]): string[] =>
  events.map((event) => event.event_type)

export const attribute = (event: BaseEvent | undefined, name: string): JsonValue | undefined =>
  event?.attributes[name]

function nothing(): void {}

type QuickOptions = Omit<FunctionOptions<void, readonly unknown[]>, 'function' | 'args'>

/** A task that no backend of these tests really runs. */
export const quick = (options: QuickOptions = {}): ComputeTask<void> =>
  new ComputeTask<void>({ function: nothing, ...options })

/** The error that a promise rejects with; a promise that resolves fails the test. */
export async function rejection(promise: PromiseLike<unknown>): Promise<Error> {
  return promise.then(
    () => {
      throw new Error('expected a rejection')
    },
    (error: unknown) => error as Error,
  )
}

/** Afterwards the timer of the next poll is the only one. */
export const untilPrimed = (clock: ManualClock): Promise<void> =>
  eventually(() => expect(clock.pendingTimers).toBe(1))

/** Lets everything that is already decided happen. */
export async function turns(count = 5): Promise<void> {
  for (let at = 0; at < count; at++) await new Promise((resolve) => setImmediate(resolve))
}
