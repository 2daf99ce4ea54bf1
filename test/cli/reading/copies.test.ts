import { spawn } from 'node:child_process'
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { zstdCompressSync } from 'node:zlib'
import { afterAll, describe, expect, it } from 'vitest'
import { acquireLock, lockPathOf } from '../../../src/checkpoint/lock.ts'
import type { SyntheticRun } from '../../views/synthetic-run.ts'
import { viewEvent } from '../../views/view-event.ts'
import { builtMain, type CommandEnd, runHere, watch } from '../run-command.ts'
import { linesOf, recordFolder, writeRecord } from './record-file.ts'

const folder = recordFolder()
afterAll(() => folder.remove())

const run: SyntheticRun = {
  nodes: [{ nodeId: 'n1', cores: 4, gpus: 1 }],
  tasks: [
    { uid: 'sim-1', start: 1, end: 4, worker: 'n1/local/w1' },
    { uid: 'sim-2', start: 1, end: 3, worker: 'n1/local/w2', endType: 'TaskFailed' },
    { uid: 'sim-3', start: 2, end: 9, worker: 'n1/local/w3' },
    { uid: 'sum', name: 'reduce', ready: 4, start: 5, end: 6, dependencies: ['sim-1'] },
  ],
  end: 10,
}
const path = writeRecord(folder.path, run)
const read = (...args: readonly string[]): Promise<CommandEnd> => runHere(folder.path, args)
const readJson = async (...args: readonly string[]): Promise<Record<string, unknown>> =>
  JSON.parse((await read(...args, '--json')).stdout) as Record<string, unknown>

