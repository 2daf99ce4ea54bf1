import { spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, describe, expect, it } from 'vitest'
import { Nvml } from '../../../src/backends/sampling/nvml.ts'

const folder = mkdtempSync(join(tmpdir(), 'tutti-nvml-'))
const source = fileURLToPath(new URL('./fixtures/fake-nvml.c', import.meta.url))

afterAll(() => rmSync(folder, { recursive: true, force: true }))

/** A library with NVML's interface and GPUs of our making. */
function compile(name: string, ...flags: string[]): string | undefined {
  const path = join(folder, name)
  const run = spawnSync('cc', ['-shared', '-fPIC', ...flags, '-o', path, source])
  return run.status === 0 ? path : undefined
}

const library = compile('libworks.so')

describe.runIf(library !== undefined)('Nvml with a library (needs a C compiler)', () => {
  it('row 59: Nvml reads each GPU and clamps values; a GPU that fails is null', async () => {
    const nvml = new Nvml(library)
    expect(await nvml.probe()).toEqual({ state: 'ready' })
    const expected = [
      { gpu_id: 0, gpu_percent: 42 },
      { gpu_id: 1, gpu_percent: null },
      { gpu_id: 2, gpu_percent: 100 },
      { gpu_id: 3, gpu_percent: null },
    ]
    expect(await nvml.sample()).toEqual(expected)
    expect(await nvml.sample()).toEqual(expected)
    await nvml.close()
    await nvml.close()
    expect(await nvml.sample()).toEqual([])
  })

  it('row 59: Nvml is broken when the driver is', async () => {
    const nvml = new Nvml(compile('libbroken.so', '-DINIT_CODE=9'))
    expect(await nvml.probe()).toEqual({ state: 'broken', reason: 'nvmlInit_v2 returned 9' })
    await nvml.close()
  })
})

describe('Nvml without its library', () => {
  it('Nvml is absent without its library', async () => {
    const nvml = new Nvml(join(folder, 'libmissing.so'))
    expect(await nvml.probe()).toMatchObject({ state: 'absent' })
    await nvml.close()
  })
})
