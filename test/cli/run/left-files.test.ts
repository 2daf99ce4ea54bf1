import { spawn } from 'node:child_process'
import { existsSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { basename, join, relative } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { acquireLock, lockPathOf } from '../../../src/checkpoint/lock.ts'
import { SentRequest } from '../../../src/checkpoint/run-file.ts'
import { type CommandEnd, watch } from '../run-command.ts'
import { library, recordIn, tutti, tuttiHere, workFolder } from './work-folder.ts'

/** A run of one task that fails until there is a file `ok`. Returns its record. */
async function runFailing(folder: string): Promise<string> {
  const task = { executable: 'sh', arguments: ['-c', 'test -e ok'], uid: 'only' }
  writeFileSync(join(folder, 't.jsonl'), JSON.stringify(task))
  expect(await tuttiHere(folder, 'run', 't.jsonl')).toMatchObject({ code: 1 })
  return recordIn(folder)
}

/** The name of a file that the same session began later; a negative number: earlier. */
const later = (record: string, seconds: number): string =>
  record.replace(/\.(\d+)(?=\.telemetry)/, (_, at: string) => `.${Number(at) + seconds}`)

const sessionOf = (record: string): string => basename(record).split('.')[0] ?? ''

const statusOf = async (folder: string, ...args: readonly string[]) => {
  const { stdout } = await tuttiHere(folder, 'status', ...args, '--json')
  return JSON.parse(stdout) as { files: string[]; state: string; resume: unknown }
}

describe('files that a killed process has left without a whole line', () => {
  it('resume: they are passed over by their folder, session and latest', async () => {
    const folder = workFolder()
    const record = await runFailing(folder)
    writeFileSync(later(record, 100), '')
    writeFileSync(later(record, 200), '{"section":"event","event_ty')
    writeFileSync(join(folder, 'telemetry', `x-1.${2 ** 32}.telemetry.jsonl`), '')
    for (const what of [[], ['telemetry'], [sessionOf(record)]]) {
      expect((await statusOf(folder, ...what)).files).toEqual([record])
    }
    const named = await tuttiHere(folder, 'resume', later(record, 200))
    expect(named.code).toBe(2)
    expect(named.stderr).toMatch(/^CheckpointEmptyError /)
    expect(named.stderr).toContain(`hint: Resume the last file of the run: ${record}\n`)
    writeFileSync(join(folder, 'ok'), '')
    expect(await tuttiHere(folder, 'resume')).toMatchObject({ code: 0 })
    expect(await statusOf(folder)).toMatchObject({
      files: [record, recordIn(folder)],
      resume: null,
    })
  })

  it('resume: while their process lives they are the files of its run', async () => {
    const folder = workFolder()
    const record = await runFailing(folder)
    writeFileSync(later(record, 100), '')
    const lock = acquireLock(lockPathOf(join(folder, 'telemetry'), sessionOf(record)))
    onTestFinished(() => lock.release())
    const { files, state } = await statusOf(folder)
    expect({ files, state }).toEqual({ files: [later(record, 100)], state: 'running' })
    const refused = await tuttiHere(folder, 'resume')
    expect(refused.code).toBe(2)
    expect(refused.stderr).toMatch(/^CheckpointLockedError /)
  })

  it('resume: a folder that has only such files has no record', async () => {
    const folder = workFolder()
    const record = await runFailing(folder)
    writeFileSync(record, '')
    const refused = await tuttiHere(folder, 'resume')
    expect(refused.code).toBe(2)
    expect(refused.stderr).toMatch(/^RecordNotFoundError {2}there is no record in /)
  })
})

describe('a disk that takes no line', () => {
  /** So long that a first line exceeds the limit of a file's size below. */
  const id = 's'.repeat(100)
  const script = [
    `import { NoopBackend, Session } from '${library}'`,
    `const session = new Session([new NoopBackend({ name: 'noop' })], { id: '${id}' })`,
    'const [, , record, end] = process.argv',
    'if (record) await session.resume(record)',
    `await session.startTelemetry({ checkpointPath: 'telemetry', keepResults: true })`,
    `if (end === 'exit') process.exit(0)`,
    'await session.close()',
  ].join('\n')

  const run = (folder: string, shell: string, args: string[], env = {}): Promise<CommandEnd> => {
    const words = ['-c', `${shell} exec "$0" "$@"`, process.execPath, 'script.ts', ...args]
    return watch(spawn('sh', words, { cwd: folder, env: { ...process.env, ...env } })).ended
  }

  it('resume: leaves no file, whichever way the program ends', async () => {
    const folder = workFolder()
    writeFileSync(join(folder, 'script.ts'), script)
    expect(await run(folder, '', [])).toMatchObject({ code: 0 })
    const record = recordIn(folder)
    const files = readdirSync(join(folder, 'telemetry'))
    // In units of 512 bytes: the file of the lock is shorter.
    const full = 'ulimit -f 1;'
    for (const end of ['close', 'exit']) {
      const { code, stderr } = await run(folder, full, [record, end])
      expect({ end, code }).toEqual({ end, code: 0 })
      if (end === 'close') expect(stderr).toContain('Cannot write the record (EFBIG)')
      expect(readdirSync(join(folder, 'telemetry')).filter(isNoLock)).toEqual(files)
    }
    const command = {
      kind: 'script' as const,
      file: 'script.ts',
      folder,
      arguments: ['x'.repeat(999)],
    }
    using sent = new SentRequest({ command, keep_results: true, resume: null } as const)
    const failed = await run(folder, full, [record], { TUTTI_RUN: sent.path })
    expect(failed.code).not.toBe(0)
    expect(failed.stderr).toContain('CheckpointError')
    expect(readdirSync(join(folder, 'telemetry')).filter(isNoLock)).toEqual(files)
  })

  const isNoLock = (name: string): boolean => !name.endsWith('.lock')
})

describe('a clock that was set back between the files of a run', () => {
  it('latest: the file that no other one continues, whatever the names say', async () => {
    const folder = workFolder()
    const record = await runFailing(folder)
    writeFileSync(join(folder, 'ok'), '')
    expect(await tuttiHere(folder, 'resume')).toMatchObject({ code: 0 })
    const resumed = recordIn(folder)
    // As if the second process had begun two hours before the first.
    const early = later(record, -7200)
    for (const ending of ['.telemetry.jsonl', '.results', '.run']) {
      const at = (path: string): string => path.replace('.telemetry.jsonl', ending)
      writeFileSync(at(early), readFileSync(at(resumed)))
      rmSync(at(resumed))
    }
    for (const what of [[], ['telemetry'], [sessionOf(record)]]) {
      expect(await statusOf(folder, ...what)).toMatchObject({
        files: [record, early],
        resume: null,
      })
    }
    const verified = await tuttiHere(folder, 'journal', 'verify', 'telemetry')
    expect(verified).toMatchObject({ code: 0 })
    expect(verified.stdout).toContain('2 files of one run')
    expect(await tuttiHere(folder, 'resume')).toMatchObject({ code: 0 })
    expect(existsSync(early)).toBe(true)
    expect(statSync(recordIn(folder)).size).toBeGreaterThan(0)
  })
})

describe('what tutti resume takes', () => {
  it('resume: what follows -- is for the latest run', async () => {
    const folder = workFolder()
    writeFileSync(join(folder, 'args.ts'), scriptOf(''))
    expect(await tutti(folder, 'run', 'args.ts', '--token', 'abc')).toMatchObject({ code: 0 })
    const resumed = await tutti(folder, 'resume', '--keep-failed', '--', 'def')
    expect(resumed).toMatchObject({ code: 0, stdout: '["--token","def"]\n' })
    const refused = await tutti(folder, 'resume', '--', 'a', 'b')
    expect(refused.stderr).toMatch(/^SecretArgumentsError {2}expected <argument 2>, got 2 /)
  })

  it('resume: a script that cannot go on with its record is refused in one line', async () => {
    const folder = workFolder()
    writeFileSync(join(folder, 'p.ts'), scriptOf(''))
    expect(await tutti(folder, 'run', 'p.ts')).toMatchObject({ code: 0 })
    const changed: readonly [why: string, ...parts: [string, string, string]][] = [
      ['another id', '', `{ id: 'other' }`, ''],
      ['another folder', '', '{}', `{ checkpointPath: 'elsewhere' }`],
      ['a submission before telemetry', 'await session.submitTasks([task])', '{}', ''],
    ]
    for (const [why, ...parts] of changed) {
      writeFileSync(join(folder, 'p.ts'), scriptOf(...parts))
      const { code, stderr } = await tutti(folder, 'resume')
      expect([why, code]).toEqual([why, 2])
      expect(stderr, why).toMatch(/^ResumeRefusedError {2}.+\n {2}hint: .+\n/m)
      expect(stderr, why).not.toContain('    at ')
    }
  })

  it('resume: a damaged command is called so, and a repaired copy is taken', async () => {
    const folder = workFolder()
    const record = await runFailing(folder)
    const [start = '', ...lines] = readFileSync(record, 'utf8').split('\n')
    writeFileSync(record, [start, '{ damaged', ...lines].join('\n'))
    expect((await tuttiHere(folder, 'resume')).stderr).toContain('CheckpointDamagedError')
    const copy = record.replace('.telemetry', '.repaired.telemetry')
    const { stdout } = await tuttiHere(folder, 'journal', 'repair', record)
    expect(stdout).toContain(`\nresume   npx tutti resume ${copy}\n`)
    // The original is still the damaged one, wherever it is named.
    expect((await tuttiHere(folder, 'resume', record)).stderr).toContain(
      `hint: Resume its repaired copy: ${copy}\n`,
    )
    const shown = await tuttiHere(folder, 'status', record)
    expect(shown.stdout).toContain(`its repaired copy is ${relative(folder, copy)}`)
    writeFileSync(join(folder, 'ok'), '')
    expect(await tuttiHere(folder, 'resume')).toMatchObject({ code: 0 })
    expect(await statusOf(folder)).toMatchObject({ files: [copy, recordIn(folder)], resume: null })

    for (const name of readdirSync(join(folder, 'telemetry'))) {
      if (name.endsWith('.run')) writeFileSync(join(folder, 'telemetry', name), '{')
    }
    const refused = await tuttiHere(folder, 'resume')
    expect(refused.code).toBe(2)
    expect(refused.stderr).toMatch(/^CommandDamagedError {2}.+\.run is damaged/)
  })

  const scriptOf = (before: string, options = '{}', telemetry = ''): string =>
    [
      `import { ComputeTask, NoopBackend, Session } from '${library}'`,
      `await using session = new Session([new NoopBackend({ name: 'noop' })], ${options})`,
      `const task = new ComputeTask({ executable: 'true', uid: 'early' })`,
      before,
      `await session.startTelemetry(${telemetry})`,
      `await session.submitTasks([new ComputeTask({ executable: 'true', uid: 'only' })])`,
      `console.log(JSON.stringify(process.argv.slice(2)))`,
    ].join('\n')
})
