import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { isNoAnswer, SchedulerError, SlurmCommands } from '../../../src/hpc/slurm/slurm-commands.ts'

/** A folder whose only program is a command of Slurm that does what the script says. */
function fakeCommand(name: string, script: string): string {
  const folder = mkdtempSync(join(tmpdir(), 'tutti-command-'))
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }))
  writeFileSync(join(folder, name), `#!/bin/sh\n${script}\n`)
  chmodSync(join(folder, name), 0o755)
  return folder
}

const failureOf = async (command: Promise<unknown>): Promise<SchedulerError> => {
  const error = await command.then(
    () => null,
    (thrown: unknown) => thrown,
  )
  expect(error).toBeInstanceOf(SchedulerError)
  return error as SchedulerError
}

describe('commands of the scheduler', () => {
  it('row 101: a missing command is an error that names it', async () => {
    const commands = new SlurmCommands({ env: { PATH: '/nonexistent' } })
    const error = await failureOf(commands.run('sbatch', '--parsable', 'job.sh'))
    expect(error.code).toBe('SchedulerMissingError')
    expect(error.message).toBe('sbatch was not found (sbatch --parsable job.sh)')
  })

  it("row 101: a command that fails is an error with the scheduler's words", async () => {
    const folder = fakeCommand('sbatch', 'echo "sbatch: error: invalid partition" >&2; exit 1')
    const commands = new SlurmCommands({ env: { PATH: `${folder}:/usr/bin:/bin` } })
    const error = await failureOf(commands.run('sbatch', '-p', 'x'))
    const stderr = 'sbatch: error: invalid partition'
    expect(error).toMatchObject({ code: 'SchedulerError', command: 'sbatch -p x', stderr })
    expect(error.message).toContain(stderr)
  })

  it('row 101: a command that does not answer is ended at its time limit', async () => {
    const folder = fakeCommand('squeue', 'echo "waiting for slurmctld" >&2; exec sleep 1000')
    const env = { PATH: `${folder}:/usr/bin:/bin` }
    const commands = new SlurmCommands({ env, timeoutSeconds: 0.5 })
    const error = await failureOf(commands.query('squeue', '-h'))
    expect(error.code).toBe('SchedulerTimeoutError')
    expect(error.message).toContain('squeue did not answer within 0.5 s')
    expect(isNoAnswer(error)).toBe(true)
  })

  it('row 101: a request for too many nodes says how many there are', async () => {
    const words = 'Batch job submission failed: Node count specification invalid'
    const folder = fakeCommand('sbatch', `echo "sbatch: error: ${words}" >&2; exit 1`)
    const list = 'test "$4" = --partition=main && echo n3; printf "n1\\nn2\\nn1\\n"'
    writeFileSync(join(folder, 'sinfo'), `#!/bin/sh\n${list}\n`, { mode: 0o755 })
    const commands = new SlurmCommands({ env: { PATH: `${folder}:/usr/bin:/bin` } })
    const error = await failureOf(commands.submit('--nodes=40', 'job.sh'))
    expect(error.message).toContain(words)
    expect(error.hint).toBe('The cluster has 2 nodes. Ask for less, or for another partition.')
    const inMain = await failureOf(commands.submit('--nodes=40', '--partition=main', 'job.sh'))
    expect(inMain.hint).toContain('Partition main has 3 nodes.')
  })

  it('row 101: a controller that is away has refused nothing', async () => {
    const words =
      'Batch job submission failed: Unable to contact slurm controller (connect failure)'
    const folder = fakeCommand('sbatch', `echo "sbatch: error: ${words}" >&2; exit 1`)
    const commands = new SlurmCommands({ env: { PATH: `${folder}:/usr/bin:/bin` } })
    expect(isNoAnswer(await failureOf(commands.submit('job.sh')))).toBe(true)
    const other = fakeCommand('sbatch', 'echo "sbatch: error: Invalid account" >&2; exit 1')
    const refusing = new SlurmCommands({ env: { PATH: `${other}:/usr/bin:/bin` } })
    expect(isNoAnswer(await failureOf(refusing.submit('job.sh')))).toBe(false)
  })

  it('commands see where Slurm is, and no options of the step they come from', async () => {
    const folder = fakeCommand('srun', 'env')
    const step = { SLURM_NTASKS: '9', SLURM_JOB_ID: '1', PMIX_RANK: '0', PMI_FD: '3' }
    const options = { SBATCH_PARTITION: 'x', SQUEUE_FORMAT: '%i', SINFO_PARTITION: 'y' }
    const env = { PATH: `${folder}:/usr/bin:/bin`, SLURM_CONF: '/etc/s.conf', HOME: '/root' }
    const commands = new SlurmCommands({ env: { ...env, ...step, ...options } })
    const names = (await commands.run('srun')).match(/^\w+(?==)/gm)?.toSorted()
    const own = ['HOME', 'PATH', 'SLURM_CONF']
    const ofShell = new Set(['PWD', '_', 'SHLVL', 'OLDPWD'])
    expect(names?.filter((name) => !ofShell.has(name))).toEqual(own)
  })

  it('sbatch has a person’s defaults, without those that a launch decides itself', async () => {
    const folder = fakeCommand('sbatch', 'env')
    const defaults = { SBATCH_ACCOUNT: 'chem', SBATCH_RESERVATION: 'morning' }
    const others = { SBATCH_WAIT: '1', SBATCH_ARRAY_INX: '0-1', SBATCH_EXPORT: 'NONE' }
    const env = { PATH: `${folder}:/usr/bin:/bin`, ...defaults, ...others, SBATCH_ERROR: 'e' }
    const output = await new SlurmCommands({ env }).submit('--parsable')
    expect(output.match(/^SBATCH_\w+/gm)?.toSorted()).toEqual(Object.keys(defaults).toSorted())
  })
})
