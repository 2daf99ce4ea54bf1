import { hash } from 'node:crypto'
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { findChain, readSessionStart } from '../../../src/checkpoint/chain.ts'
import { readCheckpoint } from '../../../src/checkpoint/reader.ts'
import { verifyJournal } from '../../../src/cli/journal.ts'
import { createOutput } from '../../../src/cli/output.ts'
import { type Child, startChild } from '../../checkpoint/child.ts'
import { tempFolder } from '../../checkpoint/open-writer.ts'
import { byRun, chooseSeed, createRandom, hangMs } from '../../long-run.ts'
import { chains, isProgram, isUnsteady } from './fixtures/resumable-tasks.ts'

/**
 * Killed at ten moments in all, and at fifty in the long run. A node of the graph that gets a value
 * of another is two tasks: 10,000 also of the smaller graph.
 */
const kinds = [
  { kind: 'session', count: byRun(500, 10_000), kills: byRun(2, 25) },
  { kind: 'graph', count: byRun(5200, 10_000), kills: byRun(8, 25) },
] as const
type Kind = (typeof kinds)[number]
const minTasks = { session: byRun(500, 10_000), graph: 10_000 }

interface Started {
  readonly child: Child
  /** The functions and programs that ran, by their number. */
  readonly ran: () => number[]
}

/** A run that is over, and its record, if it came so far. */
interface EndedRun extends Pick<Started, 'ran'> {
  readonly record: string | null
}

function start({ kind, count }: Kind, folder: string, run: number, record: string | null): Started {
  const ranFile = join(folder, `ran-${run}`)
  const args = [kind, folder, String(count), ...(record === null ? [] : [record])]
  const shell = `export RAN='${ranFile}'; exec "$@"`
  const child = startChild('../../core/resume/fixtures/resumable.ts', args, { shell })
  const ran = (): number[] =>
    existsSync(ranFile) ? readFileSync(ranFile, 'utf8').trim().split('\n').map(Number) : []
  return { child, ran }
}

/** Kills it when it has run `enough` tasks, or for -1 while it reads the record. */
async function killAfter(enough: number, { child, ran }: Started): Promise<EndedRun> {
  let record: string | null = null
  if (enough === -1) await told(child, 'began')
  else record = await told(child, 'started')
  for (let tasks = 0; tasks < enough;) tasks = Number((await told(child, 'ran')) ?? Infinity)
  child.process.kill('SIGKILL')
  expect(await child.ended).toBe('SIGKILL')
  return { ran, record }
}

/** A process that is killed while it reads may have gone on before the signal reached it. */
async function newRecordIn(folder: string, known: readonly EndedRun[]): Promise<string | null> {
  for (const name of readdirSync(folder)) {
    const path = join(folder, name)
    const isKnown = !name.endsWith('.jsonl') || known.some(({ record }) => record === path)
    if (!isKnown && (await readSessionStart(path)) !== null) return path
  }
  return null
}

/** The words after `name` of its next such line; `null` when it said `done` instead. */
async function told(child: Child, name: string): Promise<string | null> {
  for (;;) {
    const [first, second = ''] = (await child.nextLine()).split(' ')
    if (first === name) return second
    if (first === 'done') return null
  }
}

/** The tasks that a record has as done by itself, by their number, and their uids. */
async function doneIn(record: string): Promise<Map<string, number>> {
  const done = new Map<string, number>()
  for await (const line of readCheckpoint(record)) {
    if (line.section !== 'event' || line.event_type !== 'TaskCompleted') continue
    const { result, reused } = line.attributes
    const value = JSON.parse(String(result)) as { i?: number; stdout?: string } | number
    if (reused === true) continue
    if (typeof value === 'number') done.set(`${line.task_id}`, -1)
    else done.set(`${line.task_id}`, value.i ?? Number(value.stdout))
  }
  return done
}

const quiet = createOutput('quiet', { write() {} }, { write() {} })

describe.each(kinds)('a $kind that is killed and resumed', (one) => {
  const { kind, count, kills } = one
  it(
    `resume: ${kind} of ${count} tasks, killed ${kills} times, runs each of them to its end once`,
    async () => {
      const folder = tempFolder()
      const random = createRandom(chooseSeed())
      const runs: EndedRun[] = []
      let record: string | null = null
      for (let kill = 0; kill < kills; kill++) {
        const isEarly = record !== null && random() < 0.2
        const enough = isEarly ? -1 : Math.floor((random() * count) / (kills + 1))
        const ended = await killAfter(enough, start(one, folder, kill, record))
        const written = ended.record ?? (await newRecordIn(folder, runs))
        runs.push({ ...ended, record: written })
        record = written ?? record
      }
      const last = start(one, folder, kills, record)
      const lastRecord = (await told(last.child, 'started')) ?? ''
      const digest = await lastLine(last.child)
      expect(await last.child.ended).toBe(0)
      runs.push({ ran: last.ran, record: lastRecord })
      expect(digest).toBe(`done ${digestOfValues(one)}`)
      await expectOnce(runs, lastRecord, one)
    },
    hangMs * 20,
  )
})

/** Digest of the values of an uninterrupted run. */
function digestOfValues({ kind, count }: Kind): string {
  const values: (number | string)[] = []
  for (let i = 0; i < count; i++) {
    const before = kind === 'graph' ? values[i - chains] : undefined
    const input = typeof before === 'number' ? before : 0
    if (isProgram(i)) values.push(`${i}\n`)
    else values.push((input * (isUnsteady(i) ? 17 : 31) + i) % 65_521)
  }
  return hash('sha256', JSON.stringify(values), 'hex')
}

/** Its last output. */
async function lastLine(child: Child): Promise<string> {
  for (;;) {
    const line = await child.nextLine()
    if (line.startsWith('done ')) return line
  }
}

/** Each task is done by itself once over the chain, and ran in no later run. */
async function expectOnce(
  runs: readonly EndedRun[],
  lastRecord: string,
  { kind, count }: Kind,
): Promise<void> {
  const { files } = await findChain(lastRecord)
  expect(files).toEqual(runs.flatMap(({ record }) => record ?? []))
  // It looks at every file of the run.
  expect(await verifyJournal(lastRecord, quiet)).toBe(0)
  const done = new Set<string>()
  const doneNumbers = new Set<number>()
  for (const { record, ran } of runs) {
    expect(ran().filter((i) => doneNumbers.has(i))).toEqual([])
    if (record === null) continue
    const doneHere = await doneIn(record)
    // An assertion for each uid takes longer than the run.
    expect([...doneHere.keys()].filter((uid) => done.has(uid))).toEqual([])
    for (const [uid, i] of doneHere) {
      done.add(uid)
      if (i >= 0) doneNumbers.add(i)
    }
  }
  expect(doneNumbers.size).toBe(count)
  expect(done.size).toBeGreaterThanOrEqual(minTasks[kind])
}
