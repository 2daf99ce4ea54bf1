import { execFileSync, spawn } from 'node:child_process'
import {
  existsSync,
  linkSync,
  lstatSync,
  readFileSync,
  readdirSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { spanOf } from '../../checkpoint/read-content.ts'
import { eventsOf, type SyntheticRun } from '../../views/synthetic-run.ts'
import { needs, requirement } from '../../require.ts'
import { type CommandEnd, runHere, startCommandIn, watch } from '../run-command.ts'
import { linesOf, recordFolder, writeRecord } from './record-file.ts'

const folder = recordFolder()
afterAll(() => folder.remove())

const run: SyntheticRun = {
  nodes: [{ nodeId: 'n1', cores: 4 }],
  tasks: [{ uid: 'sim-1', start: 1, end: 4 }],
  end: 10,
}
const record = writeRecord(folder.path, run)
const at = (name: string): string => join(folder.path, name)
const read = (...args: readonly string[]): Promise<CommandEnd> => runHere(folder.path, args)
const csv = (...args: readonly string[]): Promise<CommandEnd> =>
  read('export', record, '--format', 'csv', ...args)

describe('-o', () => {
  const previous = writeRecord(folder.path, run, { sessionId: 's-8', seconds: 1 })
  const resumed = at('s-8.2.telemetry.jsonl')
  const kept = [record, at('another'), previous, resumed]
  beforeAll(() => {
    linkSync(record, at('hard-link'))
    symlinkSync(record, at('link'))
    writeFileSync(at('another'), linesOf(eventsOf(run), 's-7'))
    const [start, ...rest] = eventsOf(run)
    const attributes = { resumed_from: 's-8.1.telemetry.jsonl' }
    const events = start === undefined ? [] : [{ ...start, attributes }, ...rest]
    writeFileSync(resumed, linesOf(events, 's-8'))
  })

  const refused: readonly [string, readonly string[]][] = [
    ['the record itself', ['export', record, '--format', 'csv', '-o', record]],
    ['a hard link to it', ['export', record, '--format', 'csv', '-o', 'hard-link']],
    ['a link to it', ['export', record, '--format', 'csv', '-o', 'link']],
    ['another record', ['export', record, '--format', 'csv', '-o', 'another']],
    ['the name of a record', ['export', record, '--format', 'csv', '-o', 'x.telemetry.jsonl']],
    ['the record of a report', ['report', record, '-o', record]],
    ['a previous file', ['export', resumed, '--format', 'otlp', '-o', previous]],
    ['a previous file of the second run', ['report', record, resumed, '-o', previous]],
  ]
  it.each(refused)('-o is refused with 2: %s', async (_, args) => {
    const before = kept.map((one) => readFileSync(one, 'utf8'))
    const end = await read(...args)
    const why = expect.stringMatching(/^OutputIsRecordError {2}.*record|read by/)
    expect([end.code, end.stdout, end.stderr]).toEqual([2, '', why])
    expect(kept.map((one) => readFileSync(one, 'utf8'))).toEqual(before)
    expect(lstatSync(at('link')).isSymbolicLink()).toBe(true)
    expect(readdirSync(folder.path)).not.toContain('x.telemetry.jsonl')
  })

  const fullDevice = requirement(existsSync('/dev/full'), 'needs /dev/full')
  needs(fullDevice)('-o on a full device ends with 1', async () => {
    const end = await csv('-o', '/dev/full')
    expect([end.code, end.stdout]).toEqual([1, ''])
    expect(end.stderr).toMatch(/cannot write \/dev\/full: ENOSPC.*\n.*Free some space/s)
    const report = await read('report', record, '-o', '/dev/full')
    expect(report.code).toBe(1)
    expect((await csv('-o', 'no/such/folder/x.csv')).code).toBe(2)
  })

  it('-o follows a link to a file, also to one that is not there yet', async () => {
    writeFileSync(at('old.csv'), 'something longer than the table\n'.repeat(100))
    symlinkSync('old.csv', at('to-old'))
    symlinkSync('fresh.csv', at('to-fresh'))
    const { stdout } = await csv()
    for (const name of ['old', 'fresh']) {
      expect((await csv('-o', `to-${name}`)).code).toBe(0)
      expect(readFileSync(at(`${name}.csv`), 'utf8')).toBe(stdout)
      expect(lstatSync(at(`to-${name}`)).isSymbolicLink()).toBe(true)
    }
  })

  it('-o writes into a pipe, which stays one', async () => {
    execFileSync('mkfifo', [at('pipe')])
    const reader = watch(spawn('cat', [at('pipe')]))
    const end = await csv('-o', 'pipe', '--json')
    const { stdout } = await csv()
    const isPipe = lstatSync(at('pipe')).isFIFO()
    // Otherwise the reader would wait forever.
    if (!isPipe) reader.child.kill()
    expect([isPipe, (await reader.ended).stdout]).toEqual([true, stdout])
    expect(JSON.parse(end.stdout)).toEqual({ path: 'pipe', bytes: stdout.length })
  })

  it('-o treats another name of the standard output as -', async () => {
    const { stdout } = await csv()
    const args = ['export', record, '--format', 'csv', '-o', '/proc/self/fd/1']
    const end = await startCommandIn(folder.path, args).ended
    expect([end.code, end.stdout, end.stderr]).toEqual([0, stdout, ''])
  })

  it('-o names a folder that does not exist', async () => {
    const end = await csv('-o', 'nowhere/x.csv')
    expect([end.code, end.stderr]).toEqual([
      2,
      'OutputFileError  cannot write nowhere/x.csv: ENOENT: no such file or directory\n' +
        '  hint: The folder must exist and be writable.\n',
    ])
  })

  it('-o names a folder', async () => {
    const end = await csv('-o', '.')
    expect([end.code, end.stderr]).toEqual([2, expect.stringContaining('not a folder.')])
  })
})

describe('row 96: a closed pipe', () => {
  let large = ''
  beforeAll(() => {
    large = writeLarge()
  })

  it.each(['otlp', 'otlp --protobuf', 'perfetto', 'csv'])(
    'row 96: export --format %s ends quietly when its reader leaves in the middle',
    async (format) => {
      const command = startCommandIn(folder.path, [
        'export',
        large,
        '--format',
        ...format.split(' '),
      ])
      command.child.stdout?.once('data', () => command.child.stdout?.destroy())
      const end = await command.ended
      expect([end.code, end.stderr]).toEqual([0, ''])
    },
  )
})

/** More than pipes hold, in spans as in tasks. */
function writeLarge(): string {
  const tasks = Array.from({ length: 2000 }, (_, n) => ({ uid: `t-${n}`, start: n, end: n + 1 }))
  const tail = Array.from({ length: 5000 }, (_, n) => spanOf(`${n}`.padStart(16, '0'))).join('')
  return writeRecord(folder.path, { nodes: [], tasks, end: 3000 }, { sessionId: 'large', tail })
}
