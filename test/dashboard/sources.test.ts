import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { appendFileSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { fileURLToPath } from 'node:url'
import { expect, it, onTestFinished } from 'vitest'
import { FolderSources } from '../../src/dashboard/sources/folder-sources.ts'
import type { ViewSource } from '../../src/dashboard/sources/view-source.ts'
import { AITask, ComputeTask, NoopBackend, Session } from '../../src/index.ts'
import { InferenceBackend } from '../../src/inference/index.ts'
import { ManualClock } from '../../src/testing/manual-clock.ts'
import { makeReport } from '../../src/report/report.ts'
import { eventually } from '../eventually.ts'
import { fillDisk, mountDisk, mounts } from '../mounts.ts'
import { needs } from '../require.ts'
import { tempFolder } from '../telemetry/open-telemetry.ts'
import {
  done,
  endedRecord,
  line,
  resumedFrom,
  send,
  startTestDashboard,
  TestViewer,
  writeRecord,
} from './test-dashboard.ts'

const head = { kind: 'head', filter: {} } as const

const createTasks = (count: number): ComputeTask[] =>
  Array.from({ length: count }, () => new ComputeTask({ executable: 'true' }))

it('dashboard: a session without a record is shown from the first viewer on', async () => {
  await using session = new Session([new NoopBackend()])
  const telemetry = await session.startTelemetry()
  const dashboard = await startTestDashboard(telemetry)
  await session.waitTasks(await session.submitTasks(createTasks(3)))
  const viewer = await TestViewer.open(dashboard.url)
  const before = await viewer.head()
  expect(before).toMatchObject({ state: 'running', record: null, counts: { total: 0 } })
  expect(before.beginsAt?.reason).toContain('since its first viewer')
  expect((await viewer.poll(head)).rights.report).toBe(false)
  expect((await viewer.get('/report')).status).toBe(404)
  await session.waitTasks(await session.submitTasks(createTasks(2)))
  await eventually(async () => expect((await viewer.head()).counts.done).toBe(2))
  await session.close()
  await eventually(async () => expect((await viewer.head()).state).toBe('ended'))
})

it('dashboard: requests to models are shown also without a record', async () => {
  await using session = new Session([new NoopBackend()])
  const telemetry = await session.startTelemetry()
  const viewer = await TestViewer.open((await startTestDashboard(telemetry)).url)
  await viewer.head()
  const now = Date.now() / 1000
  telemetry.recordSpan({
    spanId: 'c'.repeat(16),
    name: 'chat small',
    taskId: null,
    startTime: now - 1,
    endTime: now,
    attributes: {
      'gen_ai.request.model': 'small',
      'gen_ai.usage.input_tokens': 10,
      'gen_ai.usage.output_tokens': 5,
      'gen_ai.response.time_to_first_chunk': 0.2,
    },
    error: null,
    links: [],
  })
  await eventually(async () => {
    const { models } = await viewer.view({ kind: 'inference', filter: {} })
    expect(models).toMatchObject([
      { model: 'small', done: 1, ttft: { p50: expect.closeTo(0.2, 1) as number } },
    ])
  })
})

it('dashboard: a model file and its name for clients are one row', async () => {
  const config = { required: { model_name: './models/small.gguf' }, engine: { kind: 'echo' } }
  await using llm = await InferenceBackend.fromConfig(config, { useService: false })
  await using session = new Session([llm])
  const telemetry = await session.startTelemetry({ checkpointPath: tempFolder() })
  const viewer = await TestViewer.open((await startTestDashboard(telemetry)).url)
  await session.waitTasks(await session.submitTasks([new AITask({ prompt: 'How are you?' })]))
  await eventually(async () => {
    const { models } = await viewer.view({ kind: 'inference', filter: {} })
    expect(models).toMatchObject([{ model: 'small', done: 1, failed: 0, cacheUse: null }])
    expect(models[0]?.answerTokensPerSecond).toBeGreaterThan(0)
  })
})

it('dashboard: a session with a record is shown from its beginning', async () => {
  await using session = new Session([new NoopBackend()])
  const telemetry = await session.startTelemetry({ checkpointPath: tempFolder() })
  await session.waitTasks(await session.submitTasks(createTasks(3)))
  const viewer = await TestViewer.open((await startTestDashboard(telemetry)).url)
  await eventually(async () => {
    const { counts, state, beginsAt, record } = await viewer.head()
    expect([counts.done, state, beginsAt]).toEqual([3, 'running', null])
    expect(record).toBe(telemetry.checkpointFile)
  })
  await session.close()
  await eventually(async () => expect((await viewer.head()).state).toBe('ended'))
})

it('dashboard: the header tells how many events were dropped or lost', async () => {
  const losses = { sessionId: 's-1', droppedEvents: 3, lostLines: 1, subscribe: () => () => {} }
  for (const checkpointFile of [null, endedRecord(1)]) {
    const { url } = await startTestDashboard({ ...losses, checkpointFile })
    const viewer = await TestViewer.open(url)
    const expected = ['3 events dropped by telemetry', '1 line of the record lost']
    expect((await viewer.head()).missing).toEqual(expected)
  }
})

needs(mounts)('dashboard: a run on a full disk says that events may be missing', async () => {
  const disk = mountDisk('8m')
  await using session = new Session([new NoopBackend()])
  const telemetry = await session.startTelemetry({ checkpointPath: disk })
  const dashboard = await startTestDashboard(telemetry.checkpointFile ?? '')
  const viewer = await TestViewer.open(dashboard.url)
  const full = 'the disk of the record is full, so events may be missing'
  const expectMissing = (texts: readonly string[]): Promise<void> =>
    eventually(async () => {
      const { state, missing } = await viewer.head()
      expect([state, missing]).toEqual(['running', texts])
    })
  await expectMissing([])
  const makeRoom = fillDisk(disk)
  await expectMissing([full])
  makeRoom()
  await expectMissing([])
})

it('dashboard: a record whose writer is gone is interrupted', async () => {
  const writers = { isWriting: () => Promise.resolve(false) }
  const path = endedRecord(0)
  const begun = (['TaskCreated', 'TaskSubmitted', 'TaskStarted'] as const).map((type) =>
    line(type, 't1'),
  )
  writeFileSync(path, [line('SessionStarted'), ...begun].join(''))
  const viewer = await TestViewer.open((await startTestDashboard(path, {}, { writers })).url)
  await eventually(async () => {
    const { state, counts, reading } = await viewer.head()
    expect([reading, state, counts.interrupted, counts.running]).toEqual([
      null,
      'interrupted',
      1,
      0,
    ])
  })
})

it('dashboard: a folder lists its runs, and each can be opened', async () => {
  const folder = tempFolder()
  const write = (name: string, ...lines: readonly string[]): void =>
    writeFileSync(join(folder, name), lines.join(''))
  write('s-1.1700000000.telemetry.jsonl', line('SessionStarted'), done('t1'), line('SessionEnded'))
  write('other.txt', 'no record')
  mkdirSync(join(folder, 'deeper'))
  const writers = { isWriting: () => Promise.resolve(false) }
  const viewer = await TestViewer.open((await startTestDashboard(folder, {}, { writers })).url)
  const { records } = await viewer.view({ kind: 'records' })
  const [file, sessionId] = ['s-1.1700000000.telemetry.jsonl', 's-1']
  expect(records).toMatchObject([{ file, sessionId, state: 'ended', done: 1 }])
  expect(records[0]?.durationSeconds).toBeCloseTo(5)
  const chosen = { kind: 'head', filter: {} } as const
  const body = { queries: [{ id: 'a', query: chosen }], waitSeconds: 0 }
  const unchosen = JSON.parse((await viewer.post('/views', body)).text) as { answers: unknown[] }
  expect(unchosen.answers).toMatchObject([{ view: null, error: 'choose one of the runs first' }])
  await eventually(async () => {
    const opened = await viewer.post('/views', { ...body, record: records[0]?.file })
    const answer = JSON.parse(opened.text) as { answers: unknown[] }
    expect(answer.answers).toMatchObject([{ view: { counts: { done: 1 }, state: 'ended' } }])
  })
  for (const record of ['other.txt', '../x', 's-2.1700000000.telemetry.jsonl', '']) {
    expect((await viewer.post('/views', { ...body, record })).status, record).toBe(409)
  }
  const report = await viewer.get(`/report?record=${records[0]?.file}`)
  expect(report.text).toMatch(/^<!doctype html>/i)
})

it('row 92: a run that somebody looks at is not closed for the ninth one of a folder', async () => {
  const folder = tempFolder()
  const names = Array.from({ length: 9 }, (_, at) => `s-${at}.1700000000.telemetry.jsonl`)
  for (const name of names) writeFileSync(join(folder, name), line('SessionStarted'))
  const clock = new ManualClock()
  const writers = { isWriting: () => Promise.resolve(false) }
  const sources = new FolderSources(folder, { writers, clock })
  onTestFinished(() => sources.close())
  const open = (at: number): ViewSource => sources.find(names[at])
  const [first, second] = names.slice(0, 8).map((_, at) => open(at))
  await expect(open(8).answer(head, new AbortController().signal)).rejects.toThrow(
    '8 other runs are',
  )
  expect(open(0)).toBe(first)
  await clock.advance(5000)
  await first?.refresh()
  expect(open(8).hasReport).toBe(true)
  expect([open(0), open(8)].map(({ hasReport }) => hasReport)).toEqual([true, true])
  expect(open(0)).toBe(first)
  await clock.advance(5000)
  expect(open(1)).not.toBe(second)
})

it('dashboard: the counts of a run in the list come from its last metric line', async () => {
  const folder = tempFolder()
  await using session = new Session([new NoopBackend()])
  await session.startTelemetry({ checkpointPath: folder })
  await session.waitTasks(await session.submitTasks(createTasks(40)))
  await session.close()
  const viewer = await TestViewer.open((await startTestDashboard(folder)).url)
  const { records } = await viewer.view({ kind: 'records' })
  expect(records).toMatchObject([
    { sessionId: session.id, state: 'ended', done: 40, failed: 0, canceled: 0 },
  ])
})

it('dashboard: the list has the counts of a run that goes on', async () => {
  const folder = tempFolder()
  await using session = new Session([new NoopBackend()])
  const telemetry = await session.startTelemetry({ checkpointPath: folder })
  const viewer = await TestViewer.open((await startTestDashboard(folder)).url)
  for (const count of [40, 2000]) {
    await session.waitTasks(await session.submitTasks(createTasks(count)))
    await telemetry.flush()
    const { tasks } = telemetry.summary()
    await eventually(async () => {
      const { records } = await viewer.view({ kind: 'records' })
      const { state, done: ended, failed } = records[0] ?? {}
      expect([state, ended, failed]).toEqual(['running', tasks.completed, 0])
    })
  }
})

it('dashboard: a resumed run is listed with its beginning and its whole time', async () => {
  const folder = tempFolder()
  const write = (name: string, lines: readonly string[]): void =>
    writeFileSync(join(folder, name), lines.join(''))
  const [first, second] = [line('SessionStarted'), done('t1') + line('SessionEnded')]
  write('s-1.1700000000.telemetry.jsonl', [first, second])
  for (let at = 0; at < 100; at++) line('SessionStarted')
  const started = resumedFrom('s-1.1700000000.telemetry.jsonl')
  write('s-1.1700000100.telemetry.jsonl', [started, done('t1'), done('t2'), line('SessionEnded')])
  const viewer = await TestViewer.open((await startTestDashboard(folder)).url)
  const { records } = await viewer.view({ kind: 'records' })
  const { event_time: startTime } = JSON.parse(first) as { event_time: number }
  expect(records).toMatchObject([
    { file: 's-1.1700000100.telemetry.jsonl', startTime, durationSeconds: 5 + 9, done: 2 },
  ])
})

it('dashboard: "Save report" is the page that the command writes', async () => {
  const path = writeRecord(line('SessionStarted'), done('t1'), 'no event\n', done('t2'))
  const viewer = await TestViewer.open((await startTestDashboard(path)).url)
  await viewer.view(head)
  // The report reads on where the dashboard stopped.
  appendFileSync(path, done('t3') + line('SessionEnded'))
  const report = await viewer.get('/report')
  expect(report.headers).toMatchObject({
    'content-type': 'text/html; charset=utf-8',
    'content-disposition': 'attachment; filename="report.html"',
  })
  expect(report.text).toMatch(/^<!doctype html>[^]*All 3 tasks succeeded[^]*<\/html>\n?$/i)
  expect(report.text).toContain('line 6, byte')
  const command = [...(await makeReport(path))].join('')
  // The last script has source text of functions, which the test runner changes.
  const contentOf = (page: string): string =>
    page.slice(page.indexOf('<body'), page.lastIndexOf('<script'))
  expect(contentOf(report.text)).toBe(contentOf(command))
})

it('dashboard: a copied link opens the page in another browser', async () => {
  const viewer = await TestViewer.open((await startTestDashboard(endedRecord(1))).url)
  const { token } = JSON.parse((await viewer.post('/link')).text) as { readonly token: string }
  expect((await send(`${viewer.base}/?t=${token}`)).status).toBe(200)
  expect((await send(`${viewer.base}/?t=${token}`)).status).toBe(401)
})

it('dashboard: a program with an open dashboard and a viewer ends by itself', async () => {
  const index = fileURLToPath(new URL('../../dist/dashboard/index.js', import.meta.url))
  const program = `
    import { request, Agent } from 'node:http'
    import { startDashboard } from ${JSON.stringify(index)}
    const { url } = await startDashboard(${JSON.stringify(endedRecord(2))}, { port: 0 })
    const get = (url, options, body) => new Promise((resolve, reject) => {
      request(url, options, (response) => response.resume().on('end', () => resolve(response)))
        .on('error', reject).end(body)
    })
    const opened = await get(url, { agent: new Agent({ keepAlive: true }) })
    const cookie = opened.headers['set-cookie'][0].split(';')[0]
    const options = { method: 'POST', headers: { cookie, 'content-type': 'application/json' } }
    const body = '{"queries":[{"id":"a","query":{"kind":"head","filter":{}}}],"waitSeconds":0}'
    const answer = await get(new URL('views', url), options, body)
    console.log(opened.statusCode, answer.statusCode)
  `
  const child = spawn(process.execPath, ['--input-type=module', '-e', program])
  const [output] = await Promise.all([text(child.stdout), once(child, 'close')])
  expect([output, child.exitCode]).toEqual(['200 200\n', 0])
})

/** The niceness of the threads of this process, by thread id. */
const listPriorities = (): Map<string, number> =>
  new Map(
    readdirSync('/proc/self/task').map((id) => {
      const stat = readFileSync(`/proc/self/task/${id}/stat`, 'utf8')
      return [id, Number(stat.slice(stat.lastIndexOf(')')).split(' ')[17])]
    }),
  )

it('dashboard: while the run goes on, a thread of low priority reads for the viewers', async () => {
  await using session = new Session([new NoopBackend()])
  const telemetry = await session.startTelemetry({ checkpointPath: tempFolder() })
  const ended = await TestViewer.open((await startTestDashboard(endedRecord(1))).url)
  await eventually(async () => expect((await ended.head()).reading).toBeNull())
  const before = listPriorities()
  expect([...before.values()]).not.toContain(19)
  const { url } = await startTestDashboard(telemetry)
  // Without a viewer, there is no thread.
  expect(listPriorities()).toEqual(before)
  const viewer = await TestViewer.open(url)
  await eventually(async () => expect((await viewer.head()).reading).toBeNull())
  const lowered = [...listPriorities()].filter(([id, nice]) => nice !== (before.get(id) ?? 0))
  expect(lowered.map(([, nice]) => nice)).toEqual([19])
})
