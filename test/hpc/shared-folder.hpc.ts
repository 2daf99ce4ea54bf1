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
})
