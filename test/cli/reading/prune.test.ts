import { execFileSync } from 'node:child_process'
import { existsSync, mkdirSync, readdirSync, statSync, symlinkSync, utimesSync } from 'node:fs'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { acquireLock, lockPathOf } from '../../../src/checkpoint/lock.ts'
import { fillDisk, mountDisk, mounts } from '../../mounts.ts'
import { needs } from '../../require.ts'
import { runHere } from '../run-command.ts'
import { workFolder } from '../run/work-folder.ts'
import { linesOf } from './record-file.ts'
import { eventsOf } from '../../views/synthetic-run.ts'

const old = 1_600_000_000

/** A record as a session writes it, with the files that commands put beside it. */
function writeRun(
  folder: string,
  sessionId: string,
  { seconds = old, resumed = '', beside = [] as readonly string[] } = {},
): string {
  const stem = join(folder, `${sessionId}.${seconds}`)
  const events = eventsOf({ tasks: [], nodes: [], end: 1 })
  const [start] = events
  const attributes = { ...start?.attributes, ...(resumed && { resumed_from: resumed }) }
  const [first, ...others] = [
    { ...start, attributes } as (typeof events)[number],
    ...events.slice(1),
  ]
  const names = [`${stem}.telemetry.jsonl`, ...beside.map((ending) => stem + ending)]
  for (const path of names) {
    writeFileSync(path, linesOf([first, ...others], sessionId))
    utimesSync(path, old, old)
  }
  return `${sessionId}.${seconds}.telemetry.jsonl`
}

interface Pruned {
  removed: { session_id: string; records: string[]; bytes: number }[]
  bytes: number
  kept: number
  in_use: string[]
  failed: { session_id: string; message: string }[]
}

const prune = async (folder: string, ...args: readonly string[]): Promise<Pruned> => {
  const { code, stdout, stderr } = await runHere(folder, ['journal', 'prune', '--json', ...args])
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
  return JSON.parse(stdout) as Pruned
}

const idsOf = ({ removed }: { removed: readonly { session_id: string }[] }): string[] =>
  removed.map(({ session_id: id }) => id)

it('journal prune: a run is removed with everything beside it', async () => {
  const folder = workFolder()
  const beside = ['.results', '.run', '.telemetry.jsonl.view', '.telemetry.jsonl.zst']
  const copies = [
    '.repaired.telemetry.jsonl',
    '.telemetry.jsonl.zst.view',
    '.telemetry.jsonl.view.1.tmp',
  ]
  writeRun(folder, 's-1', { beside: [...beside, ...copies] })
  writeRun(folder, 's-2')
  for (const name of ['notes.txt', 's-1.txt', 's-1.1600000000.results.txt', 's-1.report.html']) {
    writeFileSync(join(folder, name), 'mine')
  }
  writeFileSync(join(folder, 'other.1600000000.telemetry.jsonl'), 'not a record\n')
  writeFileSync(join(folder, 'named.1600000000.telemetry.jsonl'), 'no line')
  const all = readdirSync(folder).filter((name) => name.startsWith('s-1.1600000000.'))
  const own = all.filter((name) => !name.endsWith('.txt'))
  const bytes = own.reduce((sum, name) => sum + statSync(join(folder, name)).size, 0)
  utimesSync(join(folder, 's-2.1600000000.telemetry.jsonl'), old + 9, old + 9)
  const planned = await prune(folder, '--keep', '1', '--dry-run')
  expect(planned).toMatchObject({ bytes, kept: 1 })
  expect(existsSync(join(folder, 's-1.1600000000.run'))).toBe(true)
  const done = await prune(folder, '--keep', '1')
  expect(done).toMatchObject({ bytes, kept: 1, in_use: [] })
  expect(idsOf(done)).toEqual(['s-1'])
  expect(readdirSync(folder).toSorted()).toEqual([
    'named.1600000000.telemetry.jsonl',
    'notes.txt',
    'other.1600000000.telemetry.jsonl',
    's-1.1600000000.results.txt',
    's-1.report.html',
    's-1.txt',
    's-2.1600000000.telemetry.jsonl',
  ])
})

