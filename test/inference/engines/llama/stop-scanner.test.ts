import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { StopScanner } from '../../../../src/inference/engines/llama/stop-scanner.ts'
import { assertProperty } from '../../../property.ts'

function scan(stops: readonly string[], pieces: readonly string[]) {
  const scanner = new StopScanner(stops)
  const told = pieces.map((piece) => scanner.push(piece))
  return { told, hasStopped: scanner.hasStopped, rest: scanner.flush() }
}

describe('looking for stop texts', () => {
  it.each([
    [['END'], ['a E', 'N', 'D b'], ['a ', '', ''], true, ''],
    [['END'], ['a E', 'N', 'x'], ['a ', '', 'ENx'], false, ''],
    [['END'], ['a EN'], ['a '], false, 'EN'],
    [['abab'], ['aba', 'bc'], ['', ''], true, ''],
    [['b', 'abc'], ['ab', 'c'], ['a', ''], true, ''],
    [['xab', 'ab'], ['xab'], [''], true, ''],
    [[''], ['text'], ['text'], false, ''],
    [[], ['text'], ['text'], false, ''],
  ])('%j in %j', (stops, pieces, told, hasStopped, rest) => {
    expect(scan(stops, pieces)).toEqual({ told, hasStopped, rest })
  })

  it('does not depend on how the text comes in pieces, and never tells a stop text', () => {
    const letters = fc.constantFrom('a', 'b', 'c')
    const word = (maxLength: number) => fc.string({ unit: letters, minLength: 1, maxLength })
    assertProperty(
      fc.property(fc.array(word(4), { maxLength: 3 }), fc.array(word(5)), (stops, pieces) => {
        const whole = scan(stops, Array.from(pieces.join('')))
        const inPieces = scan(stops, pieces)
        const text = inPieces.told.join('') + inPieces.rest
        expect(text).toBe(whole.told.join('') + whole.rest)
        expect(inPieces.hasStopped).toBe(stops.some((stop) => pieces.join('').includes(stop)))
        expect(stops.filter((stop) => text.includes(stop))).toEqual([])
      }),
    )
  })
})
