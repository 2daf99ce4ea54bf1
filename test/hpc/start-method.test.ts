import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest'
import type * as Hpc from '../../src/hpc/index.ts'

/** As in a new process: what was chosen before is forgotten. */
async function freshModule(): Promise<typeof Hpc> {
  vi.resetModules()
  return import('../../src/hpc/index.ts')
}

function launchedWith(facts: object): void {
  const folder = mkdtempSync(join(tmpdir(), 'tutti-method-'))
  const file = join(folder, 'launch.json')
  writeFileSync(file, JSON.stringify(facts))
  vi.stubEnv('TUTTI_LAUNCH', file)
  onTestFinished(() => {
    vi.unstubAllEnvs()
    rmSync(folder, { recursive: true, force: true })
  })
}

describe('the start method of HPC backends', () => {
  beforeEach(() => vi.stubEnv('TUTTI_LAUNCH', ''))

  it('a backend without a start method is refused with the call to type', async () => {
    const { HpcBackend, setStartMethod } = await freshModule()
    await expect(HpcBackend.create()).rejects.toMatchObject({
      name: 'StateError',
      hint: expect.stringContaining("setStartMethod('slurm')") as unknown,
    })
    // That was refused; nothing was created too early.
    expect(() => setStartMethod('slurm')).not.toThrow()
  })

  it('outside of tutti launch, a backend is refused with the command to type', async () => {
    const { HpcBackend, setStartMethod } = await freshModule()
    setStartMethod('slurm')
    await expect(HpcBackend.create({ name: 'x' })).rejects.toMatchObject({
      name: 'StateError',
      message: 'this script was not started by `tutti launch`',
      hint: expect.stringContaining('tutti launch --nodes') as unknown,
    })
  })

  it('the start method is set once: another or an unknown one is refused', async () => {
    const { setStartMethod } = await freshModule()
    expect(() => setStartMethod('pbs' as never)).toThrow(/Expected `method`/)
    setStartMethod('hosts')
    setStartMethod('hosts')
    expect(() => setStartMethod('slurm')).toThrow(
      expect.objectContaining({ name: 'StateError' }) as Error,
    )
  })

  it('a cache of modules of the launcher is not passed on, one of the user is', async () => {
    for (const [chosen, left] of [
      ['/cache', undefined],
      ['/own', '/own'],
    ]) {
      launchedWith({ method: 'hosts', hosts: ['a'], moduleCache: '/cache' })
      vi.stubEnv('NODE_COMPILE_CACHE', chosen)
      const { HpcBackend, setStartMethod } = await freshModule()
      setStartMethod('hosts')
      await expect(HpcBackend.create({ allocations: [{ max: 1 }] })).rejects.toMatchObject({
        field: 'allocations',
      })
      expect(process.env['NODE_COMPILE_CACHE']).toBe(left)
    }
  })

  it('the start method must be the one of the launcher', async () => {
    launchedWith({ method: 'hosts', hosts: ['a'] })
    const { HpcBackend, setStartMethod } = await freshModule()
    setStartMethod('slurm')
    await expect(HpcBackend.create()).rejects.toMatchObject({
      name: 'StateError',
      hint: "Call setStartMethod('hosts').",
    })
  })

  it('row 102: hosts that a remote shell could take for something else are refused', async () => {
    launchedWith({ method: 'hosts', hosts: ['a'] })
    const { HpcBackend, setStartMethod } = await freshModule()
    setStartMethod('hosts')
    for (const host of ['-oProxyCommand=x', 'a b', 'a;b', '$(id)', 'a\nb', '']) {
      const creating = HpcBackend.create({ hosts: ['first', host] })
      await expect(creating, host).rejects.toMatchObject({ name: 'ValueError', field: 'hosts[1]' })
    }
    await expect(HpcBackend.create({ hosts: ['a', 'a'] })).rejects.toThrow(/`hosts\[1\]`.* once/)
    await expect(HpcBackend.create({ hosts: [] })).rejects.toThrow(/Expected `hosts` to be a list/)
    const unknown = { nodes: 4 } as unknown as Hpc.HpcBackendOptions
    await expect(HpcBackend.create(unknown)).rejects.toThrow(/nodes/)
  })
})