it('journal prune: output that a killed process has left goes with its run', async () => {
  const folder = workFolder()
  writeRun(folder, 's-1')
  const left = join(folder, 's-1.1600000000.follow')
  const foreign = join(folder, 'other.follow')
  for (const path of [left, foreign]) {
    mkdirSync(path)
    writeFileSync(join(path, 'a.stdout'), 'one')
    utimesSync(join(path, 'a.stdout'), old, old)
  }
  const bytes = statSync(join(folder, 's-1.1600000000.telemetry.jsonl')).size + 3
  expect(await prune(folder, '--keep', '0')).toMatchObject({ bytes, kept: 0 })
  expect(readdirSync(folder)).toEqual(['other.follow'])
})

it('journal prune: the files of a resumed run are one run', async () => {
  const folder = workFolder()
  const first = writeRun(folder, 's-1')
  const second = writeRun(folder, 's-1', { seconds: old + 1, resumed: first })
  writeRun(folder, 's-1', { seconds: old + 2, resumed: second })
  writeRun(folder, 's-2', { seconds: old + 3 })
  expect(await prune(folder, '--keep', '2')).toMatchObject({ removed: [], kept: 2 })
  const done = await prune(folder, '--keep', '1')
  expect(done.removed).toMatchObject([{ session_id: 's-1', records: { length: 3 } }])
  expect(readdirSync(folder)).toEqual([`s-2.${old + 3}.telemetry.jsonl`])
})

it('journal prune: a run is removed only if neither --keep nor --older keeps it', async () => {
  const folder = workFolder()
  const now = Math.floor(Date.now() / 1000)
  for (const [at, id] of ['s-1', 's-2', 's-3'].entries())
    writeRun(folder, id, { seconds: old + at })
  writeRun(folder, 's-new', { seconds: now })
  expect(idsOf(await prune(folder, '--older', '30d', '--keep', '3'))).toEqual(['s-1'])
  expect(idsOf(await prune(folder, '--older', '30d'))).toEqual(['s-3', 's-2'])
  expect(idsOf(await prune(folder, '--keep', '0'))).toEqual(['s-new'])
  expect(readdirSync(folder)).toEqual([])
})

it('journal prune: a run whose lock is held stays', async () => {
  const folder = workFolder()
  writeRun(folder, 's-1')
  const lock = acquireLock(lockPathOf(folder, 's-1'))
  const before = readdirSync(folder)
  const kept = { removed: [], kept: 1, in_use: ['s-1'] }
  expect(await prune(folder, '--keep', '0', '--dry-run')).toMatchObject(kept)
  expect(await prune(folder, '--keep', '0')).toMatchObject(kept)
  expect(readdirSync(folder)).toEqual(before)
  lock.release()
  expect(await prune(folder, '--keep', '0')).toMatchObject({ removed: [{ session_id: 's-1' }] })
})

it('journal prune: links are neither followed nor removed', async () => {
  const folder = workFolder()
  const elsewhere = workFolder()
  const name = writeRun(elsewhere, 's-1')
  symlinkSync(join(elsewhere, name), join(folder, name))
  writeRun(folder, 's-2')
  writeFileSync(join(elsewhere, 'values'), 'values')
  symlinkSync(join(elsewhere, 'values'), join(folder, `s-2.${old}.results`))
  expect(idsOf(await prune(folder, '--keep', '0'))).toEqual(['s-2'])
  expect(readdirSync(folder).toSorted()).toEqual([name, `s-2.${old}.results`])
  expect(readdirSync(elsewhere).toSorted()).toEqual([name, 'values'])
})

it('journal prune: runs are counted once where ./telemetry is a link to the folder', async () => {
  const folder = workFolder()
  symlinkSync('.', join(folder, 'telemetry'))
  for (const at of [1, 2, 3]) writeRun(folder, `s-${at}`, { seconds: old + at })
  const done = await prune(folder, '--keep', '2')
  expect(done).toMatchObject({ kept: 2, in_use: [], failed: [] })
  expect(idsOf(done)).toEqual(['s-1'])
})

