import { expect, it } from 'vitest'
import { captureBytes, OutputDeltas } from '../../src/backends/captured-text.ts'
import { OutputCapture } from '../../src/backends/local/programs/output-capture.ts'

const bounds = { headBytes: captureBytes, tailBytes: captureBytes }

/** Reads the output after each piece that a program writes. */
function follow(written: readonly string[]): string[] {
  const capture = new OutputCapture(bounds)
  const pieces = new OutputDeltas()
  return written.map((text, at) => {
    capture.push(Buffer.from(text))
    return pieces.next(capture.text(), capture.isTruncated, at === written.length - 1)
  })
}

it('output pieces: a line is shown when it is whole, and the last one with the end', () => {
  expect(follow(['one\ntw', 'o\n', '', 'three'])).toEqual(['one\n', 'two\n', '', 'three'])
})

it('output pieces: nothing is missing or repeated where more than is kept was written', () => {
  const lines = Array.from({ length: 40 }, (_, at) => `${at} ${'ä'.repeat(4000)}\n`)
  expect(lines.join('').length).toBeGreaterThan(2 * captureBytes)
  expect(follow(lines)).toEqual(lines)
})

it('output pieces: a mark tells how many bytes could not be shown', () => {
  const [first, last] = ['a'.repeat(captureBytes), 'z'.repeat(captureBytes)]
  const shown = follow([`${first}\n`, `${'m'.repeat(1000)}\n${last}`, '!'])
  expect(shown[0]).toBe(`${first}\n`)
  expect(shown[1]).toBe(`\n[... 1001 bytes left out ...]\n${last}`)
  expect(shown[2]).toBe('!')
})

it('output pieces: a program that writes such a mark itself is shown as it is', () => {
  const own = 'x\n[... 5 bytes left out ...]\ny\n'
  const rest = `${'z'.repeat(99)}\n`.repeat(1400)
  const shown = follow([own, rest, ''])
  expect(shown[0]).toBe(own)
  expect(shown[1]?.startsWith('z'.repeat(99))).toBe(true)
})
