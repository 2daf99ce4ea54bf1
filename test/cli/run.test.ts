import { readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, dirname, join, relative } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { acquireLock, lockPathOf } from '../../src/checkpoint/lock.ts'
import { storeCommand } from '../../src/checkpoint/run-file.ts'
import { ComputeTask, NoopBackend, Session } from '../../src/index.ts'
import { eventually } from '../eventually.ts'
import {
  linesOf,
  library,
  recordIn,
  script,
  tutti,
  tuttiHere,
  workFolder,
} from './run/work-folder.ts'
import { startCommandIn } from './run-command.ts'

/** The record of a run with one task, as if the command had run it with the script. */
async function makeRecord(folder: string, file: string, before?: string) {
  await using session = new Session([new NoopBackend({ name: 'noop' })])
  if (before !== undefined) await session.resume(before)
  const kept = { checkpointPath: join(folder, 'telemetry'), keepResults: true }
  const { checkpointFile } = await session.startTelemetry(kept)
  await session.submitTasks([new ComputeTask({ executable: 'true', uid: 'only' })])
  const record = checkpointFile ?? ''
  storeCommand(record, { kind: 'script', file, arguments: [], folder })
  return { record, sessionId: session.id }
}

describe('tutti run and resume with a script', () => {
  it('run: a killed script goes on where it was, with its arguments', async () => {
    const folder = workFolder()
    writeFileSync(join(folder, 'crash'), '')
    const killed = await tutti(folder, 'run', script, '--n', '5', '--json')
    expect(killed.code).toBe(137)
    const record = recordIn(folder)
    expect(killed.stderr).toContain(`resume  npx tutti resume ${relative(folder, record)}`)
    rmSync(join(folder, 'crash'))

    const resumed = await tutti(tmpdir(), 'resume', record)
    expect(resumed).toMatchObject({ code: 0 })
    expect(JSON.parse(resumed.stdout)).toEqual({
      args: ['--n', '5', '--json'],
      values: ['value of a', 'value of b', 'value of c'],
    })
    expect(linesOf(join(folder, 'ran'))).toEqual(['a', 'b', 'c', 'c'])
    const said = 'skipping 2 of 3 recorded tasks; 1 run again: 1 unfinished\n'
    expect(resumed.stderr).toContain(said)

    const third = await tutti(folder, '--json', 'resume', recordIn(folder))
    expect(JSON.parse(third.stdout)).toEqual({ record: recordIn(folder), exit_code: 0 })
    expect(linesOf(join(folder, 'ran'))).toHaveLength(4)
  })

  it('run: the record is of the script, also if that starts another program first', async () => {
    const folder = workFolder()
    const file = join(folder, 'starts-another.mjs')
    writeFileSync(
      file,
      `import { spawnSync } from 'node:child_process'
import { Session, ConcurrentBackend, ComputeTask } from '${library}'
const isChild = process.argv[2] === 'child'
if (!isChild) spawnSync(process.execPath, [import.meta.filename, 'child'], { stdio: 'inherit' })
const session = new Session([await ConcurrentBackend.create({ workers: 1 })])
await session.startTelemetry(isChild ? { checkpointPath: './of-child' } : {})
const task = new ComputeTask({ executable: 'true', uid: isChild ? 'of-child' : 'own' })
await session.submitTasks([task])
await session.close()
`,
    )
    expect(await tutti(folder, 'run', file)).toMatchObject({ code: 0 })
    expect(readFileSync(recordIn(folder), 'utf8')).toContain('"own"')
    expect(await tutti(folder, 'resume')).toMatchObject({ code: 0 })
  })

  it('run: secrets among the arguments are not kept, and resume asks for them', async () => {
    const folder = workFolder()
    const args = ['--api-key=abc', '--password', 'hidden', '-v']
    const first = await tutti(folder, 'run', script, ...args)
    expect(first.code).toBe(0)
    const record = recordIn(folder)
    const command = record.replace('.telemetry.jsonl', '.run')
    expect(statSync(command).mode & 0o777).toBe(0o600)
    expect(JSON.parse(readFileSync(command, 'utf8'))).toEqual({
      kind: 'script',
      file: script,
      arguments: [null, '--password', null, '-v'],
      folder,
    })
    const refused = await tutti(folder, 'resume', record)
    expect(refused.code).toBe(2)
    expect(refused.stderr).toContain(`npx tutti resume ${record} -- <argument 1> <argument 3>`)
    const resumed = await tutti(folder, 'resume', record, '--', '--api-key=abc', 'hidden')
    expect(JSON.parse(resumed.stdout)).toMatchObject({ args })
    expect(resumed.code).toBe(0)
  })

  it('run: the exit code is that of the script, and a missing file is 2', async () => {
    const folder = workFolder()
    writeFileSync(join(folder, 'exit.mjs'), 'process.exit(Number(process.argv[2]))')
    const ended = await tutti(folder, 'run', 'exit.mjs', '7')
    expect(ended).toMatchObject({ code: 7 })
    expect(ended.stderr).toContain('no record: the script started no telemetry')
    expect(await tuttiHere(folder, 'run', 'none.mjs')).toMatchObject({ code: 2 })
    expect(await tuttiHere(folder, 'resume', 'none.telemetry.jsonl')).toMatchObject({ code: 2 })
  })

  it('run: a folder is called one, and says what to give instead', async () => {
    const { code, stderr } = await tuttiHere(workFolder(), 'run', '.')
    expect([code, stderr.split('\n')[0]]).toEqual([2, 'FileNotFoundError  . is a folder'])
    expect(stderr).toMatch(/hint: Give a script for Node \(.*\.ts.*\), or a file of tasks/)
  })

  it('run: --folder is refused for a script, which names the folder itself', async () => {
    const folder = workFolder()
    writeFileSync(join(folder, 'script.mjs'), '')
    const { code, stderr } = await tuttiHere(folder, 'run', '--folder', 'there', 'script.mjs')
    expect([code, stderr]).toEqual([
      2,
      expect.stringMatching(/^ValueError  --folder: script\.mjs is/),
    ])
    expect(stderr).toContain('startTelemetry({ checkpointPath })')
    expect(await tutti(folder, 'run', 'script.mjs', '--folder', 'x')).toMatchObject({ code: 0 })
  })

  it('run: a file of another kind is refused with the kinds that it takes', async () => {
    const folder = workFolder()
    for (const [name, which] of [
      ['tasks.json', 'that end in .json'],
      ['simulate.py', 'that end in .py'],
      ['simulate', 'without an extension'],
    ] as const) {
      writeFileSync(join(folder, name), '[]')
      const refused = await tuttiHere(folder, 'run', name)
      expect(refused.code).toBe(2)
      expect(refused.stderr).toContain(`${name}: tutti run does not know files ${which}\n`)
      expect(refused.stderr).toContain('.jsonl')
      expect(refused.stderr).toContain('.mjs')
    }
  })

  it('resume: a script of which no session resumes is not said to have no record', async () => {
    const folder = workFolder()
    writeFileSync(join(folder, 'silent.mjs'), '')
    const { record } = await makeRecord(folder, join(folder, 'silent.mjs'))
    const resumed = await tutti(folder, 'resume', record)
    expect(resumed.code).toBe(0)
    expect(resumed.stderr).toBe('nothing was resumed: the script started no telemetry\n')
  })

  it('resume: why a record is refused is one line with a hint, and exit code 2', async () => {
    const folder = workFolder()
    const { record, sessionId } = await makeRecord(folder, script)
    const lock = acquireLock(lockPathOf(dirname(record), sessionId))
    onTestFinished(() => lock.release())
    const locked = await tutti(folder, 'resume', record)
    expect(locked.code).toBe(2)
    expect(locked.stderr.split('\n')).toEqual([
      `CheckpointLockedError  The record is locked by process ${process.pid}: ${lock.path}`,
      '  hint: That process already continues this run. Wait until it has ended, ' +
        'or stop it, and then resume the last file.',
      '',
    ])
    const json = await tutti(folder, '--json', 'resume', record)
    expect(JSON.parse(json.stderr)).toMatchObject({ error: { code: 'CheckpointLockedError' } })
  })

  it('resume: the latest record without a name, and a folder that is gone', async () => {
    const folder = workFolder()
    const gone = join(folder, 'gone')
    const { record } = await makeRecord(folder, script)
    storeCommand(record, { kind: 'script', file: script, arguments: [], folder: gone })
    const refused = await tuttiHere(folder, 'resume')
    expect(refused.code).toBe(2)
    expect(refused.stderr).toMatch(/^FileNotFoundError {2}there is no folder .*gone, in which/)
    expect(refused.stderr).not.toContain('    at ')
  })

  it('resume: a record with a newer one is refused before the script starts', async () => {
    const folder = workFolder()
    const { record: first } = await makeRecord(folder, script)
    const { record: second } = await makeRecord(folder, script, first)
    const refused = await tuttiHere(folder, 'resume', first)
    expect(refused.code).toBe(2)
    expect(refused.stdout).toBe('')
    expect(refused.stderr.split('\n')).toEqual([
      `CheckpointContinuedError  ${first} was continued by ${basename(second)}`,
      `  hint: Resume the last file of the run: ${second}`,
      '',
    ])
  })

  it('resume: a script whose task has changed leaves no file and names none', async () => {
    const folder = workFolder()
    const body = (seed: number): string =>
      [
        `import { ComputeTask, NoopBackend, Session } from '${library}'`,
        `const session = new Session([new NoopBackend({ name: 'noop' })])`,
        'await session.startTelemetry()',
        `await session.submitTasks([new ComputeTask({ executable: '${seed}', uid: 'only' })])`,
        'await session.close()',
      ].join('\n')
    const file = join(folder, 'changing.ts')
    writeFileSync(file, body(1))
    expect(await tutti(folder, 'run', file)).toMatchObject({ code: 0 })
    const files = readdirSync(join(folder, 'telemetry'))
    writeFileSync(file, body(2))
    const refused = await tutti(folder, 'resume', recordIn(folder))
    expect(refused.code).toBe(2)
    expect(refused.stderr).toMatch(/^DefinitionChangedError /)
    expect(refused.stderr).not.toContain('skipping')
    expect(refused.stderr).not.toMatch(/^(record|resume) /m)
    expect(refused.stderr).not.toContain('not created again')
    expect(readdirSync(join(folder, 'telemetry'))).toEqual(files)
  })

  it('run: a script gets SIGTERM when its command was killed', async () => {
    const folder = workFolder()
    const body = [
      `import { writeFileSync } from 'node:fs'`,
      `process.on('SIGTERM', () => { writeFileSync('end', 'SIGTERM'); process.exit() })`,
      `setInterval(() => {}, 1000)`,
      `console.log('running')`,
    ]
    writeFileSync(join(folder, 'endless.mjs'), body.join('\n'))
    const command = startCommandIn(folder, ['run', 'endless.mjs'])
    await command.seen('running')
    command.child.kill('SIGKILL')
    await eventually(() => expect(readFileSync(join(folder, 'end'), 'utf8')).toBe('SIGTERM'))
    await command.ended
  })

  it('resume: a record that no command made is refused with a hint', async () => {
    const folder = workFolder()
    const { record } = await makeRecord(folder, script)
    rmSync(record.replace('.telemetry.jsonl', '.run'))
    const refused = await tuttiHere(folder, '--json', 'resume', record)
    expect(refused.code).toBe(2)
    expect(JSON.parse(refused.stderr)).toMatchObject({ error: { code: 'CommandMissingError' } })
  })

  it('resume: a file that is not a record is refused as such', async () => {
    const folder = workFolder()
    writeFileSync(join(folder, 'hello.mjs'), '// first line\nconsole.log(1)\n')
    expect(await tuttiHere(folder, 'resume', 'hello.mjs')).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('hello.mjs is not a record of tutti'),
    })
  })
})
