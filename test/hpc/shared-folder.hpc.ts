import { describe, expect } from 'vitest'
import { needs, requireCommand } from '../require.ts'
import { createLauncher, scriptFile } from './launcher.ts'
import { sharedSlurm, slurmNeeds } from './slurm.ts'

describe('the folder of a launch', () => {
  const slurm = sharedSlurm()

  needs(...slurmNeeds, requireCommand('nsenter'))(
    'a node that does not see it is named, and gets functions as bundles',
    async () => {
      const cluster = await slurm()
      const { folder, start } = createLauncher(cluster)
      const script = scriptFile('functions-script')
      const launch = ['--nodes', '2', '--time', '10', script]
      const shared = await start(...launch).ended
      expect([shared.code, shared.stdout, shared.stderr]).toEqual([
        0,
        'n1 n2\n',
        expect.not.stringContaining('FolderNotShared'),
      ])
      await cluster.runAt('n2', 'mount', '-t', 'tmpfs', 'none', folder)
      const end = await start(...launch).ended
      expect([end.code, end.stdout]).toEqual([0, 'n1 n2\n'])
      expect(end.stderr).toMatch(/FolderNotShared.*\bn2\b/)
      expect(end.stderr).not.toMatch(/FolderNotShared.*\bn1\b/)
    },
  )

  needs(...slurmNeeds, requireCommand('nsenter'))(
    'one that the first node does not see is named in the error of the launch',
    async () => {
      const cluster = await slurm()
      const { folder, start } = createLauncher(cluster)
      await cluster.runAt('n1', 'mount', '-t', 'tmpfs', 'none', folder)
      const end = await start('--time', '10', '--', '--nodelist=n1', scriptFile('functions-script'))
        .ended
      expect(end.code).toBe(3)
      expect(end.stderr).toContain(`may not see ${folder}`)
      expect(end.stderr).toContain('tutti launch --check')
    },
  )
})
