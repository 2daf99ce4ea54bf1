import { stripVTControlCharacters } from 'node:util'
import { describe, expect, it } from 'vitest'
import { progressLines, summaryLines } from '../../src/cli/progress.ts'
import { createView, fold } from '../../src/views/run-view.ts'

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

  it('has room for any number of kinds', () => {
    const view = createView()
    for (let at = 0; at < 150_000; at++) fold(view, event('TaskCreated', 100, `t${at}`, `f${at}`))
    expect(progressLines(view, 104)).toHaveLength(150_000)
  })

  it('shrinks the bars, then drops them, then the numbers that can be spared', () => {
    const plain = (width: number): string[] =>
      progressLines(sampleView(), 104, width).map((line) => stripVTControlCharacters(line))
    expect(plain(65)).toEqual([
      'simulate  ████░░░░  2/4  ok 1  failed 1  running 1  0.5/s  ETA 4s',
      'sort      ░░░░░░░░  0/1  ok 0',
    ])
    expect(plain(60)[0]).toBe('simulate  2/4  ok 1  failed 1  running 1  0.5/s  ETA 4s')
    expect(plain(39)[0]).toBe('simulate  2/4  ok 1  failed 1')
    expect(plain(19)).toEqual(['simul…  failed 1', 'sort    0/1  ok 0'])
  })

  it('row 96: shows failures from 20 columns on, and fills no more than it', () => {
    const view = sampleView()
    const name = `a-very-long-${'x'.repeat(80)}`
    for (let at = 0; at < 1200; at++) {
      fold(view, event('TaskCreated', 100, `long-${at}`, name))
      fold(view, event(at % 2 === 0 ? 'TaskFailed' : 'TaskCompleted', 103, `long-${at}`, name))
    }
    for (let width = 19; width < 200; width++) {
      const lines = progressLines(view, 104, width).map((line) => stripVTControlCharacters(line))
      expect(lines.filter((line) => line.length > width)).toEqual([])
      expect(lines.filter((line) => /failed (1|600)/.test(line))).toHaveLength(2)
    }
  })

  it('row 91: escapes control characters in names', () => {
    const view = createView()
    fold(view, event('TaskCreated', 100, 'a', '\u001B[31msort'))
    expect(progressLines(view, 104)[0]).toMatch(/^\\u001b\[31msort /)
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
