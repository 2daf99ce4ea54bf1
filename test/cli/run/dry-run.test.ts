import { readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { acquireLock, lockPathOf } from '../../../src/checkpoint/lock.ts'
import { linesOf, recordIn, script, tutti, tuttiHere, workFolder } from './work-folder.ts'

/** All files and folders with their bytes and times of change. */
const stateOf = (folder: string): unknown =>
  readdirSync(folder, { recursive: true })
    .map(String)
    .toSorted()
    .concat('.')
    .map((name) => {
      const path = join(folder, name)
      const { mtimeMs, ctimeMs } = statSync(path)
      const text = statSync(path).isFile() ? readFileSync(path, 'latin1') : ''
      return { name, mtimeMs, ctimeMs, text }
    })

const item = (uid: string, text: string): string =>
  `- { uid: ${uid}, executable: sh, arguments: [-c, '${text}'] }\n`

describe('tutti resume --dry-run', () => {
  it('resume --dry-run: lists what would run and why, and changes nothing on disk', async () => {
    const folder = workFolder()
    const file = join(folder, 'tasks.yaml')
    writeFileSync(file, item('a', 'echo a >> ran') + item('b', 'echo b >> ran; exit 1'))
    expect(await tuttiHere(folder, 'run', 'tasks.yaml')).toMatchObject({ code: 1 })
    writeFileSync(file, `${readFileSync(file, 'utf8')}${item('c', 'echo c >> ran')}`)
    const before = stateOf(folder)
    const listed = await tuttiHere(folder, 'resume', '--dry-run', '--json')
    expect(listed).toMatchObject({ code: 0, stderr: '' })
    expect(JSON.parse(listed.stdout)).toEqual({
      record: recordIn(folder),
      total: 3,
      tasks: [
        { uid: 'b', name: 'sh -c echo b', reason: 'failed' },
        { uid: 'c', name: 'sh -c echo c', reason: 'new' },
      ],
      complete: true,
    })
    const text = await tuttiHere(folder, 'resume', recordIn(folder), '--dry-run')
    expect(text.stdout).toContain('2 of 3 tasks would run: 1 failed, 1 new\n')
    expect(text.stdout).toMatch(/^b {5}failed {2}sh -c echo b$/m)
    const kept = await tuttiHere(folder, 'resume', '--dry-run', '--keep-failed')
    expect(kept.stdout).toContain('1 of 3 tasks would run: 1 new\n')
    expect(stateOf(folder)).toEqual(before)
    expect(linesOf(join(folder, 'ran')).toSorted()).toEqual(['a', 'b'])
  })

  it('resume --dry-run: changed tasks are refused or listed, as by a resume', async () => {
    const folder = workFolder()
    const file = join(folder, 'tasks.yaml')
    writeFileSync(file, item('a', 'true'))
    expect(await tuttiHere(folder, 'run', 'tasks.yaml')).toMatchObject({ code: 0 })
    writeFileSync(file, item('a', 'exit 0'))
    const refused = await tuttiHere(folder, 'resume', '--dry-run')
    expect(refused).toMatchObject({ code: 2, stdout: '' })
    expect(refused.stderr).toContain('DefinitionChangedError')
    const forced = await tuttiHere(folder, 'resume', '--dry-run', '--force')
    expect(forced.stdout).toContain('1 of 1 task would run: 1 changed\n')
    const kept = await tuttiHere(folder, 'resume', '--dry-run', '--keep-done')
    expect(kept.stdout).toBe('0 of 1 task would run\n')
  })

  it('resume --dry-run: a task without a uid is listed with that of the record', async () => {
    const folder = workFolder()
    const file = join(folder, 'tasks.yaml')
    const unnamed = (text: string): string => `- { executable: sh, arguments: [-c, '${text}'] }\n`
    writeFileSync(file, unnamed('true') + unnamed('exit 1'))
    expect(await tuttiHere(folder, 'run', 'tasks.yaml')).toMatchObject({ code: 1 })
    const failed = linesOf(recordIn(folder)).find((line) => line.includes('"TaskFailed"')) ?? ''
    const { task_id: uid } = JSON.parse(failed) as { readonly task_id: string }
    // The only task now, which gets another uid.
    writeFileSync(file, unnamed('exit 1'))
    const listed = await tuttiHere(folder, 'resume', '--dry-run', '--json')
    expect(JSON.parse(listed.stdout)).toMatchObject({ tasks: [{ uid, reason: 'failed' }] })
  })

  it('resume --dry-run: of a script, the recorded tasks that would run are listed', async () => {
    const folder = workFolder()
    writeFileSync(join(folder, 'crash'), '')
    expect(await tutti(folder, 'run', script)).toMatchObject({ code: 137 })
    const before = stateOf(folder)
    const listed = await tuttiHere(folder, 'resume', '--dry-run')
    expect(listed).toMatchObject({ code: 0, stderr: '' })
    expect(listed.stdout).toMatch(/^c {5}unfinished {2}note$/m)
    expect(listed.stdout).toContain(
      '1 of 3 recorded tasks would run: 1 unfinished; the script may create others\n',
    )
    const { stdout } = await tuttiHere(folder, 'resume', '--dry-run', '--json')
    expect(JSON.parse(stdout)).toMatchObject({ total: 3, complete: false })
    expect(stateOf(folder)).toEqual(before)
  })

  it('resume --dry-run: a record in use is refused, as by a resume', async () => {
    const folder = workFolder()
    writeFileSync(join(folder, 'tasks.yaml'), item('a', 'exit 1'))
    expect(await tuttiHere(folder, 'run', 'tasks.yaml')).toMatchObject({ code: 1 })
    const record = recordIn(folder)
    const telemetry = join(folder, 'telemetry')
    const sessionId = /telemetry\/(.+)\.\d+\.telemetry\.jsonl$/.exec(record)?.[1] ?? ''
    const lock = acquireLock(lockPathOf(telemetry, sessionId))
    const refused = await tuttiHere(folder, 'resume', '--dry-run')
    expect(refused).toMatchObject({ code: 2, stdout: '' })
    expect(refused.stderr).toContain('CheckpointLockedError')
    lock.release()
  })
})
