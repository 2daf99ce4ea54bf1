import { spawn } from 'node:child_process'
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import { basename, join, relative } from 'node:path'
import { describe, expect, it } from 'vitest'
import { isHeld } from '../../../src/checkpoint/lock.ts'
import { eventually } from '../../eventually.ts'
import { builtMain, startCommandIn, watch } from '../run-command.ts'
import { library, recordIn, script, tutti, tuttiHere, workFolder } from './work-folder.ts'

describe('how to go on with a run, as tutti status says it', () => {
  const resumeOf = async (folder: string, record: string): Promise<unknown> => {
    const { stdout } = await tuttiHere(folder, 'status', record, '--json')
    return (JSON.parse(stdout) as Record<string, unknown>)['resume']
  }

  it('row 27: status says how to resume a killed run, and nothing once all is done', async () => {
    const folder = workFolder()
    writeFileSync(join(folder, 'crash'), '')
    const killed = await tutti(folder, 'run', script, '--token', 'secret-1', 'x')
    const first = recordIn(folder)
    const typed = (record: string): string => `npx tutti resume ${record} -- <argument 2>`
    const near = relative(folder, first)
    expect(killed.stderr).toContain(`record  ${near}\nresume  ${typed(near)}\n`)
    const { stdout } = await tuttiHere(folder, 'status', first)
    expect(stdout.trimEnd().split('\n').at(-1)).toBe(
      `resume  ${typed(join('telemetry', basename(first)))}`,
    )
    expect(await resumeOf(folder, first)).toEqual({ record: first, command: typed(first) })

    await tutti(folder, 'resume', first, '--', 'secret-1')
    const second = readdirSync(join(folder, 'telemetry'))
      .map((name) => join(folder, 'telemetry', name))
      .find((path) => path.endsWith('.jsonl') && path !== first)
    // The earlier file names the last one, which alone can be resumed.
    expect(await resumeOf(folder, first)).toEqual({ record: second, command: typed(second ?? '') })
    rmSync(join(folder, 'crash'))
    await tutti(folder, 'resume', second ?? '', '--', 'secret-1')
    expect(await resumeOf(folder, recordIn(folder))).toBeNull()
  })

  it('run: a script that throws says how to resume its record', async () => {
    const folder = workFolder()
    const body = [
      `import { NoopBackend, Session } from '${library}'`,
      `const session = new Session([new NoopBackend({ name: 'noop' })])`,
      `await session.startTelemetry()`,
      `setImmediate(() => { throw new RangeError('nobody caught me') })`,
    ]
    writeFileSync(join(folder, 'throws.ts'), body.join('\n'))
    const { code, stderr } = await tutti(folder, 'run', 'throws.ts')
    expect(code).toBe(1)
    expect(stderr).toContain('nobody caught me')
    expect(stderr).toContain(`\nresume  npx tutti resume ${relative(folder, recordIn(folder))}\n`)
  })
})

it('row 26: a run that is stopped tells what was canceled and what never began', async () => {
  const folder = workFolder()
  // Each takes the whole machine: one runs, and the others wait.
  const resources = { cores: availableParallelism() }
  const task = JSON.stringify({ executable: 'sleep', arguments: ['600'], resources })
  writeFileSync(join(folder, 'tasks.jsonl'), `${task}\n${task}\n${task}\n`)
  const command = startCommandIn(folder, ['run', 'tasks.jsonl'])
  await eventually(() =>
    expect(readFileSync(recordIn(folder), 'utf8')).toContain('"event_type":"TaskStarted"'),
  )
  command.child.kill('SIGINT')
  const { code, stdout } = await command.ended
  const record = relative(folder, recordIn(folder))
  expect([code, stdout]).toEqual([
    130,
    'stopped cleanly by SIGINT: 3 tasks, 0 done, 0 failed, 3 canceled (2 of them not started)\n' +
      `record  ${record}\nresume  npx tutti resume ${record}\n`,
  ])
  const verdict = await tuttiHere(folder, '--json', 'journal', 'verify', record)
  expect(JSON.parse(verdict.stdout)).toMatchObject({ sound: true, has_ended: true, unfinished: 0 })
  const report = await tuttiHere(folder, 'report', record, '-o', '-')
  expect(report.stdout).toContain('The run was stopped, 3 tasks were canceled then')
  expect(report.stdout).not.toContain('What would shorten it')
})

