import { describe, expect, it } from 'vitest'
import { ProgressBlock } from '../../../src/telemetry/progress/terminal.ts'

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

  it.each([
    [true, 24, 22],
    [true, 0, 22],
    [true, 2, 1],
    [false, 24, Infinity],
  ])('says how many lines it may have: terminal %s, %s rows', (isTTY, rows, expected) => {
    expect(new ProgressBlock({ write() {}, isTTY, rows }).mostLines).toBe(expected)
  })

  it('is cleared once, and drawn again only if it was cleared', () => {
    let text = ''
    const drawn = new ProgressBlock({ isTTY: true, write: (one) => void (text += one) })
    drawn.clear()
    drawn.redraw()
    drawn.draw(['one', 'two'])
    drawn.redraw()
    drawn.clear()
    drawn.clear()
    drawn.redraw()
    expect(text).toBe('one\ntwo\n\u001B[2A\u001B[K\u001B[B\u001B[J\u001B[Aone\ntwo\n')
  })
})
