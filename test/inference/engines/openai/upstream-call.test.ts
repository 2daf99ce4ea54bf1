import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { readEventData } from '../../../../src/inference/engines/openai/upstream-call.ts'
import { assertProperty } from '../../../property.ts'

async function* toBytes(pieces: Iterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  yield* pieces
}

async function collect(pieces: Iterable<Uint8Array>): Promise<string[]> {
  const found: string[] = []
  for await (const data of readEventData(toBytes(pieces))) found.push(data)
  return found
}

describe('eventData', () => {
  it('eventData returns the same data however the bytes were cut', async () => {
    const line = fc.string({ unit: 'grapheme', minLength: 1 }).filter((one) => !/[\r\n]/.test(one))
    const size = fc.integer({ min: 1, max: 9 })
    await assertProperty(
      fc.asyncProperty(fc.array(line, { maxLength: 8 }), size, async (lines, length) => {
        const bytes = new TextEncoder().encode(
          lines.map((one) => `: ping\n\nevent: x\ndata: ${one}\r\n\r\n`).join(''),
        )
        const pieces = Array.from({ length: Math.ceil(bytes.length / length) }, (_, at) =>
          bytes.subarray(at * length, (at + 1) * length),
        )
        expect(await collect(pieces)).toEqual(lines)
      }),
    )
  })

  it.each<[what: string, piece: string, max: number]>([
    ['an event', 'data: '.padEnd(2 ** 20, 'x'), 20],
    ['empty lines', '\n'.repeat(2 ** 20), 20],
    ['comments', ': ping\n\n'.repeat(2 ** 17), 20],
    ['an answer', `data: ${'x'.repeat(2 ** 22)}\n\n`, 80],
  ])('eventData fails for endless input: %s', async (_, text, max) => {
    const piece = new TextEncoder().encode(text)
    let taken = 0
    const endless = function* () {
      for (; taken < 100; taken++) yield piece
    }
    const reading = collect(endless())
    await expect(reading).rejects.toMatchObject({ code: 'EngineContractError' })
    expect(taken).toBeLessThan(max)
  })
})
