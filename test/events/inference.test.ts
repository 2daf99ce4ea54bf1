import { describe, expect, expectTypeOf, it } from 'vitest'
import { defineEvent } from '../../src/events/define-event.ts'
import type { JsonValue } from '../../src/foundation/json-value.ts'
import { makeEvent } from '../../src/events/make-event.ts'
import { type BuiltInEvent, TaskCompleted, TaskFailed } from '../../src/events/vocabulary.ts'
import { ResourceUpdate } from '../../src/events/resource-update.ts'
import type { TelemetryManager } from '../../src/telemetry/manager.ts'

/** Checked by the compiler: each `@ts-expect-error` must be an error. */
const common = { session_id: 's1', backend: 'app' }
const Timer = defineEvent('infer.Timer', {
  label: 'str',
  duration_ms: 'float',
  step: ['int', -1],
  ok: 'bool',
  extra: 'any',
})

describe('the types of events', () => {
  it('event types: follow from the declaration of a custom event', () => {
    const event = makeEvent(Timer, { ...common, label: 'x', step: 2 })
    expectTypeOf(event.event_type).toEqualTypeOf<'infer.Timer'>()
    expectTypeOf(event.label).toEqualTypeOf<string>()
    expectTypeOf(event.duration_ms).toEqualTypeOf<number>()
    expectTypeOf(event.step).toEqualTypeOf<number>()
    expectTypeOf(event.ok).toEqualTypeOf<boolean>()
    expectTypeOf(event.extra).toEqualTypeOf<JsonValue>()
    expectTypeOf(event.task_id).toEqualTypeOf<string | null>()
    // @ts-expect-error a field that was not declared
    expect(event.other).toBeUndefined()
    expect(() => {
      // @ts-expect-error events are immutable
      event.label = 'y'
    }).toThrow(TypeError)
  })

  it('event types: wrong fields are compile errors', () => {
    // @ts-expect-error a string, not a number
    expect(() => makeEvent(Timer, { ...common, label: 1 })).toThrow()
    // @ts-expect-error an unknown field
    expect(() => makeEvent(Timer, { ...common, lable: 'x' })).toThrow()
    // @ts-expect-error no backend
    expect(() => makeEvent(Timer, { session_id: 's1' })).toThrow()
    // @ts-expect-error TaskCompleted has no error_type
    expect(() => makeEvent(TaskCompleted, { ...common, error_type: 'x' })).toThrow()
    // @ts-expect-error the scope is computed
    expect(() => makeEvent(ResourceUpdate, { ...common, resource_scope: 'per_gpu' })).toThrow()
  })

  it('event types: wrong declarations are compile errors', () => {
    // @ts-expect-error no such type
    expect(() => defineEvent('infer.Bad', { a: 'string' })).toThrow()
    // @ts-expect-error the default has another type
    expect(() => defineEvent('infer.Bad', { a: ['int', 'x'] })).toThrow()
  })

  it('event types: narrow by event_type', () => {
    const tellOf = (event: BuiltInEvent): string => {
      // @ts-expect-error not every event has it
      const early: unknown = event.error_type
      switch (event.event_type) {
        case 'TaskFailed':
          expectTypeOf(event.error_type).toEqualTypeOf<string>()
          expectTypeOf(event.duration_seconds).toEqualTypeOf<number>()
          return `${event.error_type}${early === event.error_type}`
        case 'ResourceUpdate':
          expectTypeOf(event.cpu_percent).toEqualTypeOf<number | null>()
          expectTypeOf(event.resource_scope).toEqualTypeOf<'per_node' | 'per_gpu'>()
          return event.resource_scope
        case 'TaskCanceled':
          // @ts-expect-error a cancellation is not a failure
          return String(event.error_type)
        default:
          return event.event_type
      }
    }
    expect(tellOf(makeEvent(TaskFailed, common))).toBe('unknowntrue')
    expect(tellOf(makeEvent(ResourceUpdate, { ...common, gpu_id: 1 }))).toBe('per_gpu')
    expect(tellOf(makeEvent(TaskCompleted, common))).toBe('TaskCompleted')
  })

  it('event types: narrow in a subscriber', () => {
    type Heard = Parameters<Parameters<TelemetryManager['subscribe']>[0]>[0]
    const errorOf = (event: Heard): string | null => {
      if (event.event_type !== 'TaskFailed' || !(event instanceof TaskFailed)) return null
      return event.error_type
    }
    expect(errorOf(makeEvent(TaskFailed, common))).toBe('unknown')
    expect(errorOf(makeEvent(Timer, common))).toBe(null)
  })
})
