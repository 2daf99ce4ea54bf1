import { spawn } from 'node:child_process'
import { readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, dirname, join, relative } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { acquireLock, lockPathOf } from '../../src/checkpoint/lock.ts'
import { keepCommand } from '../../src/checkpoint/run-file.ts'
import { ComputeTask, NoopBackend, Session } from '../../src/index.ts'
import { eventually } from '../eventually.ts'
import { linesOf, library, main, recordIn, script, tutti, workFolder } from './run/work-folder.ts'
import { watch } from './run-command.ts'

/** The record of a run with one task, as if the command had run it with the script. */
async function makeRecord(folder: string, file: string, before?: string) {
  await using session = new Session([new NoopBackend({ name: 'noop' })])
  if (before !== undefined) await session.resume(before)
  const kept = { checkpointPath: join(folder, 'telemetry'), keepResults: true }
  const { checkpointFile } = await session.startTelemetry(kept)
  await session.submitTasks([new ComputeTask({ executable: 'true', uid: 'only' })])
  const record = checkpointFile ?? ''
  keepCommand(record, { kind: 'script', file, arguments: [], folder })
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
    expect(await tutti(folder, 'run', 'none.mjs')).toMatchObject({ code: 2 })
    expect(await tutti(folder, 'resume', 'none.telemetry.jsonl')).toMatchObject({ code: 2 })
  })

  it('run: a folder is called one, and says what to give instead', async () => {
    const { code, stderr } = await tutti(workFolder(), 'run', '.')
    expect([code, stderr.split('\n')[0]]).toEqual([2, 'FileNotFoundError  . is a folder'])
    expect(stderr).toMatch(/hint: Give a script for Node \(.*\.ts.*\), or a file of tasks/)
  })

  it('run: --folder is refused for a script, which names the folder itself', async () => {
    const folder = workFolder()
    writeFileSync(join(folder, 'script.mjs'), '')
    const { code, stderr } = await tutti(folder, 'run', '--folder', 'there', 'script.mjs')
    expect([code, stderr]).toEqual([
      2,
      expect.stringMatching(/^ValueError  --folder: script\.mjs is/),
    ])
    expect(stderr).toContain('startTelemetry({ checkpointPath })')
    expect(await tutti(folder, 'run', 'script.mjs', '--folder', 'x')).toMatchObject({ code: 0 })
  })

  it('run: a file of another kind is refused with the kinds that it takes', async () => {
    const folder = workFolder()
    for (const name of ['tasks.json', 'simulate.py']) {
      writeFileSync(join(folder, name), '[]')
      const refused = await tutti(folder, 'run', name)
      expect(refused.code).toBe(2)
      expect(refused.stderr).toMatch(/^ValueError .* does not know files that end in \.(json|py)\n/)
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
      '  hint: It goes on with this run already: wait for its end, or end it, ' +
        'then resume the last file.',
      '',
    ])
    const json = await tutti(folder, '--json', 'resume', record)
    expect(JSON.parse(json.stderr)).toMatchObject({ error: { code: 'CheckpointLockedError' } })
  })

  it('resume: the latest record without a name, and a folder that is gone', async () => {
    const folder = workFolder()
    const gone = join(folder, 'gone')
    const { record } = await makeRecord(folder, script)
    keepCommand(record, { kind: 'script', file: script, arguments: [], folder: gone })
    const refused = await tutti(folder, 'resume')
    expect(refused.code).toBe(2)
    expect(refused.stderr).toMatch(/^FileNotFoundError {2}there is no folder .*gone, in which/)
    expect(refused.stderr).not.toContain('    at ')
  })

  it('resume: a record with a newer one is refused before the script starts', async () => {
    const folder = workFolder()
    const { record: first } = await makeRecord(folder, script)
    const { record: second } = await makeRecord(folder, script, first)
    const refused = await tutti(folder, 'resume', first)
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
    expect(refused.stderr).not.toContain('not made again')
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
    const command = watch(spawn(process.execPath, [main, 'run', 'endless.mjs'], { cwd: folder }))
    await command.seen('running')
    command.child.kill('SIGKILL')
    await eventually(() => expect(readFileSync(join(folder, 'end'), 'utf8')).toBe('SIGTERM'))
    await command.ended
  })
})

