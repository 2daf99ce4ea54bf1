import { stripVTControlCharacters } from 'node:util'
import { describe, expect, it } from 'vitest'
import { progressLines, summaryLines } from '../../src/cli/progress.ts'
import { createView, fold } from '../../src/view/run-view.ts'

const event = (
  event_type: string,
  event_time: number,
  task_id: string | null,
  name = 'simulate',
) => ({
  event_type,
  event_time,
  session_id: 's-1',
  backend: 'local',
  task_id,
  attributes: {
    executable: name,
    task_type: 'function',
    error_type: 'RangeError',
    error_message: 'bad seed\nsecond line',
  },
})

function sampleView() {
  const view = createView()
  fold(view, event('SessionStarted', 100, null))
  for (const uid of ['a', 'b', 'c', 'd']) fold(view, event('TaskCreated', 100, uid))
  fold(view, event('TaskCreated', 100, 'e', '/usr/bin/sort'))
  fold(view, event('TaskStarted', 101, 'a'))
  fold(view, event('TaskCompleted', 102, 'a'))
  fold(view, event('TaskFailed', 102, 'b'))
  fold(view, event('TaskStarted', 102, 'c'))
  return view
}

describe('progress', () => {
  it('has a line for every kind of task, with rate and time left', () => {
    const lines = progressLines(sampleView(), 104).map((line) => stripVTControlCharacters(line))
    expect(lines).toEqual([
      'simulate  ██████████░░░░░░░░░░  2/4  ok 1  failed 1  running 1  0.5/s  ETA 4s',
      'sort      ░░░░░░░░░░░░░░░░░░░░  0/1  ok 0',
    ])
  })

  it('sums up with failures grouped by cause', () => {
    const view = sampleView()
    fold(view, event('SessionEnded', 104.5, null))
    expect(summaryLines(view)).toEqual([
      '5 tasks in 4.5 s, 1 done, 1 failed, 0 canceled',
      '  1 x simulate: RangeError "bad seed" (first: b)',
    ])
  })
})