it('run: an array that is stopped while it is submitted counts all its tasks', async () => {
  const folder = workFolder()
  const command = startCommandIn(folder, ['run', '--array', '1-50000', '--', 'sleep', '600'])
  await eventually(() =>
    expect(readFileSync(recordIn(folder), 'utf8')).toContain('"event_type":"TaskCreated"'),
  )
  command.child.kill('SIGINT')
  const { code, stdout } = await command.ended
  expect(code).toBe(130)
  const [line = ''] = stdout.split('\n')
  const countOf = (form: RegExp): number =>
    Number((form.exec(line)?.[1] ?? '0').replaceAll(',', ''))
  expect(line).toContain(': 50,000 tasks, 0 done, 0 failed, ')
  expect(countOf(/([\d,]+) canceled/) + countOf(/([\d,]+) not submitted/)).toBe(50_000)
  const preview = await tuttiHere(folder, 'resume', '--dry-run')
  expect(preview.stdout).toContain('50,000 of 50,000 tasks would run: ')
})

it('run: --quiet is silent about what went well, and tells what failed', async () => {
  const folder = workFolder()
  const tasks = [{ executable: 'false' }, { executable: 'true' }]
  writeFileSync(join(folder, 'tasks.jsonl'), tasks.map((one) => JSON.stringify(one)).join('\n'))
  const failed = await tuttiHere(folder, 'run', 'tasks.jsonl', '--quiet')
  const record = relative(folder, recordIn(folder))
  expect(failed).toEqual({
    code: 1,
    stdout: '',
    stderr:
      `1 of 2 tasks failed; show them with: npx tutti failures ${record}\n` +
      `resume  npx tutti resume ${record}\n`,
  })
  writeFileSync(join(folder, 'good.jsonl'), JSON.stringify({ executable: 'true' }))
  const good = await tuttiHere(folder, 'run', 'good.jsonl', '--quiet')
  expect(good).toEqual({ code: 0, stdout: '', stderr: '' })
})

describe('the folder by which tutti run and its script know of each other', () => {
  it('run: what a killed command left is removed once its script has ended, too', async () => {
    const folder = workFolder()
    const temporary = join(folder, 'temporary')
    mkdirSync(temporary)
    const env = { ...process.env, TMPDIR: temporary }
    const start = (name: string) =>
      watch(spawn(process.execPath, [builtMain, 'run', name], { cwd: folder, env }))
    const left = (): string[] =>
      readdirSync(temporary).filter((name) => name.startsWith('tutti-run-'))
    const stubborn = [
      `import { existsSync } from 'node:fs'`,
      `process.on('SIGTERM', () => console.log('goes on'))`,
      `setInterval(() => existsSync('running') || process.exit(), 20)`,
      `console.log('running')`,
    ]
    writeFileSync(join(folder, 'stubborn.mjs'), stubborn.join('\n'))
    writeFileSync(join(folder, 'empty.mjs'), '')
    writeFileSync(join(folder, 'running'), '')
    const killed = start('stubborn.mjs')
    await killed.seen('running')
    killed.child.kill('SIGKILL')
    await killed.seen('goes on')
    const [own = ''] = left()
    expect(await start('empty.mjs').ended).toMatchObject({ code: 0 })
    expect(left()).toEqual([own])
    rmSync(join(folder, 'running'))
    const holder = join(temporary, own, 'script.holder')
    await eventually(() => expect(isHeld(holder)).toBe(false))
    mkdirSync(join(temporary, 'tutti-run-abc123'))
    expect(await start('empty.mjs').ended).toMatchObject({ code: 0 })
    expect(left()).toEqual(['tutti-run-abc123'])
  })
})
