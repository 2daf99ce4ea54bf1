import { expect, it } from 'vitest'
import { loadStorySlot } from '../open-engine.ts'

const millis = (): number => process.cpuUsage().user / 1000

/** With llama.cpp's flash attention, the second takes four to twelve times the first. */
it('tokens after a long context take about as much CPU time as the first', async () => {
  const { slot } = await loadStorySlot({ batchSize: 512, contextLength: 256 })
  const tokens = Array.from({ length: 20 }, (_, at) => 300 + at)
  const min = [Infinity, Infinity]
  for (let round = 0; round < 5; round++) {
    await slot.truncate(0)
    for (const part of [0, 1]) {
      const before = millis()
      await slot.evaluate(tokens)
      min[part] = Math.min(min[part] ?? Infinity, millis() - before)
      if (part === 0) await slot.evaluate(Array.from({ length: 200 }, (_, at) => 400 + at))
    }
  }
  const [first = 0, late = 0] = min
  expect(late / first).toBeLessThan(3)
})
