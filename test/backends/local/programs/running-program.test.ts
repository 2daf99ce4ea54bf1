import { expect, it } from 'vitest'
import {
  parseCpuSeconds,
  parsePeakMemory,
  readUsage,
} from '../../../../src/backends/local/programs/running-program.ts'

it('parseCpu adds the times of a process and of its children, whatever its name', () => {
  const stat = '42 (a) b (c) S 1 42 42 0 -1 4194304 100 0 0 0 150 25 10 5 20 0 1 0 900 1 1'
  expect(parseCpuSeconds(stat)).toEqual({ cpuSeconds: 1.9 })
  expect(parseCpuSeconds('42 (cut')).toEqual({})
})

it('parsePeak gives bytes, and nothing for a process that has ended', () => {
  expect(parsePeakMemory('Name:\tx\nVmHWM:\t    2048 kB\nVmRSS:\t 10 kB\n')).toEqual({
    peakMemoryBytes: 2_097_152,
  })
  expect(parsePeakMemory('Name:\tx\nState:\tZ (zombie)\n')).toEqual({})
  expect(readUsage(-1)).toEqual({})
  expect(readUsage(process.pid).peakMemoryBytes).toBeGreaterThan(1_000_000)
})
