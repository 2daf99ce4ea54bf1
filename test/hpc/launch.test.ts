import { spawn } from 'node:child_process'
import {
  closeSync,
  existsSync,
  mkdirSync,
  openSync,
  readdirSync,
  writeFileSync,
  writeSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, onTestFinished } from 'vitest'
import { builtMain, watch } from '../cli/run-command.ts'
import { TestViewer } from '../dashboard/test-dashboard.ts'
import { eventually } from '../eventually.ts'
import { needs } from '../require.ts'
import { createLauncher, scriptFile } from './launcher.ts'
import { sharedSlurm, slurmNeeds } from './slurm.ts'

const script = scriptFile('launched-script')

describe('tutti launch', () => {
  const slurm = sharedSlurm()
  const queue = async (): Promise<string> => (await slurm()).run('squeue', '-h', '-o', '%i %T')

  needs(...slurmNeeds)('row 102: outside, a script runs on the first of its nodes', async () => {
    const { folder, start } = createLauncher(await slurm())
    const hostile = [`it's $(touch canary) \`touch canary\``, '--nodes', '9', '"; touch canary; "']
    const end = await start('--nodes', '2', '--time', '10', script, '7', ...hostile).ended
    expect(end.stderr).toContain(`${JSON.stringify(hostile)}\n`)
    expect(end).toMatchObject({ code: 7, stdout: 'n1: n1 n2\n' })
    expect(existsSync(join(folder, 'canary'))).toBe(false)
    const [launch = ''] = readdirSync(join(folder, 'telemetry'))
    expect(launch).toMatch(/^s-[0-9a-f]{8}\.launch$/)
    expect(readdirSync(join(folder, 'telemetry', launch))).toContain('batch.sh')
    await expect.poll(queue).toBe('')
  })

  needs(...slurmNeeds)('--dashboard shows the run of the job while it runs', async () => {
    const { env } = await slurm()
    const { folder } = createLauncher({ env })
    const words = ['--dashboard', '--nodes', '1', '--time', '10', scriptFile('long-script'), folder]
    // The built command, because it has the page.
    const launch = spawn(process.execPath, [builtMain, 'launch', ...words], { cwd: folder, env })
    const command = watch(launch)
    onTestFinished(() => void launch.kill('SIGKILL'))
    await command.seen('waits')
    const viewer = await TestViewer.open(/http:\/\/\S+/.exec(command.output())?.[0] ?? '')
    await eventually(async () => {
      const counts = { done: 1, running: 1, total: 2 }
      expect(await viewer.head()).toMatchObject({ state: 'running', counts })
    })
    writeFileSync(join(folder, 'go'), '')
    expect(await command.ended).toMatchObject({ code: 0, stdout: 'waits\n' })
    await expect.poll(queue).toBe('')
  })

  needs(...slurmNeeds)('inside, a script uses the nodes that are there', async () => {
    const { startBy } = createLauncher(await slurm())
    const salloc = ['salloc', '--quiet', '-N3', '--exclusive', '--mem=0', '-t', '10']
    const end = await startBy(salloc, script, '0', 'x').ended
    expect(end.stderr).toContain('["x"]\n')
    expect(end).toMatchObject({ code: 0, stdout: 'n1: n1 n2 n3\n' })
    await expect.poll(queue).toBe('')
  })

  needs(...slurmNeeds)(
    '--work-dir: agents have their folders there, however launched',
    async () => {
      const { env } = await slurm()
      const { folder, start, startBy } = createLauncher({ env })
      const job = ['--nodes', '1', '--time', '10']
      const salloc = ['salloc', '--quiet', '-N1', '--exclusive', '--mem=0', '-t', '10']
      const launched = {
        'a job': start(...job, '--work-dir', 'a job', script),
        'from here': start(...job, '--driver', 'here', '--work-dir', 'from here', script),
        'an allocation': startBy(salloc, '--work-dir', 'an allocation', script),
      }
      for (const [name, { ended }] of Object.entries(launched)) {
        expect(await ended, name).toMatchObject({ code: 0 })
        // The agent has created the folder, and removed its own in it.
        expect(readdirSync(join(folder, name))).toEqual([])
      }
      const refused = await start(...job, '--work-dir', '/proc/none', script).ended
      expect(refused.code).toBe(1)
      expect(refused.stderr).toMatch(/workDir: \/proc\/none cannot be used: .*belongs to user 0/)
      expect(refused.stderr).toContain('Name another one: --work-dir')
      await expect.poll(queue).toBe('')
    },
  )

  needs(...slurmNeeds)(
    "row 101: a job that Slurm refuses ends with Slurm's own message, exit 3",
    async () => {
      const { folder, start } = createLauncher(await slurm())
      const refused = {
        'Invalid partition name specified': ['--partition', 'nope'],
        'Requested node configuration is not available': ['--gpus-per-node', '9'],
        'would never start in partition main: Partition': ['--nodes', '9', '--cores-per-node', '1'],
        'would never start in partition small: Partition': ['--partition', 'small', '--time', '60'],
      }
      for (const [words, args] of Object.entries(refused)) {
        const end = await start(...args, script).ended
        expect([end.code, end.stdout], words).toEqual([3, ''])
        expect(end.stderr).toContain(words)
        const isForNodes = /nodes|gpus/.test(args[0] ?? '')
        if (isForNodes) expect(end.stderr).toMatch(/hint: .*has \d+ nodes?\. Ask for less/)
      }
      // None of them has started, so they leave nothing behind.
      expect(readdirSync(join(folder, 'telemetry'))).toEqual([])
      await expect.poll(queue).toBe('')
    },
  )

  needs(...slurmNeeds)(
    'tutti launch reports missing parts here before it requests nodes',
    async () => {
      const { env } = await slurm()
      // A folder and a file that may not be executed are no programs.
      for (const TUTTI_NATS_SERVER of ['/missing/nats-server', tmpdir(), script]) {
        const without = createLauncher({ env: { ...env, TUTTI_NATS_SERVER } })
        const end = await without.start('--nodes', '1', script).ended
        expect([end.code, end.stdout]).toEqual([3, ''])
        for (const place of ['PATH', 'TUTTI_NATS_SERVER', 'node_modules/.tutti/nats-server']) {
          expect(end.stderr).toContain(place)
        }
      }
      const { folder, start } = createLauncher({ env })
      writeFileSync(join(folder, 'telemetry'), '')
      const unwritable = await start('--nodes', '1', script).ended
      expect([unwritable.code, unwritable.stdout]).toEqual([2, ''])
      expect(unwritable.stderr).toContain('cannot be written')
      expect(await queue()).toBe('')
    },
  )

  needs(...slurmNeeds)(
    'a record folder on a full or read-only disk: no job is asked for',
    async () => {
      const { run } = await slurm()
      const { folder, start } = createLauncher(await slurm())
      const place = join(folder, 'telemetry')
      mkdirSync(place)
      await run('mount', '-t', 'tmpfs', '-o', 'size=64k', 'none', place)
      try {
        const file = openSync(join(place, 'filler'), 'w')
        expect(() => {
          for (;;) writeSync(file, Buffer.alloc(4096))
        }).toThrow('ENOSPC')
        closeSync(file)
        for (const driver of [[], ['--driver', 'here']]) {
          const full = await start(...driver, '--nodes', '1', script).ended
          expect([full.code, full.stdout, full.stderr.includes('ENOSPC')]).toEqual([2, '', true])
        }
        await run('mount', '-o', 'remount,ro', place)
        const readOnly = await start('--nodes', '1', script).ended
        expect([readOnly.code, readOnly.stderr.includes('EROFS')]).toEqual([2, true])
      } finally {
        await run('umount', place)
      }
      expect(await queue()).toBe('')
    },
  )

  needs(...slurmNeeds)('options of a new job are refused where none is submitted', async () => {
    const { env } = await slurm()
    const inside = createLauncher({ env: { ...env, SLURM_JOB_ID: '1' } })
    const bad = [
      ['--nodes', '9'],
      ['--time', '2h'],
      ['--chain', '2'],
      ['--detach'],
      ['--', '--reservation=x'],
    ]
    for (const args of bad) {
      const end = await inside.start(...args, script).ended
      expect([end.code, end.stdout], args[0]).toEqual([2, ''])
      expect(end.stderr).toContain(`${args.at(args[0] === '--' ? 1 : 0)}: no job is submitted`)
    }
    const hosts = await inside.start('--hosts', 'hosts.txt', '--mem', '1G', script).ended
    expect([hosts.code, hosts.stderr.includes('--mem: --hosts submits no job')]).toEqual([2, true])
  })

  needs(...slurmNeeds)('row 102: bad options are refused before anything is asked', async () => {
    const { folder, start } = createLauncher(await slurm())
    const unloadable = join(folder, String.raw`a\b.mjs`)
    writeFileSync(unloadable, '')
    const bad: [string, ...string[]][] = [
      ['M, M:S, H:M:S', '--time', '2h', script],
      ['line end', '--account', 'a\n#SBATCH --wrap=x', script],
      ['sets this option', '--', '--output=x', script],
      ['sets this option', '--', '--arr=0-1', script],
      ['sets this option', '--', '-a0-1', script],
      ['sets this option', '--', '-QW', script],
      ['sets this option', '--', '--open-mode=truncate', script],
      ["'--chain <n>'", '--chain', '0', script],
      ["'--chain <n>'", '--chain', '1.5', script],
      [
        "option '--driver <where>' cannot be used with option '--chain <n>'",
        '--chain',
        '2',
        '--driver',
        'here',
        script,
      ],
      ['is a folder', '.'],
      ['was not found', 'missing.ts'],
      ['script: Node cannot load', unloadable],
      ['which script', '--nodes', '2'],
      ['expected here', '--driver', 'there', script],
    ]
    for (const [words, ...args] of bad) {
      const end = await start(...args).ended
      expect([end.code, end.stdout], words).toEqual([2, ''])
      expect(end.stderr).toContain(words)
    }
    expect(existsSync(join(folder, 'telemetry'))).toBe(false)
  })
})
