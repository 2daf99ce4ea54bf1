import { mkdtempSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { listFolder } from '../../src/record/record-list.ts'

const nobody = { isWriting: () => Promise.resolve(false) }

const event = (event_type: string, event_time: number, more: object = {}): string =>
  JSON.stringify({
    section: 'event',
    event_id: String(event_time),
    event_type,
    event_time,
    emit_time: event_time,
    session_id: 's-1',
    backend: 'local',
    task_id: null,
    node_id: null,
    attributes: {},
    trace_id: 't',
    span_id: 's',
    name: event_type,
    ...more,
  })

it('the records of a folder are listed, newest first, from their beginnings and ends', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'tutti-list-'))
  const write = (name: string, lines: readonly string[]): void =>
    writeFileSync(
      join(folder, `${name}.telemetry.jsonl`),
      lines.map((line) => `${line}\n`).join(''),
    )
  const filler = event('tutti.Note', 50, { attributes: { text: 'x'.repeat(1000) } })
  write('s-1.100', [
    event('SessionStarted', 100),
    ...Array.from({ length: 1000 }, () => filler),
    JSON.stringify({
      section: 'metric',
      checkpoint_time: 160,
      tasks_completed: 7,
      tasks_failed: 2,
      tasks_canceled: 1,
    }),
    event('SessionEnded', 160, { duration_seconds: 59.5 }),
  ])
  write('s-2.200', [
    event('SessionStarted', 200),
    event('TaskCompleted', 203, { task_id: 'a' }),
    event('TaskFailed', 204, { task_id: 'b' }),
  ])
  write('s-3.300', [])
  const { records, total } = await listFolder(folder, nobody)
  expect(total).toBe(2)
  expect(records.map((one) => ({ ...one, bytes: 0 }))).toEqual([
    {
      file: 's-2.200.telemetry.jsonl',
      sessionId: 's-2',
      state: 'interrupted',
      startTime: 200,
      durationSeconds: 4,
      bytes: 0,
      done: 1,
      failed: 1,
      canceled: 0,
    },
    {
      file: 's-1.100.telemetry.jsonl',
      sessionId: 's-1',
      state: 'ended',
      startTime: 100,
      durationSeconds: 59.5,
      bytes: 0,
      done: 7,
      failed: 2,
      canceled: 1,
    },
  ])
  const written = {
    isWriting: (_: string, sessionId: string) => Promise.resolve(sessionId === 's-2'),
  }
  const live = await listFolder(folder, written)
  expect(live.records.map(({ state }) => state)).toEqual(['running', 'ended'])
})
