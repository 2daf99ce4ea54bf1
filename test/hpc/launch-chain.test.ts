import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { systemClock } from '../../src/foundation/clock.ts'
import { mayHaveSubmitted, parseFolderJobs } from '../../src/hpc/launch/submit-batch.ts'
import { followChain } from '../../src/hpc/launch/launch-chain.ts'
import { LaunchFolder } from '../../src/hpc/launch/launch-folder.ts'
import { SchedulerError, SlurmCommands } from '../../src/hpc/slurm/slurm-commands.ts'

const temporaryFolder = (): string => {
  const folder = mkdtempSync(join(tmpdir(), 'tutti-chain-'))
  onTestFinished(() => rmSync(folder, { recursive: true }))
  return folder
}

describe('the jobs of a launch', () => {
  it.each([
    ["echo '17|CANCELLED|None|N/A|N/A|N/A|1:00|p|'", 'CANCELLED'],
    ['echo "slurm_load_jobs error: Invalid job id specified" >&2; exit 1', 'forgotten by Slurm'],
  ])('a job that was canceled while it waited is not said to go on: %s', async (told, state) => {
    const parent = temporaryFolder()
    // As Slurm answers: 16 has run to its limit.
    const limit = '16|TIMEOUT|None|N/A|N/A|N/A|1:00|p|'
    const lines = ['#!/bin/sh', `case "$*" in *16*) echo '${limit}'; exit ;; esac`, told]
    writeFileSync(join(parent, 'squeue'), `${lines.join('\n')}\n`, { mode: 0o755 })
    writeFileSync(join(parent, 'scancel'), '#!/bin/sh\n', { mode: 0o755 })
    const folders = LaunchFolder.chooseFolders(parent, 's', 3)
    const links = folders.map((folder, at) => ({ folder, jobId: String(16 + at) }))
    folders[0]?.write('started', 'run\n')
    folders[0]?.write('ended', '')
    folders[0]?.write('exit', '1\n')
    const notices: string[] = []
    const following = followChain(links, {
      commands: new SlurmCommands({ env: { PATH: `${parent}:/bin:/usr/bin` } }),
      clock: systemClock,
      view: {
        stdout() {},
        stderr() {},
        status() {},
        notice: (line) => void notices.push(line),
      },
      signal: new AbortController().signal,
      onLink() {},
    })
    await expect(following).rejects.toThrow(`job 17 is ${state}`)
    expect(notices).toEqual([
      'job 16 is TIMEOUT: link 2 of 3, job 17, was canceled while it waited',
      `job 17: it is ${state}; the jobs after it are canceled`,
    ])
  })

  it.each([
    ['', 'CANCELLED'],
    [' DUE TO TIME LIMIT', 'TIMEOUT'],
    [' DUE TO PREEMPTION', 'PREEMPTED'],
    [' DUE TO JOB REQUEUE', 'REQUEUED (forgotten by Slurm)'],
    [' DUE TO SOMETHING NEW', 'CANCELLED DUE TO SOMETHING NEW'],
    [null, ''],
  ])(
    'jobs of a launch keep their result when Slurm has forgotten them (%s)',
    async (reason, state) => {
      const parent = temporaryFolder()
      const forgotten = 'slurm_load_jobs error: Invalid job id specified'
      const squeue = `#!/bin/sh\necho '${forgotten}' >&2; exit 1\n`
      writeFileSync(join(parent, 'squeue'), squeue, { mode: 0o755 })
      const folder = LaunchFolder.of(parent, 's')
      folder.write('started', 'run\n')
      folder.write('exit', '143\n')
      const when = '2026-01-01T00:00:00'
      const said = `slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT ${when}${reason} ***\n`
      const earlier = said.replace(String(reason), ' DUE TO NODE FAILURE')
      const begin = 'tutti launch: the script begins\n'
      folder.write('log', `${begin}${earlier}${begin}${reason === null ? '' : said}`)
      const following = followChain([{ folder, jobId: '7' }], {
        commands: new SlurmCommands({ env: { PATH: `${parent}:/bin:/usr/bin` } }),
        clock: systemClock,
        view: { stdout() {}, stderr() {}, status() {}, notice() {} },
        signal: new AbortController().signal,
        onLink() {},
      })
      if (reason === null) return expect(await following).toBe(143)
      await expect(following).rejects.toMatchObject({ message: `job 7 is ${state}` })
    },
  )

  it('jobs of a launch are polled while Slurm gives no answer, and continue', async () => {
    const parent = temporaryFolder()
    const answers = join(parent, 'answers')
    const lines = [
      '#!/bin/sh',
      `[ -e '${answers}' ] || { echo 'Unable to contact slurm controller' >&2; exit 1; }`,
      `echo '7|PENDING|BeginTime|N/A|N/A|N/A|1:00|p|'`,
    ]
    writeFileSync(join(parent, 'squeue'), `${lines.join('\n')}\n`, { mode: 0o755 })
    writeFileSync(join(parent, 'scancel'), '#!/bin/sh\n', { mode: 0o755 })
    const [folder, next] = LaunchFolder.chooseFolders(parent, 's', 2) as [
      LaunchFolder,
      LaunchFolder,
    ]
    const begin = 'tutti launch: the script begins\n'
    const said = '*** JOB 7 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO JOB REQUEUE ***\n'
    folder.write('started', 'run\n')
    folder.write('exit', '143\n')
    folder.write('log', `${begin}${said}`)
    const told: string[] = []
    const status = (line: string | null): void => {
      if (line === null || !line.includes('Slurm does not report how')) return
      told.push('silent')
      writeFileSync(answers, '')
    }
    const notice = (line: string): void => {
      told.push(line)
      folder.write('log', `${begin}${said}${begin}`)
      folder.write('exit', '0\n')
      folder.write('started', 'run\nrun\n')
    }
    const links = [
      { folder, jobId: '7' },
      { folder: next, jobId: '8' },
    ]
    const code = await followChain(links, {
      commands: new SlurmCommands({ env: { PATH: `${parent}:/bin:/usr/bin` } }),
      clock: systemClock,
      view: { stdout() {}, stderr() {}, status, notice },
      signal: new AbortController().signal,
      onLink() {},
    })
    const putBack = 'job 7 was put back into the queue and will start again'
    expect([code, told]).toEqual([0, ['silent', putBack]])
  })

  it('the jobs of a launch are found by the path of their batch script', () => {
    const lines = [
      "7 /work a/b/telemetry/s'1.launch/batch.sh",
      "8 /work a/b/telemetry/s'1.launch/allocation-2/batch.sh",
      "9 /work a/b/telemetry/s'1-2.launch/batch.sh",
      '10 (null)',
      '11',
      '',
    ]
    expect(parseFolderJobs("/work a/b/telemetry/s'1.launch", lines.join('\n'))).toEqual(['7', '8'])
  })

  it('jobs of a launch may exist after sbatch has failed without an answer', () => {
    const failure = (stderr: string, code?: string): SchedulerError =>
      new SchedulerError('', { command: '', stderr, ...(code === undefined ? {} : { code }) })
    expect(
      [
        failure('Batch job submission failed: Socket timed out on send/recv operation'),
        failure('', 'SchedulerTimeoutError'),
        failure('', 'SchedulerOutputError'),
        failure('Invalid account'),
        new Error('timed out'),
      ].map(mayHaveSubmitted),
    ).toEqual([true, true, true, false, false])
  })
})
