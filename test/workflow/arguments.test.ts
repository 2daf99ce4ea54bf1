import { describe, expect, it } from 'vitest'
import { findHandles, substituteHandles } from '../../src/workflow/arguments.ts'
import { claimRecord } from '../../src/tasks/task-record.ts'
import { EngineHandle } from '../../src/workflow/handle.ts'
import { planFunction } from '../../src/workflow/plan.ts'

const plan = planFunction(() => 1, {})
const owner = {
  id: 'w',
  cancel: () => false,
  ended() {},
  hasChanged: () => false,
  isInside: () => false,
}

function done(value: unknown): EngineHandle {
  const handle = new EngineHandle(plan, owner)
  handle[claimRecord]({ ledger: owner })?.settle({ state: 'DONE', value })
  return handle
}

describe('handles in arguments', () => {
  it('arguments: handles in arrays and plain objects are found, each once', () => {
    const [a, b, c] = [done(1), done(2), done(3)]
    const bare: Record<string, unknown> = Object.assign(Object.create(null) as object, { c })
    const args = [a, [b, [a]], { deep: { list: [bare] } }]
    expect(new Set(findHandles(args))).toEqual(new Set([a, b, c]))
    expect(findHandles(args)).toHaveLength(3)
    expect(findHandles([1, 'x', null, undefined, { y: [2] }])).toEqual([])
  })

  it('arguments: handles in instances, Maps, Sets and closures are not found', () => {
    const handle = done(1)
    class Own {
      readonly inside = handle
    }
    const args = [new Own(), new Map([['k', handle]]), new Set([handle]), () => handle]
    expect(findHandles(args)).toEqual([])
    expect(substituteHandles(args)).toEqual(args)
  })

  it('arguments: handles are replaced by values, and only their containers are copied', () => {
    const handle = done('value')
    const untouched = { big: [1, 2, 3] }
    const args = [handle, { handle, untouched }, untouched, [[handle]]]
    const values = substituteHandles(args)
    expect(values).toEqual(['value', { handle: 'value', untouched }, untouched, [['value']]])
    expect(values[2]).toBe(untouched)
    expect((values[1] as { untouched: unknown }).untouched).toBe(untouched)
    expect(args[0]).toBe(handle)
  })

  it('arguments: cycles and shared references are kept when handles are replaced', () => {
    const handle = done(7)
    const shared = { handle }
    const ring: { self?: unknown; shared: unknown } = { shared }
    ring.self = ring
    const [copy, again] = substituteHandles([ring, shared]) as [typeof ring, unknown]
    expect(copy.self).toBe(copy)
    expect(copy.shared).toBe(again)
    expect(again).toEqual({ handle: 7 })
    expect(ring.self).toBe(ring)
  })

  it('arguments: a handle in an object that 200,000 others share is replaced', () => {
    const shared = { handle: done(7) }
    const rows = Array.from({ length: 200_000 }, (_, at) => ({ at, shared }))
    const [copies] = substituteHandles([rows]) as [{ shared: unknown }[]]
    expect(copies).toHaveLength(200_000)
    expect(copies.at(-1)).toEqual({ at: 199_999, shared: { handle: 7 } })
  })

  it('arguments: a key `__proto__` and a null prototype are kept', () => {
    const handle = done(1)
    const odd = JSON.parse('{"__proto__": {"x": 1}}') as Record<string, unknown>
    odd['handle'] = handle
    const bare = Object.assign(Object.create(null) as object, { handle })
    const [copy, bareCopy] = substituteHandles([odd, bare]) as [object, object]
    expect(Object.keys(copy)).toEqual(['__proto__', 'handle'])
    expect(Object.getPrototypeOf(copy)).toBe(Object.prototype)
    expect(Object.getPrototypeOf(bareCopy)).toBe(null)
  })

  it('arguments: more than 1,000 levels are refused', () => {
    const nest = (depth: number): unknown => {
      let value: unknown = done(1)
      for (let at = 0; at < depth; at++) value = [value]
      return value
    }
    expect(findHandles([nest(999)])).toHaveLength(1)
    expect(() => findHandles([nest(100_000)])).toThrow('nested more than 1000 deep')
  })
})