describe('copies of a record', () => {
  it('row 95: an empty file has no copies, no session and no task', async () => {
    const place = recordFolder()
    const file = join(place.path, 'empty')
    writeFileSync(file, '')
    for (const command of ['repair', 'compress']) {
      const end = await read('journal', command, file)
      expect([end.code, end.stderr]).toEqual([2, expect.stringContaining('is empty')])
    }
    expect((await read('status', file)).stdout).toMatch(/^the record is empty: nothing is known/)
    expect(await readJson('status', file)).toMatchObject({ session_id: null })
    const { code, stderr } = await read('explain', 'x', file)
    expect([code, stderr]).toEqual([2, expect.stringContaining('no task "x" in the record\n')])
    expect(readdirSync(place.path)).toEqual(['empty'])
    place.remove()
  })

  it('row 95: a file that is no record has no copies, no events, export and report', async () => {
    const place = recordFolder()
    const other = join(place.path, 'hosts')
    writeFileSync(other, 'localhost\nexample\n')
    const commands = [
      ['journal', 'verify'],
      ['journal', 'repair'],
      ['journal', 'compress'],
      ['tail'],
      ['export', '--format', 'csv'],
      ['export', '--format', 'otlp'],
      ['report', '-o', '-'],
      ['report', '-o', '-', path],
    ]
    for (const args of commands) {
      const end = await read(...args, other)
      const found = [args, end.code, end.stdout, end.stderr]
      expect(found).toEqual([args, 2, '', `NotARecordError  ${other} is not a record of tutti\n`])
    }
    const first = await read('report', '-o', '-', other, path)
    expect([first.code, first.stderr]).toEqual([2, expect.stringMatching(/^NotARecordError /)])
    expect(readdirSync(place.path)).toEqual(['hosts'])
    place.remove()
  })

  it('journal: without a name it takes the latest record, or its repaired copy', async () => {
    const place = recordFolder()
    const here = async (...args: readonly string[]): Promise<CommandEnd> =>
      await runHere(place.path, args)
    const record = writeRecord(place.path, run, { tail: 'not json\n' })
    expect((await here('journal', 'verify')).code).toBe(1)
    expect((await here('journal', 'repair')).code).toBe(0)
    for (const args of [[], ['latest'], ['.'], ['s-1']]) {
      const { stdout } = await here('--json', 'status', ...args)
      expect([args, JSON.parse(stdout)]).toMatchObject([args, { skipped_lines: 0 }])
    }
    rmSync(record)
    expect((await here('journal', 'compress')).code).toBe(0)
    expect(readdirSync(place.path)).toEqual([
      's-1.1790000000.repaired.telemetry.jsonl',
      's-1.1790000000.repaired.telemetry.jsonl.zst',
    ])
    place.remove()
  })

  it('row 95: the standard input has no copies, and no hint to make one', async () => {
    const place = recordFolder()
    const record = writeRecord(place.path, run, { tail: 'not json\n' })
    const from = async (shell: string, ...args: readonly string[]): Promise<CommandEnd> => {
      const words = [process.execPath, builtMain, ...args, '-']
      const child = spawn('sh', ['-c', shell, record, ...words], { cwd: place.path })
      return await watch(child).ended
    }
    for (const shell of ['exec "$@" < "$0"', 'cat "$0" | "$@"']) {
      for (const command of ['repair', 'compress']) {
        const { code, stderr } = await from(shell, 'journal', command)
        expect([shell, code, stderr]).toEqual([shell, 2, expect.stringContaining('is not a file')])
      }
    }
    const { code, stdout } = await from('cat "$0" | "$@"', 'journal', 'verify')
    expect([code, stdout.includes('journal repair')]).toEqual([1, false])
    expect(existsSync('/dev/stdin.repaired.telemetry.jsonl')).toBe(false)
    expect(readdirSync(place.path)).toHaveLength(1)
    place.remove()
  })

  it('journal: a record that is being written is neither repaired nor compressed', async () => {
    const place = recordFolder()
    const record = writeRecord(place.path, run)
    const lock = acquireLock(lockPathOf(place.path, 's-1'))
    for (const command of ['repair', 'compress']) {
      const end = await read('journal', command, record)
      expect([end.code, end.stderr]).toEqual([2, expect.stringContaining('still being written')])
    }
    lock.release()
    place.remove()
  })

  it('row 95: a copy that finds no room ends with 1, and leaves nothing behind', async () => {
    const place = recordFolder()
    const record = writeRecord(place.path, run, { tail: 'not json\n' })
    const before = readdirSync(place.path)
    for (const command of ['repair', 'compress']) {
      // Beyond the limit a write fails, as on a full disk.
      const limited = 'ulimit -f 1; exec "$0" "$@"'
      const words = [process.execPath, builtMain, '--json', 'journal', command, record]
      const { code, stdout, stderr } = await watch(spawn('sh', ['-c', limited, ...words])).ended
      const { error } = JSON.parse(stderr) as { error: { message: string } }
      expect([command, code, stdout]).toEqual([command, 1, ''])
      expect(error.message).toContain('EFBIG')
      expect(readdirSync(place.path)).toEqual(before)
    }
    place.remove()
  })

  it('journal repair: leaves out what cannot be read and never touches the old file', async () => {
    const place = recordFolder()
    const broken = `${'\0'.repeat(20)}${linesOf([viewEvent('TaskCreated', 'mended')])}`
    const record = writeRecord(place.path, run, { tail: `not json\n${broken}{"section":"ev` })
    const before = readFileSync(record)
    const end = await read('--json', 'journal', 'repair', record)
    expect(end.code).toBe(0)
    const copy = join(place.path, 's-1.1790000000.repaired.telemetry.jsonl')
    const result = JSON.parse(end.stdout) as { kept: number; bytes: number }
    expect(result).toMatchObject({ path: copy, mended: 1, dropped: 2 })
    expect(readFileSync(record).equals(before)).toBe(true)
    expect(readFileSync(copy)).toHaveLength(result.bytes)
    expect(readFileSync(copy, 'utf8')).toContain('"mended"')
    expect(JSON.parse((await read('--json', 'status', copy)).stdout)).toMatchObject({
      skipped_lines: 0,
      torn: false,
    })
    const again = await read('journal', 'repair', record)
    expect([again.code, again.stderr]).toEqual([2, expect.stringContaining('exists already')])
    place.remove()
  })

  it('journal compress: a seekable copy that every reader takes', async () => {
    const place = recordFolder()
    const record = writeRecord(place.path, run)
    const end = await read('--json', 'journal', 'compress', record)
    expect(JSON.parse(end.stdout)).toMatchObject({ path: `${record}.zst`, frames: 1 })
    const compressed = join(place.path, 'only')
    mkdirSync(compressed)
    cpSync(`${record}.zst`, join(compressed, 's-1.1790000000.telemetry.jsonl.zst'))
    const statuses = await Promise.all(
      [record, compressed].map(async (one) => await readJson('status', one)),
    )
    const withoutPaths = (status?: object) => ({ ...status, files: [], resume: null })
    expect(withoutPaths(statuses[1])).toEqual(withoutPaths(statuses[0]))
    const tail = await read('tail', compressed, '-n', '1', '--json')
    expect(JSON.parse(tail.stdout)).toMatchObject({ event_type: 'SessionEnded' })
    const again = await read('journal', 'compress', record)
    expect([again.code, existsSync(record)]).toEqual([2, true])
    place.remove()
  })

  it('a record that another program has compressed is read, too', async () => {
    const file = join(folder.path, 'z.9.telemetry.jsonl.zst')
    writeFileSync(file, zstdCompressSync(readFileSync(path)))
    expect(await readJson('status', file)).toMatchObject({ tasks: { submitted: 4 } })
  })
})
