import { readdirSync, readFileSync } from 'node:fs'
import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { parseGpuLine } from '../../../src/backends/sampling/nvidia-smi.ts'
import { assertProperty } from '../../property.ts'

/** Outputs of the query, of one call or of several in a row: every file is read. */
const folder = new URL('./fixtures/', import.meta.url)
const outputs = readdirSync(folder).filter((name) => /^nvidia-smi-.*\.csv$/.test(name))

describe('parseGpuLine', () => {
  it.each(outputs)('reads every line of %s as a GPU of the machine', (name) => {
    const lines = readFileSync(new URL(name, folder), 'utf8').trimEnd().split('\n')
    const readings = lines.map(parseGpuLine)
    const ids = [...new Set(readings.map((reading) => reading?.gpu_id))]
    expect(ids).toEqual(ids.map((_, index) => index))
    for (const reading of readings) {
      expect(reading?.gpu_percent ?? 0).toBeGreaterThanOrEqual(0)
      expect(reading?.gpu_percent ?? 0).toBeLessThanOrEqual(100)
    }
  })

  it('gives the readings of a machine with four GPUs', () => {
    const text = readFileSync(new URL('nvidia-smi-four-gpus.csv', folder), 'utf8')
    expect(text.trimEnd().split('\n').map(parseGpuLine)).toEqual([
      { gpu_id: 0, gpu_percent: 37 },
      { gpu_id: 1, gpu_percent: 100 },
      { gpu_id: 2, gpu_percent: 0 },
      { gpu_id: 3, gpu_percent: null },
    ])
  })

  it('row 59: clamps what is out of range, and keeps a GPU that does not tell', () => {
    expect(parseGpuLine('0, 200 %')).toEqual({ gpu_id: 0, gpu_percent: 100 })
    expect(parseGpuLine('0, -7\r')).toEqual({ gpu_id: 0, gpu_percent: 0 })
    expect(parseGpuLine('7, [Not Supported]')).toEqual({ gpu_id: 7, gpu_percent: null })
    expect(parseGpuLine('7, [GPU requires reset]')).toEqual({ gpu_id: 7, gpu_percent: null })
  })

  it('row 59: takes no other text for a reading', () => {
    const others = ['', ',', '0', '0,', ', 5', '0, NaN', '0, five', '9999, 5', '-1, 5', '0, 5, 6']
    const failure = 'NVIDIA-SMI has failed because it could not communicate with the driver'
    for (const line of [...others, failure]) expect(parseGpuLine(line)).toBeUndefined()
  })

  it('row 59: gives a number from 0 to 100, null or nothing for any text', () => {
    const line = fc.oneof(fc.string(), fc.tuple(fc.nat(), fc.double()).map(String))
    assertProperty(
      fc.property(line, (text) => {
        const percent = parseGpuLine(text)?.gpu_percent ?? 0
        expect(percent >= 0 && percent <= 100).toBe(true)
      }),
    )
  })
})
