import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { spawn } from 'node:child_process'
import { describe, expect, it, onTestFinished } from 'vitest'
import { lockPathOf } from '../../../src/checkpoint/lock.ts'
import { type RunRequest, writeRequest } from '../../../src/checkpoint/run-file.ts'
import { LaunchFolder } from '../../../src/hpc/launch/launch-folder.ts'
import { Session } from '../../../src/session/session.ts'
import { type CommandEnd, watch } from '../run-command.ts'

const program = fileURLToPath(new URL('../../../src/cli/launch/begin-run.ts', import.meta.url))
const id = 's-12345678'

/**
 * The files that a launcher writes for a chain of two jobs, 11 and 12, as if Slurm had accepted
 * them.
 */
function createChain(): readonly [LaunchFolder, LaunchFolder] {
  const parent = mkdtempSync(join(tmpdir(), 'tutti-begin-'))
  onTestFinished(() => rmSync(parent, { recursive: true, force: true }))
  const folders = LaunchFolder.chooseFolders(parent, id, 2)
  const names = [`${id}.launch`, `${id}-2.launch`]
  const command = { kind: 'script', file: '/x.ts', arguments: [], folder: parent } as const
  for (const [at, folder] of folders.entries()) {
    const chain = { at, folders: names }
    folder.write('facts', JSON.stringify({ method: 'slurm', jobId: String(11 + at), chain }))
    const request = { command, keep_results: true, session_id: id, resume: null }
    writeRequest(folder.file('request'), request)
  }
  return folders as [LaunchFolder, LaunchFolder]
}

/** As the first job leaves it: its session has written a record. */
async function recordFirst(folder: LaunchFolder): Promise<string> {
  await using session = new Session([], { id })
  const checkpointPath = join(folder.path, '..')
  const { checkpointFile } = await session.startTelemetry({ checkpointPath, keepResults: true })
  writeFileSync(`${folder.file('request')}.record`, JSON.stringify({ record: checkpointFile }))
  return checkpointFile ?? ''
}

/** A process on another node has the record of the session. */
function lockBy(folder: LaunchFolder, job: string): void {
  const holder = { pid: 1, start_time: '1', host: 'elsewhere', token: '0123456789ab' }
  const text = JSON.stringify({ ...holder, job: { id: job, cluster: 'c' } })
  writeFileSync(lockPathOf(join(folder.path, '..'), id), `${text}\n`)
}

/** In job 12, where Slurm does not answer. */
function begin(folder: LaunchFolder): Promise<CommandEnd> {
  const { NODE_COMPILE_CACHE } = process.env
  const env = { NODE_COMPILE_CACHE, PATH: '/nowhere', SLURM_JOB_ID: folder.facts()?.jobId }
  return watch(spawn(process.execPath, [program, folder.path], { env })).ended
}

const requestOf = (folder: LaunchFolder): RunRequest =>
  JSON.parse(readFileSync(folder.file('request'), 'utf8')) as RunRequest

describe('the beginning of a later run of a launch', () => {
  const killed = 'slurmstepd-n1: error: *** JOB 11 ON n1 CANCELLED AT 2026-01-01T00:00:00'

  it('a job of a chain goes on with the record of one whose time was over', async () => {
    const [first, second] = createChain()
    const record = await recordFirst(first)
    first.write('started', 'run\n')
    first.write('exit', '1\n')
    first.write('ended', '')
    const end = await begin(second)
    expect(end).toMatchObject({ code: 0, stdout: '' })
    expect(end.stderr).toBe(`link 2 of 2 (job 12) continues ${record}\n`)
    const resume = { record, session_id: id, changed: 'refuse', keep_failed: false }
    expect(requestOf(second).resume).toEqual(resume)
  })

  const own = { started: 'run\n', log: 'tutti launch: the script begins\n' }
  const stops = {
    'ended with exit code 0': { ...own, exit: '0\n' },
    'ended with exit code 7': { ...own, exit: '7\n' },
    'ended with exit code 137': { ...own, exit: '137\n' },
    'job 11 was canceled': { ...own, exit: '143\n', ended: '', log: `${killed} ***\n` },
    'the previous job was canceled': {},
  } as const
  for (const [why, files] of Object.entries(stops)) {
    it(`a job of a chain does nothing after: ${why}`, async () => {
      const [first, second] = createChain()
      for (const [name, text] of Object.entries(files)) first.write(name as 'exit', text)
      const end = await begin(second)
      expect(end).toMatchObject({ code: 0, stdout: 'stop\n' })
      expect(end.stderr).toContain(why)
      expect(requestOf(second).resume).toBeNull()
    })
  }

  const losses = {
    'a time limit that the script did not see': {
      exit: '143\n',
      log: `${killed} DUE TO TIME LIMIT ***`,
    },
    'a preemption': { exit: '0\n', log: `${killed} DUE TO PREEMPTION ***` },
    'a node that died': {},
    'a second run that no one has canceled': {
      exit: '1\n',
      ended: '',
      log: `${killed} ***\ntutti launch: the script begins\n`,
    },
  } as const
  for (const [what, files] of Object.entries(losses)) {
    it(`a job of a chain goes on after: ${what}`, async () => {
      const [first, second] = createChain()
      first.write('started', 'run\n')
      for (const [name, text] of Object.entries(files)) first.write(name as 'exit', text)
      const end = await begin(second)
      expect(end).toMatchObject({ code: 0, stdout: '' })
      expect(end.stderr).toContain('starts from the beginning: nothing was recorded')
    })
  }

  it('a run that was put back goes on, also past a lock of its own job elsewhere', async () => {
    const [first] = createChain()
    const record = await recordFirst(first)
    first.write('started', 'run\n')
    lockBy(first, '11')
    const end = await begin(first)
    expect(end.code).toBe(0)
    expect(end.stderr).toContain(`was put back into the queue, and continues ${record}`)
    expect(requestOf(first).resume?.record).toBe(record)
    expect(readdirSync(join(first.path, '..')).filter((name) => name.includes('lock'))).toEqual([])
  })

  it('a record that another job may still write is refused', async () => {
    const [first] = createChain()
    await recordFirst(first)
    first.write('started', 'run\n')
    lockBy(first, '99')
    const end = await begin(first)
    expect(end).toMatchObject({ code: 2, stdout: '' })
    expect(end.stderr).toContain('CheckpointLockedError')
    expect(requestOf(first).resume).toBeNull()
  })
})
