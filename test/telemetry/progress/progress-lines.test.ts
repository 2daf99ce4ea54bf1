import { stripVTControlCharacters } from 'node:util'
import { describe, expect, it } from 'vitest'
import {
  progressLines,
  progressPanels,
  summaryLines,
} from '../../../src/telemetry/progress/progress-lines.ts'
import { Pass } from '../../../src/views/pass.ts'

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
  node_id: null,
  attributes: {
    executable: name,
    task_type: 'function',
    error_type: 'RangeError',
    error_message: 'bad seed\nsecond line',
  },
})

function samplePass() {
  const pass = new Pass(progressPanels)
  pass.take(event('SessionStarted', 100, null))
  for (const uid of ['a', 'b', 'c', 'd']) pass.take(event('TaskCreated', 100, uid))
  pass.take(event('TaskCreated', 100, 'e', '/usr/bin/sort'))
  pass.take(event('TaskStarted', 101, 'a'))
  pass.take(event('TaskCompleted', 102, 'a'))
  pass.take(event('TaskStarted', 101, 'b'))
  pass.take(event('TaskFailed', 102, 'b'))
  pass.take(event('TaskStarted', 102, 'c'))
  return pass
}

const timeLeft = (pass: ReturnType<typeof samplePass>, now: number): string =>
  /ETA .*/.exec(progressLines(pass, now)[0] ?? '')?.[0] ?? 'none'

/** Three tasks that took a second, and the last one, which has been running since 100. */
function stragglerPass() {
  const pass = new Pass(progressPanels)
  pass.take(event('SessionStarted', 100, null))
  for (const uid of ['a', 'b', 'c', 'd']) {
    pass.take(event('TaskCreated', 100, uid))
    pass.take(event('TaskStarted', 100, uid))
    if (uid !== 'd') pass.take(event('TaskCompleted', 101, uid))
  }
  return pass
}

