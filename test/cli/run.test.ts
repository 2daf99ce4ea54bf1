import { spawn } from 'node:child_process'
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { describe, expect, it, onTestFinished } from 'vitest'
import { type CommandEnd, watch } from './run-command.ts'

const main = fileURLToPath(new URL('../../src/cli/main.ts', import.meta.url))
const script = fileURLToPath(new URL('fixtures/resumable-script.ts', import.meta.url))

function workFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'tutti-run-test-'))
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }))
  return folder
}

/** Runs the command in a folder, as a person would. */
const tutti = (cwd: string, ...args: readonly string[]): Promise<CommandEnd> =>
  watch(spawn(process.execPath, [main, ...args], { cwd })).ended

const linesOf = (file: string): string[] => readFileSync(file, 'utf8').trimEnd().split('\n')

/** The only record in the folder's `telemetry`, or the one of so many that was written last. */
function recordIn(folder: string): string {
  const names = readdirSync(join(folder, 'telemetry')).filter((name) => name.endsWith('.jsonl'))
  const files = names.map((name) => join(folder, 'telemetry', name))
  const [latest] = files.toSorted((a, b) => statSync(b).mtimeMs - statSync(a).mtimeMs)
  if (latest === undefined) throw new Error('no record')
  return latest
}

describe('tutti run and resume with a script', () => {
  it('run: a killed script goes on where it was, with its arguments', async () => {
    const folder = workFolder()
    writeFileSync(join(folder, 'crash'), '')
    const killed = await tutti(folder, 'run', script, '--n', '5', '--json')
    expect(killed.code).toBe(137)
    const record = recordIn(folder)
    expect(killed.stderr).toContain(`resume  npx tutti resume ${record}`)
    rmSync(join(folder, 'crash'))

    const resumed = await tutti(tmpdir(), 'resume', record)
    expect(resumed).toMatchObject({ code: 0 })
    expect(JSON.parse(resumed.stdout)).toEqual({
      args: ['--n', '5', '--json'],
      values: ['value of a', 'value of b', 'value of c'],
    })
    expect(linesOf(join(folder, 'ran'))).toEqual(['a', 'b', 'c', 'c'])

    const third = await tutti(folder, '--json', 'resume', recordIn(folder))
    expect(JSON.parse(third.stdout)).toEqual({ record: recordIn(folder), exit_code: 0 })
    expect(linesOf(join(folder, 'ran'))).toHaveLength(4)
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
    expect(resumed.stderr).toContain('skipping 1 of 2 recorded tasks')
    expect(resumed.stdout).toContain('2 done, 0 failed, 0 canceled')
    expect(linesOf(join(folder, 'ran')).toSorted()).toEqual(['a', 'b', 'b', 'b'])
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
    expect(refused.stderr).toContain('1 tasks are DONE in the record and have changed since: input')
    expect(refused.stderr).toContain('--keep-done')
    expect(await tutti(folder, 'resume', record, '--keep-done')).toMatchObject({ code: 0 })
    expect(linesOf(join(folder, 'ran'))).toEqual(['1'])
    expect(await tutti(folder, 'resume', record, '--force')).toMatchObject({ code: 0 })
    expect(linesOf(join(folder, 'ran'))).toEqual(['1', '2'])
    const both = await tutti(folder, 'resume', record, '--force', '--keep-done')
    expect(both.code).toBe(2)
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
    expect(readdirSync(folder).toSorted()).toEqual(['tasks.jsonl', 'tasks.yaml'])
  })

  it('resume: a record that no command made is refused with a hint', async () => {
    const folder = workFolder()
    writeFileSync(join(folder, 'x.telemetry.jsonl'), '')
    const refused = await tutti(folder, '--json', 'resume', 'x.telemetry.jsonl')
    expect(refused.code).toBe(2)
    expect(JSON.parse(refused.stderr)).toMatchObject({ error: { code: 'CommandMissingError' } })
  })
})
