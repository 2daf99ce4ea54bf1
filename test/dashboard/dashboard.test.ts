import { appendFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { expect, it, onTestFinished } from 'vitest'
import { startDashboard } from '../../src/dashboard/dashboard.ts'
import { eventually } from '../eventually.ts'
import {
  done,
  endedRecord,
  line,
  startTestDashboard,
  TestViewer,
  writeRecord,
} from './test-dashboard.ts'

const head = { kind: 'head', filter: {} } as const

it('dashboard: shows a finished record', async () => {
  const path = endedRecord(3)
  const viewer = await TestViewer.open((await startTestDashboard(path)).url)
  await eventually(async () => expect((await viewer.head()).reading).toBeNull())
  expect(await viewer.head()).toMatchObject({
    sessionId: 's-1',
    record: path,
    state: 'ended',
    counts: { done: 3, total: 3, running: 0 },
  })
})

it('dashboard: an answer follows once the record has grown', async () => {
  // Ended, because the time of a running one is a change as well.
  const path = endedRecord(1)
  const viewer = await TestViewer.open((await startTestDashboard(path)).url)
  await eventually(async () => expect((await viewer.head()).reading).toBeNull())
  const { answers, server } = await viewer.poll(head)
  const version = answers[0]?.version ?? ''
  expect((await viewer.poll(head, { version })).answers).toEqual([])
  const next = viewer.poll(head, { version, waitSeconds: 25 })
  appendFileSync(path, done('t3'))
  const changed = await next
  expect(changed.server).toBe(server)
  expect(changed.answers[0]?.version).not.toBe(version)
})

it('row 130: a record that is cut or replaced is read again, and the page says so', async () => {
  const path = endedRecord(3)
  const viewer = await TestViewer.open((await startTestDashboard(path)).url)
  const expectShown = async (total: number, missing: unknown[]): Promise<void> => {
    await eventually(async () => {
      expect(await viewer.head()).toMatchObject({ counts: { total }, missing, reading: null })
    })
  }
  await expectShown(3, [])
  writeFileSync(path, line('SessionStarted') + done('t1'))
  const again = (change: string): unknown =>
    expect.stringMatching(`the record was ${change} at .*, and was read again`)
  await expectShown(1, [again('cut')])
  renameSync(endedRecord(5), path)
  await expectShown(5, [again('replaced')])
  rmSync(path)
  await expectShown(5, [expect.stringContaining('does not exist'), again('replaced')])
})

it('dashboard: a record that does not exist yet is shown once it is there', async () => {
  const path = writeRecord()
  rmSync(path)
  const viewer = await TestViewer.open((await startTestDashboard(path)).url)
  expect(await viewer.head()).toMatchObject({
    state: 'no record',
    verdict: 'There is no record to show.',
    missing: [expect.stringContaining('does not exist yet')],
  })
  writeFileSync(path, line('SessionStarted') + done('t1'))
  await eventually(async () => expect((await viewer.head()).counts.done).toBe(1))
})

it('dashboard: a file that is no record is refused', async () => {
  const path = writeRecord('garbage\n')
  await expect(startTestDashboard(path)).rejects.toThrow(`${path} is not a record`)
  await expect(startTestDashboard('/dev/null')).rejects.toThrow('/dev/null')
})

it('dashboard: without a given port, the next free one is used', async () => {
  const blocker = createServer()
  await new Promise<void>((resolve) => {
    blocker.once('error', () => resolve())
    blocker.listen(4646, '127.0.0.1', resolve)
  })
  onTestFinished(() => void blocker.close())
  const path = endedRecord(1)
  const first = await startTestDashboard(path, { port: undefined as never })
  const taken = Number(new URL(first.url).port)
  expect(taken).toBeGreaterThan(4646)
  await expect(startTestDashboard(path, { port: taken })).rejects.toThrow(`port ${taken} in use`)
})

it('dashboard: wrong options are named', async () => {
  const open = async (options: object): Promise<unknown> => await startDashboard('x', options)
  await expect(open({ ports: 1 })).rejects.toThrow('did you mean "port"')
  await expect(open({ port: -1 })).rejects.toThrow('`port`')
  await expect(open({ control: { stop: 1 } })).rejects.toThrow('stop')
  await expect(open({ allowHosts: 'me' })).rejects.toThrow('`allowHosts`')
  await expect(startDashboard({} as never)).rejects.toThrow('subscribe()')
})