describe('progress', () => {
  it('progress: no time left is shown for a straggler from the rate of others', () => {
    expect(timeLeft(stragglerPass(), 101)).toBe('ETA 1 s')
    expect(timeLeft(stragglerPass(), 110)).toBe('none')
    // Others that wait are estimated.
    const pass = stragglerPass()
    pass.take(event('TaskCreated', 101, 'e'))
    expect(timeLeft(pass, 110)).not.toBe('none')
  })

  it('progress: tasks that never ran say nothing about the time left', () => {
    const pass = new Pass(progressPanels)
    pass.take(event('SessionStarted', 100, null))
    for (const uid of ['a', 'b', 'c']) pass.take(event('TaskCreated', 100, uid))
    pass.take(event('TaskFailed', 101, 'a'))
    expect(timeLeft(pass, 104)).toBe('none')
    expect(progressLines(pass, 104)[0]).toMatch(/failed 1$/)
  })

  it('progress: tasks that never ran are no cause of their own in the summary', () => {
    const pass = samplePass()
    const failed = event('TaskFailed', 103, 'd')
    const attributes = { ...failed.attributes, error_type: 'DependencyFailedError' }
    pass.take({ ...failed, attributes })
    expect(summaryLines(pass).slice(1)).toEqual([
      '  1 x simulate: RangeError "bad seed" (first: b)',
      '  1 task never ran, because what it needs has failed',
    ])
  })

  it('progress: a line for each name, with rate and time left', () => {
    const lines = progressLines(samplePass(), 104).map((line) => stripVTControlCharacters(line))
    expect(lines).toEqual([
      'simulate  ██████████░░░░░░░░░░  2/4  ok 1  failed 1  running 1  0.7/s  ETA 3 s',
      'sort      ░░░░░░░░░░░░░░░░░░░░  0/1  ok 0',
    ])
  })

  it('progress: names that people gave are shown whole, and cut in the middle', () => {
    const pass = new Pass(progressPanels)
    const names = ['train/step', 'test/step', 'name/of/7', '/opt/sim', '/usr/sort', '/bin/sort']
    for (const name of names) pass.take(event('TaskCreated', 100, name, name))
    const labels = (width: number): string[] =>
      progressLines(pass, 104, { width }).map((line) => line.split(/ {2,}/)[0] ?? '')
    const shown = ['train/step', 'test/step', 'name/of/7', 'sim', '/usr/sort', '/bin/sort']
    expect(labels(80)).toEqual(shown)
    expect(labels(24).slice(0, 3)).toEqual(['trai…tep', 'test…tep', 'name…f/7'])
  })

  it('progress: wide characters are counted as two columns', () => {
    const pass = new Pass(progressPanels)
    for (const name of ['漢字漢字', 'ab', '🚀'.repeat(40)]) {
      pass.take(event('TaskCreated', 100, name, name))
    }
    expect(progressLines(pass, 104, { width: 60 })).toEqual([
      `漢字漢字${' '.repeat(12)}  ${'░'.repeat(20)}  0/1  ok 0`,
      `ab${' '.repeat(18)}  ${'░'.repeat(20)}  0/1  ok 0`,
      `${'🚀'.repeat(5)}…${'🚀'.repeat(4)}   ${'░'.repeat(20)}  0/1  ok 0`,
    ])
  })

  it('progress: the text of a task is shown only if it runs alone', () => {
    const pass = new Pass(progressPanels)
    const report = (uid: string, fraction: number, text: string): void =>
      pass.take({ ...event('tutti.TaskProgress', 103, uid), fraction, text })
    for (const uid of ['a', 'b']) pass.take(event('TaskCreated', 100, uid))
    for (const uid of ['a', 'b']) pass.take(event('TaskStarted', 101, uid))
    report('a', 0.2, 'part 2')
    report('b', 0.8, 'part 8')
    expect(progressLines(pass, 104)[0]).toMatch(/running 2 {2}at 50 %$/)
    pass.take(event('TaskCompleted', 104, 'b'))
    expect(progressLines(pass, 105)[0]).toMatch(/running 1 {2}at 20 % \(part 2\) {2}/)
  })

  it('progress: with many tasks at a time the first end gives no time far too long', () => {
    const pass = new Pass(progressPanels)
    pass.take(event('SessionStarted', 100, null))
    const uids = Array.from({ length: 100 }, (_, at) => `t${at}`)
    for (const uid of uids) pass.take(event('TaskCreated', 100, uid))
    for (const uid of uids.slice(0, 10)) pass.take(event('TaskStarted', 100, uid))
    pass.take(event('TaskCompleted', 101, 't0'))
    pass.take(event('TaskStarted', 101, 't10'))
    // Ten tasks of a second at a time: ten seconds.
    const [, seconds = ''] = /ETA (\d+) s$/.exec(progressLines(pass, 101)[0] ?? '') ?? []
    expect(Number(seconds)).toBeGreaterThan(5)
    expect(Number(seconds)).toBeLessThan(20)
  })

  it('progress: the rate is that of the last ten seconds, and of an ended name its mean', () => {
    const pass = new Pass(progressPanels)
    pass.take(event('SessionStarted', 100, null))
    const uids = Array.from({ length: 41 }, (_, at) => `t${at}`)
    for (const uid of uids) pass.take(event('TaskCreated', 100, uid))
    // One per second from second 200 on, then four per second.
    const endTimes = uids.map((_, at) => (at < 20 ? 201 + at : 220.25 + (at - 19) / 4))
    pass.take(event('TaskStarted', 200, 't0'))
    const lineAt = (now: number): string => {
      while ((endTimes[0] ?? Infinity) <= now) {
        const uid = uids.at(-endTimes.length) ?? ''
        pass.take(event('TaskCompleted', endTimes.shift() ?? 0, uid))
      }
      return (progressLines(pass, now)[0] ?? '').replace(/^.* ok \d+ */, '')
    }
    expect(lineAt(219.9)).toMatch(/^1\.0\/s {2}ETA 2\d s$/)
    expect(lineAt(225.4)).toMatch(/^2\.[4-7]\/s {2}ETA 1 s$/)
    // The last end was in second 225.5; the mean is that of 25.5 seconds.
    expect(lineAt(300)).toBe('1.6/s')
    pass.take(event('TaskCreated', 300, 'later'))
    expect(lineAt(300)).toMatch(/^0\/s {2}ETA \d+ s$/)
  })

  it('progress: slow tasks have a rate per minute', () => {
    const pass = new Pass(progressPanels)
    pass.take(event('TaskStarted', 100, 'a'))
    pass.take(event('TaskCompleted', 160, 'a'))
    expect(progressLines(pass, 160)[0]).toMatch(/ok 1 {2}1\.0\/min$/)
  })

  it('progress: canceled tasks are not progress', () => {
    const pass = samplePass()
    for (const uid of ['c', 'd']) pass.take(event('TaskCanceled', 103, uid))
    expect(progressLines(pass, 104)[0]).toBe(
      'simulate  ██████████░░░░░░░░░░  2/4  ok 1  failed 1  canceled 2  2.0/s',
    )
  })

  it('row 125: a run with more names than lines shows the running ones, and the total', () => {
    const pass = new Pass(progressPanels)
    pass.take(event('SessionStarted', 100, null))
    for (let at = 0; at < 45; at++) {
      const of = (type: string, time: number): void =>
        pass.take(event(type, time, `t${at}`, `python3 a-long-script-name-${at}.py`))
      of('TaskCreated', 100)
      if (at % 3 === 0) of('TaskStarted', 101)
      if (at < 10) of('TaskCompleted', 102)
    }
    const lines = progressLines(pass, 103, { width: 79, max: 21 })
    expect(lines).toHaveLength(21)
    const shown = lines.slice(0, 19).map((line) => Number(/-(\d+)\.py/.exec(line)?.[1]))
    // Running names, then those that have not started, then those that have ended.
    const running = Array.from({ length: 11 }, (_, at) => 12 + at * 3)
    expect(shown).toEqual([...running, 10, 11, 13, 14, 16, 17, 19, 20])
    expect(lines[0]).toMatch(/^python3 a-lon…t-name-12\.py {2}░+ {2}0\/1 {2}ok 0 {2}running 1$/)
    expect(lines[19]).toBe('and 26 more')
    expect(lines[20]).toMatch(
      /^total +█+░+ +10\/45 {2}ok 10 {2}running 11 {2}[\d.]+\/s {2}ETA \d s$/,
    )
    for (const width of [19, 39, 79]) {
      for (let max = 1; max < 50; max++) {
        const cut = progressLines(pass, 103, { width, max })
        expect(cut.length).toBe(Math.min(45, max))
        expect(cut.filter((line) => line.length > width)).toEqual([])
        if (max < 45) expect(cut.at(-1)).toMatch(/^tot/)
      }
    }
  })

  it('progress: of a run whose begin was not seen, times are since it is followed', () => {
    const pass = new Pass(progressPanels)
    pass.take(event('TaskCreated', 102, 'a'))
    pass.take(event('TaskStarted', 102, 'a'))
    pass.take(event('TaskCompleted', 104, 'a'))
    expect(progressLines(pass, 104, { since: 100 })[0]).toMatch(/ {2}1\/1 {2}ok 1 {2}0\.5\/s$/)
    expect(summaryLines(pass, 100)).toEqual(['1 task in 4.00 s, 1 done, 0 failed, 0 canceled'])
  })

  it('progress: thousands have a comma in the summary', () => {
    const pass = new Pass(progressPanels)
    for (let at = 0; at < 1029; at++) {
      pass.take(event('TaskCreated', 102, `t${at}`))
      pass.take(event('TaskStarted', 102, `t${at}`))
      pass.take(event('TaskCompleted', 216, `t${at}`))
    }
    expect(summaryLines(pass, 100)).toEqual([
      '1,029 tasks in 1 m 56 s, 1,029 done, 0 failed, 0 canceled',
    ])
  })

  it('progress: one of a kind is not told as many, and what is cut has a mark', () => {
    const pass = new Pass(progressPanels)
    pass.take(event('SessionStarted', 100, null))
    pass.take(event('TaskCreated', 100, 'a'))
    const long = event('TaskFailed', 101, 'a')
    const attributes = { ...long.attributes, error_message: 'x'.repeat(300) }
    pass.take({ ...long, attributes })
    for (const type of ['tutti.TaskAttempt', 'tutti.WorkerLost']) pass.take(event(type, 101, 'a'))
    pass.take({ ...event('tutti.Batch', 101, null), size: 1 })
    expect(summaryLines(pass)).toEqual([
      '1 task in 1.00 s, 0 done, 1 failed, 0 canceled, 1 further attempt, 1 worker lost',
      '  1 prompt in 1 batch (1.0 each)',
      `  1 x simulate: RangeError "${'x'.repeat(99)}…" (first: a)`,
    ])
  })

  it('progress: what was reused counts apart, and not for the rate', () => {
    const pass = samplePass()
    const { attributes, ...rest } = event('TaskCompleted', 102, 'd')
    pass.take({ ...rest, attributes: { ...attributes, reused: true } })
    expect(progressLines(pass, 104)[0]).toBe(
      'simulate  ███████████████░░░░░  3/4  reused 1  ok 1  failed 1  running 1  0.7/s  ETA 2 s',
    )
    expect(summaryLines(pass)[0]).toContain('2 done (1 of them reused), 1 failed')
  })

  it('progress: a task between two attempts is waiting, not running', () => {
    const pass = samplePass()
    const line = (): string =>
      stripVTControlCharacters(progressLines(pass, 104)[0] ?? '').replace(/^.*failed 1 */, '')
    pass.take(event('TaskStarted', 103, 'd'))
    pass.take(event('tutti.TaskAttempt', 103, 'c'))
    pass.take(event('tutti.TaskAttempt', 103, 'unknown'))
    expect(line()).toBe('running 1  waiting 1  0.7/s  ETA 3 s')
    pass.take(event('tutti.TaskAttempt', 103, 'd'))
    expect(line()).toBe('waiting 2  0.7/s  ETA 3 s')
    pass.take(event('tutti.AttemptStarted', 103, 'c'))
    expect(line()).toBe('running 1  waiting 1  0.7/s  ETA 3 s')
    pass.take(event('TaskCanceled', 103, 'd'))
    pass.take(event('tutti.TaskAttempt', 103, 'd'))
    expect(line()).toBe('canceled 1  running 1  0.7/s  ETA 2 s')
  })

  it('progress: attempts that wait and what tasks report are shown', () => {
    const pass = samplePass()
    pass.take(event('TaskStarted', 102, 'd'))
    const about = (type: string, uid: string, fields: object = {}): void =>
      pass.take({ ...event(type, 103, uid), attributes: {}, ...fields })
    about('tutti.TaskProgress', 'd', { fraction: 0.5, text: 'half\u001B[2J' })
    about('tutti.TaskAttempt', 'c')
    const line = (): string => stripVTControlCharacters(progressLines(pass, 104)[0] ?? '')
    const numbers = '2/4  ok 1  failed 1  running 1'
    const own = 'waiting 1  at 50 % (half\\u001b[2J)'
    expect(line()).toBe(`simulate  ████████████░░░░░░░░  ${numbers}  ${own}  0.7/s  ETA 3 s`)
    about('tutti.AttemptStarted', 'c')
    about('tutti.TaskProgress', 'c', { fraction: 7, text: 4 })
    expect(line()).toContain('running 2  at 75 %  0.7/s')
    pass.take(event('TaskCompleted', 104, 'c'))
    pass.take(event('TaskCompleted', 104, 'd'))
    // Events after the end, or about an unknown task, change nothing.
    about('tutti.TaskAttempt', 'c')
    about('tutti.TaskProgress', 'unknown', { fraction: 0.1 })
    expect(line()).toBe('simulate  ████████████████████  4/4  ok 3  failed 1  1.3/s')
  })

  it('progress: takes any number of names', () => {
    const pass = new Pass(progressPanels)
    for (let at = 0; at < 150_000; at++) pass.take(event('TaskCreated', 100, `t${at}`, `f${at}`))
    expect(progressLines(pass, 104)).toHaveLength(150_000)
  })

  it('progress: narrow widths shrink the bars, drop them, then drop numbers', () => {
    const plain = (width: number): string[] =>
      progressLines(samplePass(), 104, { width }).map((line) => stripVTControlCharacters(line))
    expect(plain(65)).toEqual([
      'simulate  ███░░░░  2/4  ok 1  failed 1  running 1  0.7/s  ETA 3 s',
      'sort      ░░░░░░░  0/1  ok 0',
    ])
    expect(plain(60)[0]).toBe('simulate  2/4  ok 1  failed 1  running 1  0.7/s  ETA 3 s')
    expect(plain(39)[0]).toBe('simulate  2/4  ok 1  failed 1')
    expect(plain(19)).toEqual(['sim…te  failed 1', 'sort    0/1  ok 0'])
  })

  it('row 96: progress shows failures from 20 columns on and never exceeds the width', () => {
    const pass = samplePass()
    const name = `a-very-long-${'x'.repeat(80)}`
    for (let at = 0; at < 1200; at++) {
      pass.take(event('TaskCreated', 100, `long-${at}`, name))
      pass.take(event(at % 2 === 0 ? 'TaskFailed' : 'TaskCompleted', 103, `long-${at}`, name))
    }
    for (let width = 19; width < 200; width++) {
      const lines = progressLines(pass, 104, { width, isColored: true }).map((line) =>
        stripVTControlCharacters(line),
      )
      expect(lines.filter((line) => line.length > width)).toEqual([])
      expect(lines.filter((line) => /failed (1|600)/.test(line))).toHaveLength(2)
    }
  })

  it('row 91: progress escapes control characters in names', () => {
    const pass = new Pass(progressPanels)
    pass.take(event('TaskCreated', 100, 'a', '\u001B[31msort\u200B'))
    expect(progressLines(pass, 104)[0]).toMatch(/^\\u001b\[31msort\\u200b /)
  })

  it('summary lines: counts, and failures grouped by cause', () => {
    const pass = samplePass()
    pass.take(event('SessionEnded', 104.5, null))
    expect(summaryLines(pass)).toEqual([
      '5 tasks in 4.50 s, 1 done, 1 failed, 0 canceled, 3 not ended',
      '  1 x simulate: RangeError "bad seed" (first: b)',
    ])
  })
})
