/** The drawer of a task of a record, whose events the views do not keep. */

import { appendFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { eventLine } from '../../../src/checkpoint/format.ts'
import { RecordFold } from '../../../src/dashboard/fold/record-fold.ts'
import type { TaskDrawerView } from '../../../src/dashboard/protocol.ts'
import type { BaseEvent } from '../../../src/events/event.ts'
import { systemClock } from '../../../src/foundation/clock.ts'
import type { ViewEvent } from '../../../src/views/panel.ts'
import { eventually } from '../../eventually.ts'
import { tempFolder } from '../../telemetry/open-telemetry.ts'
import { eventsOf, type SyntheticTask } from '../../views/synthetic-run.ts'

const node = { nodeId: 'n1', cores: 2, workers: 2 }
const failed = (uid: string, end: number): SyntheticTask => ({
  uid,
  name: 'train',
  created: 0,
  queued: 0.9,
  start: 1,
  end,
  endType: 'TaskFailed',
})
const limits = { train: { concurrent: 3, per_second: null } }

let eventNumber = 0

const toLine = (event: ViewEvent): string => {
  const ids = { event_id: `e${eventNumber++}`, emit_time: event.event_time }
  return eventLine({ ...ids, ...event } as unknown as BaseEvent, 'a'.repeat(32), 'b'.repeat(16))
}

/** A fold over a record that nobody writes. */
function foldOver(folder: string, lines: readonly string[]) {
  const path = join(folder, 's-1.1700000000.telemetry.jsonl')
  writeFileSync(path, lines.join(''))
  const writers = { isWriting: () => Promise.resolve(false) }
  const fold = new RecordFold({ path, clock: systemClock, writers })
  const drawer = async (uid: string, at?: number): Promise<TaskDrawerView> => {
    const filter = at === undefined ? {} : { at }
    return JSON.parse(await fold.answer({ kind: 'task', uid, filter })) as TaskDrawerView
  }
  const readAll = async (): Promise<void> => {
    await eventually(async () => {
      await fold.refresh()
      const head = JSON.parse(await fold.answer({ kind: 'head', filter: {} })) as object
      expect(head).toMatchObject({ reading: null })
    })
  }
  /** The drawer after its events were read. */
  const whole = async (uid: string, at?: number): Promise<TaskDrawerView> => {
    const found: { view: TaskDrawerView | null } = { view: null }
    await eventually(async () => {
      found.view = await drawer(uid, at)
      expect(found.view.isReading).toBe(false)
    })
    if (found.view === null) throw new Error('expected a drawer')
    return found.view
  }
  return { fold, path, readAll, whole }
}

/** Two failures of one group, long before the latest events. */
function longRun(folder: string): ViewEvent[] {
  const later = Array.from({ length: 1200 }, (_, at): SyntheticTask => {
    return { uid: `later-${at}`, created: 20, start: 21 + at, end: 22 + at }
  })
  const tasks = [failed('first', 10), failed('second', 11), ...later]
  return eventsOf({ nodes: [node], tasks, end: 2000, limits }).map((event) => {
    if (event.event_type !== 'TaskFailed') return event
    const uid = event.task_id ?? ''
    const own = {
      error_message: `bad seed ${uid === 'first' ? 1 : 2}`,
      error_stack: `Error: of ${uid}\n    at run (/app/${uid}.js:7:1)`,
      stderr_tail: `the end of ${uid}`,
      ...(uid === 'second' ? { stdout_path: join(folder, 'second.txt') } : {}),
      colour: uid,
    }
    return { ...event, error_type: 'RangeError', attributes: { ...event.attributes, ...own } }
  })
}

it('the drawer of any failed task shows its own error, stack, output and attributes', async () => {
  const folder = tempFolder()
  writeFileSync(join(folder, 'second.txt'), 'said by second\n')
  const { readAll, whole } = foldOver(folder, longRun(folder).map(toLine))
  await readAll()
  const view = await whole('second')
  expect(view.error.join('\n')).toContain('RangeError "bad seed 2"')
  expect(view.error.join('\n')).toContain('/app/second.js:7:1')
  expect(view.stdout).toEqual({ text: 'said by second\n', isCut: false })
  expect(view.stderr).toEqual({ text: 'the end of second', isCut: false })
  expect(view.attributes).toContainEqual(['colour', 'second'])
  expect(view.story.join('\n')).toContain('at most 3 at a time')
  expect(view.commands.map(({ text }) => text.split(' ').slice(0, 3).join(' '))).toEqual([
    'npx tutti explain',
    'npx tutti logs',
    'npx tutti resume',
  ])
  const before = await whole('second', 5)
  expect(before).toMatchObject({ error: [], stdout: null, stderr: null })
  expect(before.attributes.map(([key]) => key)).not.toContain('colour')
})

it('the output file of a task shows its last part', async () => {
  const folder = tempFolder()
  writeFileSync(join(folder, 'second.txt'), `${'x'.repeat(50_000)}the end`)
  const { readAll, whole } = foldOver(folder, longRun(folder).map(toLine))
  await readAll()
  const { stdout } = await whole('second')
  expect(stdout).toMatchObject({ isCut: true })
  expect(stdout?.text).toHaveLength(20_000)
  expect(stdout?.text.endsWith('xthe end')).toBe(true)
})

it('the drawer of a growing record takes the events that were added', async () => {
  const folder = tempFolder()
  const events = longRun(folder)
  const isEnd = ({ event_type: type, task_id: task }: ViewEvent): boolean =>
    type === 'TaskFailed' && task === 'first'
  const { fold, path, readAll, whole } = foldOver(
    folder,
    events.filter((event) => !isEnd(event) && event.event_type !== 'SessionEnded').map(toLine),
  )
  await readAll()
  const before = await whole('first')
  expect(before).toMatchObject({ error: [], stderr: null })
  appendFileSync(path, events.filter(isEnd).map(toLine).join(''))
  await eventually(async () => {
    await fold.refresh()
    const { error, stderr } = await whole('first')
    expect(error.join('\n')).toContain('RangeError "bad seed 1"')
    expect(stderr).toMatchObject({ text: 'the end of first' })
  })
})
