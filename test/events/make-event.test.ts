import { describe, expect, it } from 'vitest'
import { defineEvent } from '../../src/events/define-event.ts'
import { BaseEvent, baseFieldNames } from '../../src/events/event.ts'
import { makeEvent } from '../../src/events/make-event.ts'
import { ResourceUpdate } from '../../src/events/resource-update.ts'
import * as vocabulary from '../../src/events/vocabulary.ts'
import { ValueError } from '../../src/foundation/errors.ts'
import { systemClock } from '../../src/foundation/clock.ts'

const { TaskCanceled, TaskCompleted, TaskCreated, TaskFailed } = vocabulary
const common = { session_id: 's1', backend: 'local' }

describe('makeEvent', () => {
  it('makeEvent: sets id and times, fills absent fields, and freezes', () => {
    const before = systemClock.now()
    const event = makeEvent(TaskCreated, common)
    const after = systemClock.now()
    expect(event).toBeInstanceOf(BaseEvent)
    expect(event).toBeInstanceOf(TaskCreated)
    expect(event.event_id).toMatch(/^[0-9a-f]{12}4[0-9a-f]{3}[89ab][0-9a-f]{15}$/)
    expect(event.event_time).toBeGreaterThanOrEqual(before)
    expect(event.event_time).toBeLessThanOrEqual(after)
    expect(event.emit_time).toBe(event.event_time)
    expect(Object.fromEntries(Object.entries(event))).toEqual({
      event_id: event.event_id,
      event_type: 'TaskCreated',
      event_time: event.event_time,
      emit_time: event.emit_time,
      session_id: 's1',
      backend: 'local',
      task_id: null,
      node_id: null,
      attributes: {},
    })
    expect(Object.keys(event)).toEqual([...baseFieldNames])
    expect(Object.isFrozen(event) && Object.isFrozen(event.attributes)).toBe(true)
    expect(makeEvent(TaskCreated, common).event_id).not.toBe(event.event_id)
  })

  it('makeEvent: takes an event_time; emit_time is never before it', () => {
    const past = makeEvent(TaskCreated, { ...common, event_time: 5 })
    expect(past.event_time).toBe(5)
    expect(past.emit_time).toBeGreaterThan(1_600_000_000)
    const future = makeEvent(TaskCreated, { ...common, event_time: 9e9 })
    expect([future.event_time, future.emit_time]).toEqual([9e9, 9e9])
    expect(makeEvent(TaskCreated, { ...common, event_time: 0 }).event_time).toBe(0)
  })

  it('makeEvent: each specified event has its own fields and defaults', () => {
    const fields: Record<string, object> = {
      SessionStarted: {},
      SessionEnded: { duration_seconds: 0 },
      TaskCreated: {},
      TaskSubmitted: {},
      TaskQueued: {},
      TaskStarted: {},
      TaskCompleted: { duration_seconds: 0 },
      TaskFailed: { duration_seconds: 0, error_type: 'unknown' },
      TaskCanceled: { duration_seconds: 0 },
    }
    const classes = Object.values(vocabulary).filter((one) => 'eventType' in one)
    expect(classes.map(({ eventType }) => eventType).toSorted()).toEqual(
      Object.keys(fields).toSorted(),
    )
    for (const one of classes) {
      const event = makeEvent(one as typeof TaskCreated, common)
      const own = Object.fromEntries(
        Object.entries(event).filter(([key]) => !baseFieldNames.includes(key as 'event_id')),
      )
      expect(own).toEqual(fields[one.eventType])
      expect([event.event_type, one.name]).toEqual([one.eventType, one.eventType])
    }
    expect(makeEvent(TaskFailed, { ...common, error_type: 'E' }).error_type).toBe('E')
    expect(makeEvent(TaskCompleted, { ...common, duration_seconds: 1.5 }).duration_seconds).toBe(
      1.5,
    )
    expect('error_type' in makeEvent(TaskCanceled, common)).toBe(false)
  })

  it('makeEvent: resource_scope follows from gpu_id', () => {
    const node = makeEvent(ResourceUpdate, { ...common, cpu_percent: 12.5 })
    expect(node).toMatchObject({
      resource_scope: 'per_node',
      gpu_id: null,
      cpu_percent: 12.5,
      memory_percent: null,
      gpu_percent: null,
      disk_read_bytes: null,
      disk_write_bytes: null,
      net_sent_bytes: null,
      net_recv_bytes: null,
    })
    const gpu = makeEvent(ResourceUpdate, { ...common, gpu_id: 0, gpu_percent: 3 })
    expect([gpu.resource_scope, gpu.gpu_id]).toEqual(['per_gpu', 0])
    expect(() =>
      makeEvent(ResourceUpdate, { ...common, resource_scope: 'per_gpu' } as typeof common),
    ).toThrow('ResourceUpdate has no `resource_scope`')
  })

  it('makeEvent: copies attributes and does not change the original', () => {
    const attributes = { list: [{ a: 1 }], when: new Date(0) }
    const event = makeEvent(TaskCreated, { ...common, attributes })
    attributes.list.push({ a: 2 })
    expect(event.attributes).toEqual({ list: [{ a: 1 }], when: '1970-01-01T00:00:00.000Z' })
    expect(Object.isFrozen(attributes.list)).toBe(false)
    expect(Object.isFrozen((event.attributes['list'] as unknown[])[0])).toBe(true)
  })

  it('makeEvent: wrong fields are rejected by name', () => {
    const wrong: [object | null, string][] = [
      [null, 'fields'],
      [{ backend: 'b' }, 'session_id'],
      [{ session_id: 's' }, 'backend'],
      [{ ...common, session_id: 1 }, 'session_id'],
      [{ ...common, event_time: Number.NaN }, 'event_time'],
      [{ ...common, event_time: '5' }, 'event_time'],
      [{ ...common, event_time: 1e13 }, 'event_time'],
      [{ ...common, task_id: 5 }, 'task_id'],
      [{ ...common, node_id: {} }, 'node_id'],
      [{ ...common, attributes: 'x' }, 'attributes'],
      [{ ...common, attributes: [1] }, 'attributes'],
      [{ ...common, duration_seconds: '1' }, 'duration_seconds'],
      [{ ...common, duration_seconds: null }, 'duration_seconds'],
      [{ ...common, duration_seconds: -1 }, 'duration_seconds'],
      [{ ...common, duration_seconds: Number.NaN }, 'duration_seconds'],
      [{ ...common, duration_seconds: Infinity }, 'duration_seconds'],
      [{ ...common, error_type: 1 }, 'error_type'],
      [{ ...common, event_id: 'mine' }, 'event_id'],
      [{ ...common, emit_time: 1 }, 'emit_time'],
    ]
    for (const [input, field] of wrong) {
      const make = () => makeEvent(TaskFailed, input as typeof common)
      expect(make, field).toThrow(ValueError)
      expect(make, field).toThrow(expect.objectContaining({ field }))
    }
    for (const [field, value] of [
      ['gpu_id', -1],
      ['gpu_id', 0.5],
      ['cpu_percent', -0.1],
      ['cpu_percent', 100.5],
      ['memory_percent', Number.NaN],
      ['gpu_percent', Infinity],
      ['disk_read_bytes', -1],
      ['net_recv_bytes', Number.NaN],
    ] as const) {
      const make = () => makeEvent(ResourceUpdate, { ...common, [field]: value })
      expect(make, field).toThrow(expect.objectContaining({ name: 'ValueError', field }))
    }
    const full = { gpu_id: null, cpu_percent: 0, memory_percent: 100, net_sent_bytes: 1e12 }
    expect(makeEvent(ResourceUpdate, { ...common, ...full })).toMatchObject(full)
    expect(() => makeEvent(TaskFailed, { ...common, eror_type: 'x' } as typeof common)).toThrow(
      'TaskFailed has no `eror_type`; did you mean "error_type"?',
    )
    for (const notClass of [null, {}, Date, 'TaskFailed']) {
      expect(() => makeEvent(notClass as never, common)).toThrow(
        expect.objectContaining({ field: 'eventClass' }),
      )
    }
  })

  it('makeEvent: inherited properties are not fields', () => {
    const Odd = defineEvent('make.Odd', { toString: 'str', constructor: 'int', valueOf: 'any' })
    const event = makeEvent(Odd, common as never)
    expect(JSON.parse(JSON.stringify(event))).toMatchObject({
      toString: '',
      constructor: 0,
      valueOf: null,
    })
  })
})
