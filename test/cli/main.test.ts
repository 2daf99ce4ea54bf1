import { existsSync } from 'node:fs'
import { appendFile, copyFile, mkdtemp, open, readdir, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { eventually } from '../eventually.ts'
import { runCommand, runHere, startCommand } from './run-command.ts'

let folder = ''
/** The output of a small demo, and its record. */
let small = { stdout: '', journal: '' }
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'tutti-cli-'))
  const place = join(folder, 'small')
  const { stdout } = await runCommand('demo', '--simulations', '10', '--folder', place)
  small = { stdout, journal: await journalIn(place) }
})
afterAll(async () => {
  await rm(folder, { recursive: true })
})

async function journalIn(place: string): Promise<string> {
  const files = await readdir(place)
  const journal = files.find((name) => name.endsWith('.telemetry.jsonl'))
  if (journal === undefined) throw new Error(`no journal in ${place}`)
  return join(place, journal)
}

describe('tutti demo', () => {
  it('tutti demo runs a mixed workload with failures, and its record is sound', async () => {
    const place = join(folder, 'demo')
    const end = await runCommand('--json', 'demo', '--simulations', '60', '--folder', place)
    expect(end.code).toBe(0)
    const result = JSON.parse(end.stdout) as {
      tasks: { completed: number; failed: number; running: number }
      estimate: number
    }
    expect(result.tasks).toMatchObject({ completed: 64, failed: 2, running: 0 })
    expect(Math.abs(result.estimate - Math.PI)).toBeLessThan(0.05)
    const verdict = await runHere(folder, ['journal', 'verify', await journalIn(place)])
    expect(verdict.stdout).toMatch(
      /^66 tasks, \d+ events, order ok, 1 terminal each, counters agree\n$/,
    )
    expect(verdict.code).toBe(0)
  })

  it('tutti demo prints how to look at the run, and shows no frames of tutti itself', async () => {
    const { stdout, journal } = small
    for (const what of ['journal verify', 'failures', 'report']) {
      expect(stdout).toContain(`npx tutti ${what} ${journal}`)
    }
    const [, read = ''] = /^read +(.*getting-started\.md)$/m.exec(stdout) ?? []
    expect(existsSync(read)).toBe(true)
    const failures = await runHere(folder, ['failures', journal])
    expect(failures.stdout.match(/^ +at .*/gm)).toEqual([
      expect.stringMatching(/^ +at simulate \(.*demo-tasks\.ts:\d+:\d+\)$/),
    ])
    const report = await runHere(folder, ['report', journal, '-o', '-'])
    expect(report.stdout).toMatch(/at simulate \(/)
    expect(report.stdout.split('<script')[0]).not.toContain('job-runner')
  })

  it('row 96: tutti demo stops cleanly on SIGTERM, also when nobody reads its output', async () => {
    const place = join(folder, 'unheard')
    const command = startCommand(['demo', '--simulations', '4000', '--folder', place])
    command.child.stderr?.destroy()
    await journalWith(place, 'TaskCompleted')
    command.child.kill('SIGTERM')
    const end = await command.ended
    expect(end.code).toBe(143)
    expect(end.stdout).toContain('stopped early by SIGTERM')
    const verdict = await runHere(folder, ['--json', 'journal', 'verify', await journalIn(place)])
    expect(JSON.parse(verdict.stdout)).toMatchObject({
      sound: true,
      has_ended: true,
      unfinished: 0,
    })
  })
})

/** Resolves when the journal contains the text; reading it meanwhile is part of the promise. */
async function journalWith(place: string, text: string): Promise<void> {
  await using file = await eventually(async () => await open(await journalIn(place)))
  const piece = Buffer.alloc(2 ** 20)
  let [before, from] = ['', 0]
  await eventually(async () => {
    const { bytesRead } = await file.read(piece, 0, piece.length, from)
    from += bytesRead
    const read = before + piece.toString('latin1', 0, bytesRead)
    before = read.slice(-text.length)
    expect(read.includes(text)).toBe(true)
  })
}

describe('tutti journal verify', () => {
  it('tutti journal verify reports each problem and its place, and exits with 1', async () => {
    const journal = join(folder, 'broken.1.telemetry.jsonl')
    await copyFile(small.journal, journal)
    await appendFile(journal, 'not json\n')
    const end = await runHere(folder, ['journal', 'verify', journal])
    expect(end.code).toBe(1)
    expect(end.stdout).toMatch(/line \d+, byte \d+: /)
  })

  it('tutti journal verify accepts a torn tail and mentions it', async () => {
    const journal = join(folder, 'torn.1.telemetry.jsonl')
    await copyFile(small.journal, journal)
    await appendFile(journal, '{"section":"ev')
    const end = await runHere(folder, ['journal', 'verify', journal])
    expect([end.code, end.stdout.includes('torn tail at line')]).toEqual([0, true])
  })
})

describe('usage errors', () => {
  const mistakes: readonly [readonly string[], RegExp][] = [
    [['dmo'], /did you mean demo/i],
    [['demo', '--simulations', 'many'], /whole number/],
    [['demo', '--simulashuns', '5'], /did you mean --simulations/i],
    [['explain'], /missing required argument/],
    [['journal', 'verify', '/nowhere/at/all.jsonl'], /CheckpointError .*ENOENT|ENOENT/],
  ]
  it.each(mistakes)('row 95: %j exits with 2 and says what to do', async (args, message) => {
    const end = await runHere(folder, args)
    expect(end.code).toBe(2)
    expect(end.stderr).toMatch(message)
    expect(end.stderr).not.toContain('    at ')
  })

  it('row 95: a process ends with the same', async () => {
    expect(await runCommand('dmo')).toEqual(await runHere(folder, ['dmo']))
  })
})

describe('errors under --json', () => {
  const mistakes: readonly [readonly string[], string, RegExp][] = [
    [['dmo'], 'UsageError', /unknown command 'dmo'.*did you mean demo/is],
    [[], 'UsageError', /command/],
    [['demo', '--simulations', 'many'], 'UsageError', /whole number/],
    [['serve'], 'UsageError', /--config/],
    [['serve', '--config', '/nowhere/x.yaml'], 'ConfigError', /does not exist/],
    [['serve', '--config', 'x.yaml', '--allow-origin', 'x'], 'UsageError', /origin/],
    [['explain'], 'UsageError', /missing required argument/],
    [['journal', 'verify', '/nowhere/at/all.jsonl'], 'CheckpointError', /ENOENT/],
  ]
  it.each(mistakes)('row 95: %j is one JSON value on stderr', async (args, code, message) => {
    const end = await runHere(folder, ['--json', ...args])
    expect([end.code, end.stdout]).toEqual([2, ''])
    const { error } = JSON.parse(end.stderr) as { error: { code: string; message: string } }
    expect(error.code).toBe(code)
    expect(error.message).toMatch(message)
  })

  it('row 95: a model that is not there is one JSON value on stderr, with a hint', async () => {
    const model = ['--model', '/nowhere/x.gguf', '--folder', join(folder, 'no-model')]
    const end = await runHere(folder, ['demo', ...model, '--json'])
    expect([end.code, end.stdout]).toEqual([2, ''])
    expect(JSON.parse(end.stderr)).toMatchObject({
      error: {
        message: expect.stringContaining('/nowhere/x.gguf'),
        hint: expect.stringContaining('tutti model get stories15M'),
      },
    })
  })
})
