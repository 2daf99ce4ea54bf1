import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect } from 'vitest'
import { needs, requireCommand } from '../require.ts'
import { createLauncher, scriptFile } from './launcher.ts'
import { sharedSlurm, slurmNeeds } from './slurm.ts'

const options = ['--driver', 'here', '--time', '10', '--nodes', '2']

describe('tutti launch --driver here, outside of an allocation', () => {
  const slurm = sharedSlurm()
  const queue = async (): Promise<string> => (await slurm()).run('squeue', '-h', '-o', '%T')

  needs(...slurmNeeds)('the script runs here, its tasks on the nodes of a new job', async () => {
    const { start } = createLauncher(await slurm())
    const end = await start(...options, scriptFile('launched-script'), '7', 'a b').ended
    // Not on a node: Slurm has given it no name.
    expect(end).toMatchObject({ code: 7, stdout: 'undefined: n1 n2\n' })
    expect(end.stderr).toContain('["a b"]\n')
    await expect.poll(queue).toBe('')
    const detached = await start(...options, '--detach', scriptFile('launched-script')).ended
    expect([detached.code, detached.stderr.includes('--detach')]).toEqual([2, true])
  })

  needs(...slurmNeeds)(
    'a script that names no nodes gets one, until its backend is closed',
    async () => {
      const { start } = createLauncher(await slurm())
      const end = await start('--driver', 'here', scriptFile('launched-script'), '7').ended
      expect(end).toMatchObject({ code: 7, stdout: 'undefined: n1\n' })
      expect(await queue()).toBe('')
    },
  )

  needs(...slurmNeeds)('a launcher that is killed leaves no job', async () => {
    const { folder, start } = createLauncher(await slurm())
    const launch = start(...options, scriptFile('waiting-script'), join(folder, 'never'))
    await launch.seen('waits')
    expect(await queue()).toBe('RUNNING\n')
    launch.child.kill('SIGKILL')
    await expect.poll(queue).toBe('')
  })

  needs(...slurmNeeds)('row 101: a job that is canceled is a lost allocation, exit 3', async () => {
    const cluster = await slurm()
    const { folder, start } = createLauncher(cluster)
    const launch = start(...options, scriptFile('waiting-script'), join(folder, 'go'))
    await launch.seen('waits')
    await cluster.run('scancel', '--user=root')
    await expect.poll(queue).toBe('')
    writeFileSync(join(folder, 'go'), '')
    const end = await launch.ended
    expect([end.code, end.stderr]).toEqual([
      3,
      expect.stringMatching(/AllocationLostError.*CANCELLED/),
    ])
    await expect.poll(queue).toBe('')
  })

  needs(...slurmNeeds, requireCommand('nsenter'))(
    'a node that does not reach this machine is told, and no job is left',
    async () => {
      const { runAt, conf } = await slurm()
      const { start } = createLauncher(await slurm())
      // It still reaches the controller, which has an address of its own.
      const [, subnet = ''] = /NodeAddr=([\d.]+)\.\d+/.exec(readFileSync(conf, 'utf8')) ?? []
      await runAt('n1', 'ip', 'route', 'add', 'prohibit', `${subnet}.1/32`)
      const end = await start(...options, scriptFile('launched-script')).ended
      expect([end.code, end.stdout]).toEqual([3, ''])
      expect(end.stderr).toContain('node n1 and this machine do not reach each other')
      expect(end.stderr).toContain('hint: Leave out --driver here')
      await expect.poll(queue).toBe('')
    },
  )
})
