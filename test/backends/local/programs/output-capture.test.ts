import fc from 'fast-check'
import { expect, it } from 'vitest'
import { OutputCapture } from '../../../../src/backends/local/programs/output-capture.ts'
import { assertProperty } from '../../../property.ts'

const capture = (chunks: readonly Uint8Array[], headBytes: number, tailBytes: number) => {
  const output = new OutputCapture({ headBytes, tailBytes })
  for (const chunk of chunks) {
    // The reader's buffer is used again.
    const reused = Uint8Array.from(chunk)
    output.push(reused)
    reused.fill(33)
  }
  return output
}

it('captured output is complete if it fits, however it is split into chunks', () => {
  const chunks = fc.array(fc.uint8Array({ maxLength: 20 }), { maxLength: 20 })
  assertProperty(
    fc.property(chunks, fc.nat(30), (parts, spare) => {
      const whole = Buffer.concat(parts)
      const output = capture(parts, Math.max(1, whole.length - spare), spare + 1)
      expect(output.text()).toBe(whole.toString())
      expect(output.total).toBe(whole.length)
    }),
  )
})

it('row 12: captured output keeps its first and last bytes, and counts the others', () => {
  const chunks = fc.array(fc.uint8Array({ maxLength: 40, max: 127 }), { maxLength: 20 })
  const size = fc.integer({ min: 1, max: 50 })
  assertProperty(
    fc.property(chunks, size, size, (parts, head, tail) => {
      const whole = Buffer.concat(parts).toString()
      const left = whole.length - head - tail
      fc.pre(left > 0)
      const marker = `\n[... ${left} bytes left out ...]\n`
      const expected = whole.slice(0, head) + marker + whole.slice(-tail)
      expect(capture(parts, head, tail).text()).toBe(expected)
    }),
  )
})

it('row 12: captured output does not cut a character in two', () => {
  const bytes = Buffer.from('aé€😀'.repeat(10))
  for (let head = 1; head < 20; head++) {
    for (let tail = 4; tail < 20; tail++) {
      const text = capture([bytes], head, tail).text()
      expect(text).not.toContain('\uFFFD')
      const [first = '', marker = '', last = ''] = text.split('\n')
      const leftOut = Number(/\d+/.exec(marker)?.[0])
      expect(Buffer.byteLength(first) + leftOut + Buffer.byteLength(last)).toBe(bytes.length)
    }
  }
})