it('journal prune: a ./telemetry that is a link is not followed', async () => {
  const [folder, elsewhere] = [workFolder(), workFolder()]
  const name = writeRun(elsewhere, 's-1')
  symlinkSync(elsewhere, join(folder, 'telemetry'))
  expect(await prune(folder, '--keep', '0')).toMatchObject({ removed: [], kept: 0 })
  expect(readdirSync(elsewhere)).toEqual([name])
})

it('journal prune: an empty record has no files beside it that are removed', async () => {
  const folder = workFolder()
  const names = ['x.5.results', 'x.5.run', 'x.5.telemetry.jsonl']
  for (const name of names) writeFileSync(join(folder, name), '')
  expect(await prune(folder, '--keep', '0')).toMatchObject({ removed: [], kept: 0 })
  expect(readdirSync(folder).toSorted()).toEqual(names)
})

it('journal prune: a run that cannot be removed is reported, and the others go', async () => {
  const folder = workFolder()
  for (const at of [1, 2, 3, 4]) writeRun(folder, `s-${at}`, { seconds: old + at })
  mkdirSync(lockPathOf(folder, 's-2'))
  execFileSync('mkfifo', [lockPathOf(folder, 's-3')])
  for (const how of [['--dry-run'], []]) {
    const words = ['journal', 'prune', '--keep', '0', ...how]
    const { code, stdout, stderr } = await runHere(folder, [...words, '--json'])
    const value = JSON.parse(stdout) as Pruned
    expect([code, idsOf(value), value.kept]).toEqual([1, ['s-4', 's-1'], 0])
    const message = expect.stringContaining('not a regular file')
    expect(value.failed).toMatchObject([
      { session_id: 's-3', message },
      { session_id: 's-2', message },
    ])
    expect(stderr).toContain('s-2')
  }
  expect(readdirSync(folder).filter((name) => name.endsWith('.jsonl'))).toHaveLength(2)
})

needs(mounts)('journal prune: removes runs on a full disk, except those in use', async () => {
  const folder = mountDisk('256k')
  for (const at of [1, 2]) writeRun(folder, `s-${at}`, { seconds: old + at })
  const lock = acquireLock(lockPathOf(folder, 's-1'))
  fillDisk(folder)
  expect(() => acquireLock(lockPathOf(folder, 's-2'))).toThrow('ENOSPC')
  const done = await prune(folder, '--keep', '0', '--folder', folder)
  expect(done).toMatchObject({ kept: 1, in_use: ['s-1'], failed: [] })
  expect(idsOf(done)).toEqual(['s-2'])
  lock.release()
})

it('journal prune: a launch folder goes with its run, except foreign files', async () => {
  const folder = workFolder()
  const record = writeRun(folder, 's-1')
  const launch = join(folder, 's-1.launch')
  mkdirSync(join(launch, 'allocation-1'), { recursive: true })
  const files = ['batch.sh', 'exit', 'request.json.taken', 'allocation-1/batch.log']
  for (const name of files) writeFileSync(join(launch, name), '0\n')
  writeFileSync(join(launch, 'launch.json'), JSON.stringify({ method: 'slurm', jobId: '7' }))
  writeFileSync(
    join(launch, 'request.json.record'),
    JSON.stringify({ record: join(folder, record) }),
  )
  writeFileSync(join(launch, 'notes.txt'), 'mine')
  expect(idsOf(await prune(folder, '--keep', '0'))).toEqual(['s-1'])
  expect(readdirSync(folder, { recursive: true })).toEqual(['s-1.launch', 's-1.launch/notes.txt'])
})

it('journal prune: what is to be kept has to be named', async () => {
  const folder = workFolder()
  for (const [args, text] of [
    [[], 'expected --keep or --older, got neither'],
    [['--older', '30'], 'expected hours, days or weeks such as 12h, 30d or 4w'],
    [['--older', '-1d'], 'expected hours, days or weeks'],
    [['--keep', 'x'], 'expected a whole number'],
    [['--keep', '1', '--folder', 'missing'], '--folder: there is no folder missing'],
  ] as const) {
    const { code, stderr } = await runHere(folder, ['journal', 'prune', ...args])
    expect([code, stderr]).toEqual([2, expect.stringContaining(text)])
  }
})
