import { appendFileSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { afterAll, describe, expect, it } from 'vitest'
import { createOutput, type Output } from '../../../src/cli/output.ts'
import { explain } from '../../../src/cli/reading/explain/explain.ts'
import { listFailures } from '../../../src/cli/reading/failures.ts'
import { writeReport } from '../../../src/cli/reading/report.ts'
import { showStatus } from '../../../src/cli/reading/status.ts'
import { listTasks } from '../../../src/cli/reading/tasks.ts'
import { readViews } from '../../../src/record/record-views.ts'
import { byRun } from '../../long-run.ts'
import { eventsOf, type SyntheticRun } from '../../views/synthetic-run.ts'
import { viewEvent } from '../../views/view-event.ts'
import { linesOf, recordFolder, writeRecord } from './record-file.ts'

const folder = recordFolder()
afterAll(() => folder.remove())

const run: SyntheticRun = {
  nodes: [{ nodeId: 'n1', cores: 4, gpus: 1 }],
  tasks: [
    { uid: 'sim-1', start: 1, end: 4, worker: 'n1/local/w1' },
    { uid: 'sim-2', start: 1, end: 3, worker: 'n1/local/w2', endType: 'TaskFailed' },
    { uid: 'sum', name: 'reduce', ready: 4, start: 5, end: 6, dependencies: ['sim-1'] },
  ],
  end: 10,
}

/** The output of each reader for a record. */
const readers: Readonly<Record<string, (path: string, output: Output) => Promise<number>>> = {
  status: showStatus,
  tasks: (path, output) => listTasks(path, { limit: 100 }, output),
  failures: (path, output) => listFailures(path, { limit: 10 }, output),
  explain: (path, output) => explain('sum', path, output),
  report: (path, output) => writeReport(path, undefined, { output: '-' }, output),
}

async function readAll(path: string): Promise<Record<string, string>> {
  const said: Record<string, string> = {}
  for (const [name, show] of Object.entries(readers)) {
    let text = ''
    const stream = {
      write: (part: string) => {
        text += part
        return true
      },
    }
    const code = await show(path, createOutput('json', stream, stream))
    said[name] = `${code} ${text}`
  }
  return said
}

describe('a large record', () => {
  it('report, status: the views of a record above 32 MB are kept beside it', async () => {
    const line = `${JSON.stringify({ section: 'other', text: 'x'.repeat(2 ** 20) })}\n`
    for (const [name, tail] of [
      ['large', line.repeat(33)],
      ['small', ''],
    ] as const) {
      const path = writeRecord(folder.path, run, { sessionId: name, tail })
      for (const show of [readers['report'], readers['status']]) {
        rmSync(`${path}.view`, { force: true })
        const output = createOutput('quiet', { write: () => true }, { write: () => true })
        await show?.(path, output)
        expect([name, existsSync(`${path}.view`)]).toEqual([name, name === 'large'])
      }
      const pages = [(await readAll(path))['report'], (await readAll(path))['report']]
      expect(pages[0]).toBe(pages[1])
    }
  })
})

describe.each([
  ['that ends where the record ends', ''],
  ['after which the record went on', linesOf([viewEvent('TaskCreated', 'later')])],
])('a damaged snapshot %s', (what, rest) => {
  const place = recordFolder()
  afterAll(() => place.remove())

  it(`snapshot: damaged, cut or of another run, ${what}: readers say the same`, async () => {
    const path = writeRecord(place.path, run)
    await readViews(path, { snapshot: 'write' })
    const view = readFileSync(`${path}.view`)
    appendFileSync(path, rest)
    rmSync(`${path}.view`)
    const expected = await readAll(path)
    writeFileSync(`${path}.view`, view)
    expect(await readAll(path)).toEqual(expected)
    for (const damaged of [...flipped(view), ...cut(view), await foreign()]) {
      writeFileSync(`${path}.view`, damaged)
      expect(await readAll(path)).toEqual(expected)
    }
    rmSync(`${path}.view`)
    mkdirSync(`${path}.view`)
    expect(await readAll(path)).toEqual(expected)
  })
})

const places = byRun(6, 20)
/** One bit at each of so many places from the first byte to the last. */
const flipped = (view: Buffer): Buffer[] =>
  Array.from({ length: places }, (_, at) => {
    const changed = Buffer.from(view)
    const place = Math.round((at * (view.length - 1)) / (places - 1))
    changed[place] = (changed[place] ?? 0) ^ (1 << (at % 8))
    return changed
  })

const cut = (view: Buffer): Buffer[] =>
  [0, 1, view.indexOf('\n'), view.indexOf('\n') + 1, view.length >> 1, view.length - 1].map(
    (length) => view.subarray(0, length),
  )

/** That of another record with the same name. */
async function foreign(): Promise<Buffer> {
  const events = eventsOf({ ...run, tasks: run.tasks.slice(1) })
  const path = writeRecord(folder.path, run)
  writeFileSync(path, linesOf(events))
  await readViews(path, { snapshot: 'write' })
  return readFileSync(`${path}.view`)
}
