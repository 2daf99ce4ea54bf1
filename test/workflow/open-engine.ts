/** A workflow engine whose events a test can look at; closed after the test. */

import { onTestFinished } from 'vitest'
import type { Backend } from '../../src/backends/backend.ts'
import type { BaseEvent } from '../../src/events/event.ts'
import type { SessionTelemetryOptions } from '../../src/core/session-options.ts'
import { FakeBackend } from '../../src/testing/fake-backend.ts'
import { ManualClock } from '../../src/testing/manual-clock.ts'
import { WorkflowEngine, type WorkflowEngineOptions } from '../../src/workflow/workflow-engine.ts'
import type { EventRecord } from '../session/open-session.ts'

export interface OpenEngineOptions extends Partial<WorkflowEngineOptions> {
  readonly telemetry?: SessionTelemetryOptions
}

/** With a fake backend and its own clock, unless options say otherwise. */
export async function openEngine<B extends Backend = FakeBackend>(
  { telemetry: telemetryOptions = {}, ...options }: OpenEngineOptions = {},
  backend: B = new FakeBackend({ name: 'local' }) as unknown as B,
) {
  const clock = new ManualClock(1000)
  const flow = await WorkflowEngine.create({ backend, id: 'w1', clock, ...options })
  onTestFinished(() => flow.shutdown())
  const telemetry = await flow.startTelemetry(telemetryOptions)
  const all: BaseEvent[] = []
  telemetry.subscribe((event) => void all.push(event))
  return {
    flow,
    clock,
    backend,
    telemetry,
    /** Every event so far. */
    events: async (): Promise<readonly EventRecord[]> => {
      await telemetry.flush()
      return all
    },
    /** The events of one task so far. */
    eventsOf: async ({ uid }: { readonly uid: string }): Promise<readonly EventRecord[]> => {
      await telemetry.flush()
      return all.filter((event) => event.task_id === uid)
    },
  }
}

/** Resolves after all decisions of this turn of the loop have taken effect, still in this turn. */
export async function settled(): Promise<void> {
  for (let at = 0; at < 10; at++) await Promise.resolve()
}
