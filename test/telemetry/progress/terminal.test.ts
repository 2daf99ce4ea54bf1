import { describe, expect, it } from 'vitest'
import { ProgressBlock, withoutRewind } from '../../../src/telemetry/progress/terminal.ts'

const block = (isTTY: boolean, columns: number): ProgressBlock =>
  new ProgressBlock({ write() {}, isTTY, columns })

describe('ProgressBlock', () => {
  it.each([
    [true, 40, 39],
    [true, 0, 79],
    [false, 40, 39],
    [false, 0, Infinity],
  ])('says how wide a line may be: terminal %s, %s columns', (isTTY, columns, expected) => {
    expect(block(isTTY, columns).width).toBe(expected)
  })

  it('withoutRewind removes the codes that go back, and nothing else', () => {
    expect(withoutRewind('\u001B[12A\u001B[Jtwo\n')).toBe('two\n')
    expect(withoutRewind('two\n')).toBe('two\n')
  })
})
