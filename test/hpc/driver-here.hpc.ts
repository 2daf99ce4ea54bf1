import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  utimesSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { describe, expect, onTestFinished } from 'vitest'
import { eventually } from '../eventually.ts'
import { needs, requireCommand } from '../require.ts'
import { createLauncher, type Launcher, scriptFile } from './launcher.ts'
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

  needs(...slurmNeeds)('a launcher that is killed leaves no job that waits', async () => {
    const { run } = await slurm()
    const all = ['--parsable', '-N4', '--exclusive', '-t', '10', '-o', '/dev/null']
    const blocker = (await run('sbatch', ...all, '--wrap', 'sleep 100000')).trim()
    const launcher = createLauncher(await slurm())
    const held = launcher.start(...options, scriptFile('waiting-script'), 'never')
    const elastic = launcher.start('--driver', 'here', scriptFile('elastic-script'), 'endless')
    const states = async (): Promise<string> => run('squeue', '-h', '--sort=T', '-o', '%T')
    await expect.poll(states).toBe('PENDING\nPENDING\nRUNNING\n')
    held.child.kill('SIGKILL')
    elastic.child.kill('SIGKILL')
    await expect.poll(states).toBe('RUNNING\n')
    await run('scancel', blocker)
    await expect.poll(queue).toBe('')
  })

  /** A command of Slurm before the real one on PATH, in a folder `bin` of the launcher's. */
  const launcherWith = async (name: string, lines: readonly string[]): Promise<Launcher> => {
    const { env } = await slurm()
    const launcher = createLauncher({ env: { ...env, PATH: `bin:${env['PATH']}` } })
    const real = `PATH="\${PATH#bin:}" ${name} "$@"`
    mkdirSync(join(launcher.folder, 'bin'))
    const text = ['#!/bin/sh', ...lines.map((line) => line.replace('REAL', real)), ''].join('\n')
    writeFileSync(join(launcher.folder, 'bin', name), text, { mode: 0o755 })
    return launcher
  }

  needs(...slurmNeeds)(
    'a job that sbatch has submitted without an answer is canceled',
    async () => {
      const { start } = await launcherWith('sbatch', [
        'REAL > /dev/null',
        'echo "Socket timed out on send/recv operation" >&2; exit 1',
      ])
      for (const driver of [['--driver', 'here'], []]) {
        const end = await start(...driver, '--time', '10', scriptFile('waiting-script'), 'go').ended
        expect([end.code, end.stderr]).toEqual([3, expect.stringContaining('Socket timed out')])
        await expect.poll(queue).toBe('')
      }
    },
  )

  needs(...slurmNeeds)('a job whose id cannot be written down is canceled', async () => {
    const { start } = await launcherWith('sbatch', [
      'for script in "$@"; do :; done',
      'mkdir "$(dirname "$script")/launch.json.new"',
      'REAL',
    ])
    const end = await start(...options, scriptFile('waiting-script'), 'go').ended
    expect([end.code, end.stderr]).toEqual([2, expect.stringContaining('cannot be written')])
    await expect.poll(queue).toBe('')
  })

  needs(...slurmNeeds)(
    'a job that is canceled while its first step starts is told so',
    async () => {
      const cancel = 'case "$word" in --jobid=*) scancel "${word#--jobid=}" ;; esac'
      const { start } = await launcherWith('srun', [`for word in "$@"; do ${cancel}; done`, 'REAL'])
      const end = await start(...options, scriptFile('waiting-script'), 'go').ended
      expect([end.code, end.stderr]).toEqual([
        3,
        expect.stringMatching(/AllocationLostError.*CANCELLED/),
      ])
      await expect.poll(queue).toBe('')
    },
  )

  needs(...slurmNeeds)('marks that killed jobs have left are removed by the next', async () => {
    const { start } = createLauncher(await slurm())
    const [old, fresh] = ['old', 'fresh'].map((name) => {
      const mark = mkdtempSync(`/tmp/tutti-held-${name}`)
      onTestFinished(() => rmSync(mark, { recursive: true, force: true }))
      return mark
    }) as [string, string]
    const longAgo = Date.now() / 1000 - 3600
    utimesSync(old, longAgo, longAgo)
    expect((await start(...options, scriptFile('launched-script'), '0').ended).code).toBe(0)
    await expect.poll(queue).toBe('')
    expect([old, fresh].map((mark) => existsSync(mark))).toEqual([false, true])
  })

  needs(...slurmNeeds)(
    'nodes of the launch that end are some among others to a script that asks for its own',
    async () => {
      const { run } = await slurm()
      const { folder, start } = createLauncher(await slurm())
      const goFile = join(folder, 'go')
      const launch = start(...options, scriptFile('elastic-script'), 'spare', goFile)
      await launch.seen('created')
      await run('scancel', '--name=elastic-script.ts')
      writeFileSync(goFile, '')
      const end = await launch.ended
      expect(JSON.parse(end.stdout.split('\n')[1] ?? '')).toMatchObject({ ends: ['DONE'] })
      expect([end.code, end.stderr]).toEqual([
        0,
        expect.not.stringContaining('AllocationLostError'),
      ])
    },
  )

  needs(...slurmNeeds)(
    'signals while jobs are submitted are for all of them, also the later ones',
    async () => {
      const { folder, start } = await launcherWith('sbatch', ['touch began; sleep 2', 'REAL'])
      const launch = start('--chain', '2', '--cancel-on-signal', scriptFile('waiting-script'), 'go')
      await eventually(() => expect(existsSync(join(folder, 'began'))).toBe(true))
      launch.child.kill('SIGTERM')
      const end = await launch.ended
      expect([end.code, end.stderr]).toEqual([
        143,
        expect.stringMatching(/^jobs .* are canceled$/m),
      ])
      await expect.poll(queue).toBe('')
    },
  )

  needs(...slurmNeeds)(
    "row 101: a scheduler that is silent in the end does not change the script's exit code",
    async () => {
      const silent = '[ -e away ] && { echo Unable to contact slurm controller >&2; exit 1; }'
      const { folder, start } = await launcherWith('squeue', [silent, 'REAL'])
      const launch = start(...options, scriptFile('waiting-script'), 'go')
      await launch.seen('waits')
      writeFileSync(join(folder, 'away'), '')
      writeFileSync(join(folder, 'go'), '')
      const end = await launch.ended
      expect([end.code, end.stdout]).toEqual([0, 'waits\ndone\n'])
      expect(end.stderr).toContain('warning: squeue failed: Unable to contact slurm controller')
      await expect.poll(queue).toBe('')
    },
  )

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
