import { readdirSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { linesOf, recordIn, tutti, tuttiHere, workFolder } from './work-folder.ts'

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
    const kept = await tuttiHere(folder, '--json', 'resume', recordIn(folder), '--keep-failed')
    expect(kept.code).toBe(1)
    expect(linesOf(join(folder, 'ran'))).toHaveLength(3)
    writeFileSync(join(folder, 'fixed'), '')
    const resumed = await tuttiHere(tmpdir(), 'resume', recordIn(folder))
    expect(resumed.code).toBe(0)
    expect(resumed.stderr).toContain(
      'skipping up to 1 of 2 recorded tasks; 1 run again: 1 failed; ',
    )
    expect(resumed.stderr).toContain('2 done (1 of them reused), 0 failed')
    // The totals are printed once.
    expect(resumed.stdout).toMatch(/^record {2}\S+\n$/)
    expect(linesOf(join(folder, 'ran')).toSorted()).toEqual(['a', 'b', 'b', 'b'])
  })

  it('run: options may follow a file of tasks, and unknown ones are named', async () => {
    const folder = workFolder()
    writeFileSync(join(folder, 'tasks.jsonl'), JSON.stringify(program('true')))
    const run = await tuttiHere(folder, 'run', 'tasks.jsonl', '--folder', 'here', '--json')
    expect(run).toMatchObject({ code: 0, stderr: '' })
    expect(JSON.parse(run.stdout)).toMatchObject({ tasks: { completed: 1 } })
    expect(readdirSync(join(folder, 'here'))).not.toEqual([])
    const unknown = await tuttiHere(folder, 'run', 'tasks.jsonl', '--concurrency', '2')
    expect(unknown.code).toBe(2)
    expect(unknown.stderr).toContain(`unknown option '--concurrency'`)
    const argument = await tuttiHere(folder, 'run', 'tasks.jsonl', 'more')
    expect(argument.code).toBe(2)
    expect(argument.stderr).toContain('tasks.jsonl is a file of tasks, which takes no arguments')
  })

  it('run: a DONE task that has changed is refused, kept or run again', async () => {
    const folder = workFolder()
    const file = join(folder, 'tasks.yaml')
    writeFileSync(file, '- { uid: a, executable: sh, arguments: [-c, echo 1 >> ran] }\n')
    expect(await tuttiHere(folder, 'run', 'tasks.yaml')).toMatchObject({ code: 0 })
    const record = recordIn(folder)
    writeFileSync(file, '- { uid: a, executable: sh, arguments: [-c, echo 2 >> ran] }\n')
    const refused = await tuttiHere(folder, 'resume', record)
    expect(refused.code).toBe(2)
    expect(refused.stderr).toContain('1 task is DONE in the record and has changed since: input')
    expect(refused.stderr).toContain('--keep-done')
    expect(refused.stderr).toContain('tasks[0].uid: "a" (sh) is DONE in the record, but its input')
    const resume = async (before: string, how: string): Promise<string> => {
      const { code, stdout } = await tuttiHere(folder, '--json', 'resume', before, how)
      expect(code).toBe(0)
      return join(folder, (JSON.parse(stdout) as { record: string }).record)
    }
    // The refused run has continued nothing.
    const kept = await resume(record, '--keep-done')
    expect(linesOf(join(folder, 'ran'))).toEqual(['1'])
    const forced = await resume(kept, '--force')
    expect(linesOf(join(folder, 'ran'))).toEqual(['1', '2'])
    expect(await tuttiHere(folder, 'journal', 'verify', forced)).toMatchObject({ code: 0 })
    const both = await tuttiHere(folder, 'resume', forced, '--force', '--keep-done')
    expect(both.code).toBe(2)
    const further = await tuttiHere(folder, 'resume', forced, 'more')
    expect(further.stderr).toMatch(/all arguments were kept, got 1 further argument after the rec/)
  })

  it('run: what is wrong in the file is named with its line, and nothing runs', async () => {
    const folder = workFolder()
    const lines = ['{"executable":"true"}', '{"executble":"true"}', '{"executable":5}', '{', '7']
    writeFileSync(join(folder, 'tasks.jsonl'), lines.join('\n'))
    const wrong = await tuttiHere(folder, 'run', 'tasks.jsonl')
    expect(wrong.code).toBe(2)
    expect(wrong.stderr).toMatch(/tasks\.jsonl:2:1 executble: unknown key.*"executable"/)
    expect(wrong.stderr).toMatch(/tasks\.jsonl:3:1 .*executable/)
    expect(wrong.stderr).toMatch(/tasks\.jsonl:4:1 not valid JSON/)
    expect(wrong.stderr).toMatch(/tasks\.jsonl:5:1 expected a task/)
    const yaml = ['- executable: "true"', '- executable: "true"', '  timeoutSeconds: 3', '']
    writeFileSync(join(folder, 'tasks.yaml'), yaml.join('\n'))
    const other = await tuttiHere(folder, 'run', 'tasks.yaml')
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
    const { code, stderr } = await tuttiHere(folder, 'run', 'tasks.jsonl')
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
    const lines = await tuttiHere(folder, 'run', 'tasks.jsonl')
    expect([lines.code, lines.stderr.split('\n')]).toEqual([
      2,
      [
        expect.stringMatching(
          /l:3:1 resources\.cores: asks for 1000000, but the node has \d+ \(this machine\)$/,
        ),
        expect.stringMatching(/:4:1 backend: there is no "gpu"; tutti run has only "local"$/),
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
    const list = await tuttiHere(folder, 'run', 'tasks.yaml')
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
    const { code, stdout, stderr } = await tuttiHere(folder, 'run', name)
    expect([code, stdout, stderr]).toEqual([
      2,
      '',
      `ConfigError  ${join(folder, name)}:1:1 there is no task in this file\n`,
    ])
    expect(readdirSync(folder)).toEqual([name])
  })
})
