import { describe, expect, it } from 'vitest'
import { newSpanId, newTraceId, newUuid } from '../../src/foundation/ids.ts'

const makers: [string, () => string, RegExp][] = [
  ['newUuid', newUuid, /^[0-9a-f]{12}4[0-9a-f]{3}[89ab][0-9a-f]{15}$/],
  ['newTraceId', newTraceId, /^[0-9a-f]{32}$/],
  ['newSpanId', newSpanId, /^[0-9a-f]{16}$/],
]

describe('ids', () => {
  for (const [name, make, pattern] of makers) {
    it(`${name} has its form, is never zero and never comes twice`, () => {
      const ids = Array.from({ length: 20_000 }, make)
      expect(ids.filter((id) => !pattern.test(id) || /^0+$/.test(id))).toEqual([])
      expect(new Set(ids).size).toBe(ids.length)
    })
  }
})
