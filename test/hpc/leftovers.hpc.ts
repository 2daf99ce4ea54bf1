import { chownSync, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, onTestFinished } from 'vitest'
import { needs } from '../require.ts'
import { createLauncher, scriptFile } from './launcher.ts'
import { sharedSlurm, slurmNeeds } from './slurm.ts'

const options = ['--nodes', '2', '--time', '10', scriptFile('interrupted-script')]

describe('temporary files of a launched script and of its agents', () => {
  const slurm = sharedSlurm()
  const queue = async (): Promise<string> => (await slurm()).run('squeue', '-h', '-o', '%T')

  /** A launcher whose jobs have a folder of their own for temporary files, on all nodes. */
  async function launcher() {
    const { env } = await slurm()
    const files = mkdtempSync(join(tmpdir(), 'tutti-left-'))
    onTestFinished(() => rmSync(files, { recursive: true, force: true }))
    const left = (): string[] => readdirSync(files, { recursive: true, encoding: 'utf8' })
    return { ...createLauncher({ env: { ...env, TMPDIR: files } }), files, left }
  }

  needs(...slurmNeeds)(
    'temporary files of a script and its agents are removed when the job is canceled',
    async () => {
      const { start, folder, left } = await launcher()
      const launch = start(...options, join(folder, 'never'))
      await launch.seen('waits')
      expect(left().filter((name) => name.endsWith('key.pem'))).toHaveLength(1)
      await (await slurm()).run('scancel', '--user=root')
      await launch.ended
      await expect.poll(queue).toBe('')
      await expect.poll(left).toEqual([])
    },
  )

  needs(...slurmNeeds)(
    'temporary files of a script and its agents are removed when the script is killed',
    async () => {
      const { start, folder, left } = await launcher()
      const launch = start(...options, join(folder, 'never'))
      await launch.seen('waits')
      const { run } = await slurm()
      const job = (await run('squeue', '-h', '-o', '%i')).trim()
      // The job may end before the step that ends it has reported its exit.
      const kill = ['pkill', '-KILL', '-f', 'interrupted-script.ts /']
      await run('srun', '--overlap', '--jobid', job, '-N1', '-n1', ...kill).catch(() => {})
      await launch.ended
      await expect.poll(queue).toBe('')
      await expect.poll(left).toEqual([])
    },
  )

  needs(...slurmNeeds)(
    'temporary files of a killed run are removed by the next, others stay',
    async () => {
      const { start, folder, files, left } = await launcher()
      const first = start(...options, join(folder, 'never'))
      await first.seen('waits')
      const { runAt } = await slurm()
      const processes = ['-f', '/(node-agent|watcher-program|guard|interrupted-script|nats-server)']
      // All are stopped before the first is killed: none of them can remove anything.
      for (const signal of ['-STOP', '-KILL']) {
        for (const node of ['n2', 'n1']) await runAt(node, 'pkill', signal, ...processes)
      }
      await first.ended
      await expect.poll(queue).toBe('')
      const names = readdirSync(files)
      expect(names.filter((name) => name.startsWith('tutti-agent-'))).toHaveLength(2)
      expect(left().filter((name) => name.endsWith('key.pem'))).toHaveLength(1)
      // As another user has left it, or put it there.
      const foreign = `${names.find((name) => name.startsWith('tutti-nats-'))}x`
      mkdirSync(join(files, foreign))
      chownSync(join(files, foreign), 65_534, 65_534)
      writeFileSync(join(folder, 'go'), '')
      expect((await start(...options, join(folder, 'go')).ended).code).toBe(0)
      await expect.poll(left).toEqual([foreign])
    },
  )
})
