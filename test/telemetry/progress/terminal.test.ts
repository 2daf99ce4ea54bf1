import { describe, expect, it } from 'vitest'
import { ProgressBlock } from '../../../src/telemetry/progress/terminal.ts'
import { Screen } from '../../pseudo-terminal.ts'

const block = (isTTY: boolean, columns: number): ProgressBlock =>
  new ProgressBlock({ write() {}, isTTY, columns })

describe('ProgressBlock', () => {
  it.each([
    [true, 40, 39],
    [true, 0, 79],
    [false, 40, 39],
    [false, 0, Infinity],
  ])(
    'ProgressBlock limits the width of a line: terminal %s, %s columns',
    (isTTY, columns, expected) => {
      expect(block(isTTY, columns).width).toBe(expected)
    },
  )

  it.each([
    [true, 24, 22],
    [true, 0, 22],
    [true, 2, 1],
    [false, 24, Infinity],
  ])('ProgressBlock limits the number of lines: terminal %s, %s rows', (isTTY, rows, expected) => {
    expect(new ProgressBlock({ write() {}, isTTY, rows }).maxLines).toBe(expected)
  })

  it('ProgressBlock is cleared once, and drawn again below printed text', () => {
    let text = ''
    const drawn = new ProgressBlock({ isTTY: true, write: (one) => void (text += one) })
    drawn.clear()
    drawn.draw(['one', 'two'])
    drawn.clear()
    drawn.clear()
    drawn.draw(['one', 'two'])
    expect(text).toBe('one\ntwo\n\r\u001B[2A\u001B[K\u001B[B\u001B[J\u001B[Aone\ntwo\n')
  })

  it('ProgressBlock cuts a line by its columns, of which wide characters have two', () => {
    let text = ''
    const drawn = new ProgressBlock({
      isTTY: true,
      columns: 11,
      write: (one) => void (text += one),
    })
    drawn.draw(['漢字漢字漢', '漢字漢字漢字', 'ab🚀🚀🚀🚀🚀', 'e\u0301'.repeat(10)])
    expect(text).toBe(`漢字漢字漢\n漢字漢字…\nab🚀🚀🚀…\n${'e\u0301'.repeat(10)}\n`)
  })

  it('ProgressBlock leaves nothing behind if an echoed key has moved the cursor', () => {
    const screen = new Screen({ columns: 40, rows: 5 })
    const write = (text: string): void => screen.write(text.replaceAll('\n', '\r\n'))
    const drawn = new ProgressBlock({ isTTY: true, columns: 40, rows: 5, write })
    drawn.draw(['session s-1', 'work 1/2'])
    write('^C')
    drawn.clear()
    write('SIGINT\n')
    expect(screen.lines).toEqual(['SIGINT'])
  })
})