describe('tutti run and resume with a file of tasks', () => {
  const program = (text: string): object => ({ executable: 'sh', arguments: ['-c', text] })

  it('run: tasks that failed run again, and those that are done do not', async () => {
    const folder = workFolder()
    const tasks = [
      { ...program('echo a >> ran; echo out'), timeout_seconds: 60 },
      { ...program('echo b >> ran; test -e fixed'), uid: 'b', retries: { times: 1 } },
    ]
    const text = tasks.map((task) => JSON.stringify(task)).join('\n\n')
    writeFileSync(join(folder, 'tasks.jsonl'), text)
    const first = await tutti(folder, '--json', 'run', 'tasks.jsonl')
    expect(first.code).toBe(1)
    expect(JSON.parse(first.stdout)).toMatchObject({ tasks: { completed: 1, failed: 1 } })
    expect(linesOf(join(folder, 'ran')).toSorted()).toEqual(['a', 'b', 'b'])
    const kept = await tutti(folder, '--json', 'resume', recordIn(folder), '--keep-failed')
    expect(kept.code).toBe(1)
    expect(linesOf(join(folder, 'ran'))).toHaveLength(3)
    writeFileSync(join(folder, 'fixed'), '')
    const resumed = await tutti(tmpdir(), 'resume', recordIn(folder))
    expect(resumed.code).toBe(0)
    expect(resumed.stderr).toContain(
      'skipping up to 1 of 2 recorded tasks; 1 run again: 1 failed; ',
    )
    expect(resumed.stderr).toContain('2 done (1 of them reused), 0 failed')
    expect(resumed.stdout).toContain('2 done, 0 failed, 0 canceled')
    expect(linesOf(join(folder, 'ran')).toSorted()).toEqual(['a', 'b', 'b', 'b'])
  })

  it('run: options may follow a file of tasks, and unknown ones are named', async () => {
    const folder = workFolder()
    writeFileSync(join(folder, 'tasks.jsonl'), JSON.stringify(program('true')))
    const run = await tutti(folder, 'run', 'tasks.jsonl', '--folder', 'here', '--json')
    expect(run).toMatchObject({ code: 0, stderr: '' })
    expect(JSON.parse(run.stdout)).toMatchObject({ tasks: { completed: 1 } })
    expect(readdirSync(join(folder, 'here'))).not.toEqual([])
    const unknown = await tutti(folder, 'run', 'tasks.jsonl', '--concurrency', '2')
    expect(unknown.code).toBe(2)
    expect(unknown.stderr).toContain(`unknown option '--concurrency'`)
    const argument = await tutti(folder, 'run', 'tasks.jsonl', 'more')
    expect(argument.code).toBe(2)
    expect(argument.stderr).toContain('tasks.jsonl is a file of tasks, which takes no arguments')
  })

  it('run: a DONE task that has changed is refused, kept or run again', async () => {
    const folder = workFolder()
    const file = join(folder, 'tasks.yaml')
    writeFileSync(file, '- { uid: a, executable: sh, arguments: [-c, echo 1 >> ran] }\n')
    expect(await tutti(folder, 'run', 'tasks.yaml')).toMatchObject({ code: 0 })
    const record = recordIn(folder)
    writeFileSync(file, '- { uid: a, executable: sh, arguments: [-c, echo 2 >> ran] }\n')
    const refused = await tutti(folder, 'resume', record)
    expect(refused.code).toBe(2)
    expect(refused.stderr).toContain('1 task is DONE in the record and has changed since: input')
    expect(refused.stderr).toContain('--keep-done')
    expect(refused.stderr).toContain('tasks[0].uid: "a" (sh) is DONE in the record, but its input')
    const resume = async (before: string, how: string): Promise<string> => {
      const { code, stdout } = await tutti(folder, '--json', 'resume', before, how)
      expect(code).toBe(0)
      return join(folder, (JSON.parse(stdout) as { record: string }).record)
    }
    // What was refused has continued nothing.
    const kept = await resume(record, '--keep-done')
    expect(linesOf(join(folder, 'ran'))).toEqual(['1'])
    const forced = await resume(kept, '--force')
    expect(linesOf(join(folder, 'ran'))).toEqual(['1', '2'])
    expect(await tutti(folder, 'journal', 'verify', forced)).toMatchObject({ code: 0 })
    const both = await tutti(folder, 'resume', forced, '--force', '--keep-done')
    expect(both.code).toBe(2)
    const further = await tutti(folder, 'resume', forced, 'more')
    expect(further.stderr).toMatch(/all arguments were kept, got 1 further argument after the rec/)
  })

  it('run: what is wrong in the file is named with its line, and nothing runs', async () => {
    const folder = workFolder()
    const lines = ['{"executable":"true"}', '{"executble":"true"}', '{"executable":5}', '{', '7']
    writeFileSync(join(folder, 'tasks.jsonl'), lines.join('\n'))
    const wrong = await tutti(folder, 'run', 'tasks.jsonl')
    expect(wrong.code).toBe(2)
    expect(wrong.stderr).toMatch(/tasks\.jsonl:2:1 executble: unknown key.*"executable"/)
    expect(wrong.stderr).toMatch(/tasks\.jsonl:3:1 .*executable/)
    expect(wrong.stderr).toMatch(/tasks\.jsonl:4:1 not valid JSON/)
    expect(wrong.stderr).toMatch(/tasks\.jsonl:5:1 expected a task/)
    const yaml = ['- executable: "true"', '- executable: "true"', '  timeoutSeconds: 3', '']
    writeFileSync(join(folder, 'tasks.yaml'), yaml.join('\n'))
    const other = await tutti(folder, 'run', 'tasks.yaml')
    expect(other.code).toBe(2)
    expect(other.stderr).toMatch(/tasks\.yaml:3:3 timeoutSeconds: unknown key.*timeout_seconds/)
    const nested = [
      '{"executable":"true","retries":{"times":1,"delaySeconds":5}}',
      '{"executable":"true","resources":{"memoryMb":5}}',
      '{"executable":"true","timeout_seconds":-1}',
      '{"executable":"true","resources":{"memory_mb":-5}}',
      '{"executable":"true","uid":"nul"}',
    ]
    writeFileSync(join(folder, 'tasks.jsonl'), nested.join('\n'))
    const { code, stderr } = await tutti(folder, 'run', 'tasks.jsonl')
    expect(code).toBe(2)
    expect(stderr).toMatch(/:1:1 retries\.delaySeconds: unknown key.*"delay_seconds"/)
    expect(stderr).toMatch(/:2:1 resources\.memoryMb: unknown key.*"memory_mb"/)
    expect(stderr).toMatch(/:3:1 .*`timeout_seconds`/)
    expect(stderr).toMatch(/:4:1 .*`resources\.memory_mb`/)
    expect(stderr).toMatch(/:5:1 .*`uid`.*Windows/)
    expect(stderr).not.toContain('timeoutSeconds')
    expect(readdirSync(folder).toSorted()).toEqual(['tasks.jsonl', 'tasks.yaml'])
  })

  it('run: a task that can never run is named with its line, before anything starts', async () => {
    const folder = workFolder()
    const impossible = [
      '{"executable":"true"}',
      '',
      '{"executable":"true","resources":{"cores":1e6}}',
    ]
    writeFileSync(
      join(folder, 'tasks.jsonl'),
      [...impossible, '{"executable":"a","backend":"gpu"}'].join('\n'),
    )
    const lines = await tutti(folder, 'run', 'tasks.jsonl')
    expect([lines.code, lines.stderr.split('\n')]).toEqual([
      2,
      [
        expect.stringMatching(
          /l:3:1 resources\.cores: asks for 1000000, has \d+ \(this machine\)$/,
        ),
        expect.stringMatching(/:4:1 backend: there is no "gpu"; tutti run has "local" alone$/),
        '',
      ],
    ])
    const yaml = [
      '- executable: "true"',
      '- executable: "true"',
      '  resources:',
      '    memory_mb: 1e12',
    ]
    writeFileSync(join(folder, 'tasks.yaml'), yaml.join('\n'))
    const list = await tutti(folder, 'run', 'tasks.yaml')
    expect([list.code, list.stderr]).toEqual([
      2,
      expect.stringMatching(/tasks\.yaml:2:3 resources\.memory_mb: asks for/),
    ])
    expect(readdirSync(folder).toSorted()).toEqual(['tasks.jsonl', 'tasks.yaml'])
  })

  it.each([
    ['empty.jsonl', ''],
    ['blank.jsonl', '\n \n'],
    ['empty.yaml', ''],
    ['comment.yaml', '# later\n'],
    ['list.yaml', '[]'],
  ])('run: a file without a task is refused in one sentence: %s', async (name, content) => {
    const folder = workFolder()
    writeFileSync(join(folder, name), content)
    const { code, stdout, stderr } = await tutti(folder, 'run', name)
    expect([code, stdout, stderr]).toEqual([
      2,
      '',
      `ConfigError  ${join(folder, name)}:1:1 there is no task in this file\n`,
    ])
    expect(readdirSync(folder)).toEqual([name])
  })

  it('resume: a record that no command made is refused with a hint', async () => {
    const folder = workFolder()
    const { record } = await makeRecord(folder, script)
    rmSync(record.replace('.telemetry.jsonl', '.run'))
    const refused = await tutti(folder, '--json', 'resume', record)
    expect(refused.code).toBe(2)
    expect(JSON.parse(refused.stderr)).toMatchObject({ error: { code: 'CommandMissingError' } })
  })
})
