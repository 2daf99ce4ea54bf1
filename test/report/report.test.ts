import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, describe, expect, it } from 'vitest'
import { acquireLock, lockPathOf } from '../../src/checkpoint/lock.ts'
import { makeReport } from '../../src/report/report.ts'
import { renderComparison } from '../../src/report/comparison.ts'
import { renderReport } from '../../src/report/page/document.ts'
import { describeCost, describeRun } from '../../src/views/texts/run-overview.ts'
import { viewEvent } from '../views/view-event.ts'
import { linesOf, recordFolder, writeRecord } from '../cli/reading/record-file.ts'
import { startCommandIn } from '../cli/run-command.ts'
import { eventsOf, passOver } from '../views/synthetic-run.ts'
import {
  boundedRuns,
  compare,
  largePass,
  mixedEvents,
  reportOf,
  reportOfRun,
} from './synthetic-reports.ts'

const folder = recordFolder()
afterAll(() => folder.remove())

/** The first sentence below the heading, as a reader of the page has it. */
const firstSentence = (html: string): string =>
  /What bounded this run<\/h2><p class="lead">([^<]*)</.exec(html)?.[1] ?? ''

describe('what bounded this run', () => {
  const words = {
    chain: 'critical path',
    bag: 'slots',
    straggler: 'straggler',
    gpus: 'gpus',
    overhead: 'overhead',
  } as const
  const runs = Object.entries(boundedRuns)
  it.each(runs)('report: the first sentence names the bound of the run %s', async (name, run) => {
    const path = writeRecord(folder.path, run, { sessionId: name })
    const html = [...(await makeReport(path))].join('')
    const own = words[name as keyof typeof words]
    expect(firstSentence(html)).toMatch(new RegExp(`\\b${own}\\b`))
    for (const other of Object.values(words)) {
      if (other !== own) expect(firstSentence(html).split(':')[0]).not.toContain(other)
    }
  })

  it.each(runs)('report: three sentences with numbers would shorten the run %s', (_, run) => {
    const { improvements } = reportOfRun(run).boundText
    expect(improvements).toHaveLength(3)
    for (const sentence of improvements) expect(sentence).toMatch(/\d/)
  })

  it('report: a run in which nothing ran has no bound', () => {
    const { boundText: said } = reportOfRun({ nodes: [], tasks: [], end: 5 })
    expect(said).toEqual({
      bound: null,
      sentences: ['Nothing bounded this run: no task ran in it.'],
      improvements: [],
    })
  })
})

describe('the page', () => {
  it('report: has a section for everything that happened, and no text of a task as HTML', () => {
    const html = [...renderReport(reportOf(passOver(mixedEvents())))].join('')
    for (const title of [
      'What bounded this run',
      'Timeline',
      'Durations by name',
      'Waiting against running',
      'Resources and efficiency',
      'Failures',
      'Attempts, lost workers and nodes',
      'Graph',
      'Batches of prompts',
      'About this run',
      'Tasks',
    ]) {
      expect(html).toContain(`>${title}</h2>`)
    }
    expect(html).not.toContain('<script>alert')
    expect(html).toContain('&lt;script&gt;alert(')
    expect(html).not.toMatch(/https?:\/\//)
  })

  it('row 91: report shows invisible characters and text directions as escapes', () => {
    const name = 'sort\u202E\u200B\u{E0041}'
    const task = { uid: 'a', name, start: 0, end: 1, worker: 'n1/local/\u2066w' }
    const run = { nodes: [{ nodeId: 'n1', cores: 1 }], tasks: [task], end: 2 }
    const html = [...renderReport(reportOfRun(run))].join('')
    const [page = '', data = ''] = html.split('<script type="application/json"')
    expect(page).toContain(String.raw`sort\u202e\u200b\u{e0041}`)
    expect(page).toContain(String.raw`\u2066w`)
    expect(page).not.toMatch(/\p{Cf}/u)
    // The stored text is not changed; the script escapes the text that it shows.
    expect(data).toContain(JSON.stringify(name))
  })

  it('report: the verdict is a sentence about the end of the run', () => {
    const verdictOf = (run: Parameters<typeof reportOfRun>[0]): string =>
      describeRun(reportOfRun(run)).sentence
    expect(verdictOf(boundedRuns.bag)).toBe('All 40 tasks succeeded in 10.0 s.')
    const failed = { uid: 'a', start: 0, end: 10, endType: 'TaskFailed' as const }
    expect(verdictOf({ nodes: [], tasks: [failed], end: 10 })).toBe(
      '0 of 1 task succeeded in 10.0 s; 1 failed.',
    )
    const cut = { nodes: [], tasks: [{ uid: 'a', start: 0, end: 1 }, { uid: 'b' }], end: 2 }
    const killed = reportOf(passOver(eventsOf(cut).slice(0, -1)), {}, 'interrupted')
    expect(describeRun(killed).sentence).toContain('1 of 2 tasks done, 0 failed, 1 open')
    expect(describeRun(reportOf(passOver(mixedEvents()))).sentence).toMatch(
      /^119 of 123 tasks succeeded in .*; 4 failed \(1 worker lost\)\.$/,
    )
  })

  it('report: says what telemetry has cost', () => {
    const cost = {
      main_cpu_seconds: 1.5,
      thread_cpu_seconds: 0.25,
      in_place_writes: 1,
      bytes_written: 2_500_000,
      spill_bytes: 0,
    }
    const sentence =
      '1.50 s of CPU time in the main thread and 250 ms in its own thread; ' +
      'it waited for 1 write, and wrote 2.5 MB of lines'
    expect(describeCost(cost)).toBe(sentence)
    expect(describeCost({ ...cost, spill_bytes: 1e6 })).toBe(`${sentence} and 1.0 MB of spans`)
    const end = viewEvent('SessionEnded', null, { attributes: { 'tutti.telemetry': cost } })
    const html = [...renderReport(reportOf(passOver([...mixedEvents(), end])))].join('')
    expect(html).toContain(`<dt>telemetry</dt><dd>${sentence}</dd>`)
  })

  it('report: of 100,000 tasks it has less than 10 MB, and says what it leaves out', () => {
    const html = [...renderReport(reportOf(largePass(100_000)))].join('')
    expect(Buffer.byteLength(html)).toBeLessThan(10e6)
    expect(html).toContain('The first 10,000 of 100,000 tasks')
    expect(html).toMatch(/A block is up to \d+ attempts/)
  })

  it('report: a name without a task that ran to its end has no durations', () => {
    const tasks = [
      { uid: 'a', name: 'open', start: 1 },
      { uid: 'b', name: 'missing', end: 1, endType: 'TaskFailed' as const },
    ]
    const data = reportOfRun({ nodes: [{ nodeId: 'n1', cores: 2 }], tasks, end: 4 })
    const html = [...renderReport(data)].join('')
    const rowsOf = (id: string): string[] =>
      Array.from(
        (html.split(`id="${id}"`)[1] ?? '').split('</section>')[0]?.matchAll(/<tr>.*?<\/tr>/gs) ??
          [],
        ([row]) => row.replaceAll(/<svg.*?<\/svg>/gs, '').replaceAll(/<[^>]+>/g, ' '),
      ).slice(1)
    expect(rowsOf('names').map((row) => row.trim().split(/\s+/))).toEqual([
      ['open', '1', '0', '3.00', 's', '-', '-', '-', '-'],
      ['missing', '1', '1', '-', '-', '-', '-', '-'],
    ])
    expect(rowsOf('waits').map((row) => row.trim().split(/\s+/))).toEqual([
      ['open', '1.00', 's', '-'],
    ])
  })

  it('report: the name whose tasks ran longest in total is the first', () => {
    const small = Array.from({ length: 5 }, (_, at) => {
      return { uid: `s${at}`, name: 'small', start: at, end: at + 1 }
    })
    const big = { uid: 'big', name: 'big', start: 0, end: 7, worker: 'n1/local/w2' }
    const run = { nodes: [{ nodeId: 'n1', cores: 2 }], tasks: [...small, big], end: 7 }
    const { names } = reportOfRun(run)
    expect(names.map(({ name, ranSeconds }) => [name, ranSeconds])).toEqual([
      ['big', 7],
      ['small', 5],
    ])
  })

  it('report: two runs compare, what became slower first', () => {
    const [fast, slow] = [reportOf(passOver(mixedEvents())), reportOf(passOver(mixedEvents(2)))]
    const { verdict, sentences, severity } = compare(fast, slow)
    expect(severity).toBe('bad')
    expect(verdict).toMatch(/^The second run was \d+ % slower: /)
    expect(sentences[0]).toMatch(/^Slower: simulate \(median/)
    expect(compare(slow, fast).sentences[0]).toMatch(/^Faster: /)
    expect(compare(fast, fast).verdict).toContain('as long as the first')
    // Both have one id.
    const html = [...renderComparison(fast, slow)].join('')
    expect(html).toMatch(/>first run<\/th><th[^>]*>second run</)
  })
})

describe('the command of a run', () => {
  it('report: a launched run names the launch and its options', async () => {
    const path = writeRecord(folder.path, boundedRuns.bag, { sessionId: 's-launched' })
    const launch = { options: { nodes: 2, cancelOnSignal: true }, more: ['--qos=low'] }
    const command = {
      kind: 'script',
      file: '/w/h.mjs',
      arguments: ['x', null],
      folder: '/w',
      launch,
    }
    writeFileSync(path.replace('.telemetry.jsonl', '.run'), JSON.stringify(command))
    const html = [...(await makeReport(path))].join('')
    expect(html).toContain(
      'npx tutti launch --nodes 2 --cancel-on-signal --qos=low /w/h.mjs x (secret)',
    )
  })
})

describe('two runs', () => {
  /** 40 tasks on one slot; the last four take the given time. */
  const runWith = (slowest: number) => {
    const tasks = Array.from({ length: 40 }, (_, at) => ({
      uid: `t${at}`,
      start: at * 10,
      end: at * 10 + (at < 36 ? 1 : slowest),
    }))
    return reportOfRun({ nodes: [{ nodeId: 'n1', cores: 1 }], tasks, end: 400 })
  }

  it('report: a name whose slowest tasks alone became slower is told', () => {
    expect(compare(runWith(1), runWith(3)).sentences[0]).toBe(
      'Slower in the slowest tasks: simulate (p95 1.00 s before, 3.00 s now).',
    )
    expect(compare(runWith(1), runWith(1)).sentences[0]).toContain('No name became')
  })

  /** Tasks of one name, each as long as given, one after the other; the first ones fail. */
  const bagOf = (count: number, seconds: number, failed = 0, name = 'simulate') =>
    reportOfRun({
      nodes: [{ nodeId: 'n1', cores: 1 }],
      tasks: Array.from({ length: count }, (_, at) => ({
        uid: `t${at}`,
        name,
        start: at * seconds,
        end: (at + 1) * seconds,
        ...(at < failed ? { endType: 'TaskFailed' as const } : {}),
      })),
      end: count * seconds,
    })

  it('report: of runs with different numbers of tasks none is called faster or slower', () => {
    const { verdict, severity, sentences } = compare(bagOf(40, 1), bagOf(10, 2))
    expect(verdict).toBe(
      'The runs differ in their tasks. They did 1.00 tasks per second, then 0.50, and took ' +
        '40.0 s, then 20.0 s.',
    )
    expect(severity).toBe('bad')
    expect(sentences).toEqual(['Slower: simulate (median 1.00 s before, 2.00 s now).'])
    const fewer = compare(bagOf(40, 1), bagOf(10, 1))
    expect(fewer.verdict).toContain('They did 1.00 tasks per second, then 1.00')
    expect(fewer.verdict).not.toMatch(/faster|slower/)
    expect(fewer.sentences.join(' ')).not.toMatch(/fewer failed/)
    const html = [...renderComparison(bagOf(40, 1), bagOf(10, 1))].join('')
    const row = /<tr><td[^>]*>duration<.*?<\/tr>/s.exec(html)?.[0] ?? ''
    expect(row).toContain('−75 %')
    expect(row).not.toMatch(/class="(up|down)"/)
  })

  it('report: a run of which fewer tasks were done is not called faster', () => {
    const { verdict, sentences } = compare(bagOf(40, 1), bagOf(40, 0.5, 30))
    expect(verdict).toBe('The same tasks ended differently. They took 40.0 s, then 20.0 s.')
    expect(sentences).toEqual([
      'Its tasks waited 9.75 s on average from being ready to their start, 19.5 s in the ' +
        'first run.',
    ])
  })

  it('report: names that only one of two runs has are rows of the table, and not compared', () => {
    const [before, after] = [bagOf(4, 1), bagOf(4, 3, 0, 'reduce')]
    const { verdict, severity, sentences } = compare(before, after)
    expect([severity, verdict]).toEqual([
      'warning',
      'The runs have no name in common, so their speeds cannot be compared. They took 4.00 s, ' +
        'then 12.0 s.',
    ])
    expect(sentences).toEqual([])
    const html = [...renderComparison(before, after)].join('')
    expect(html).toContain('<td>simulate</td><td class="n">4</td><td class="n">0</td>')
    expect(html).toContain('<td>reduce</td><td class="n">0</td><td class="n">4</td>')
  })

  it('row 94: a comparison says of which file how many lines were skipped', () => {
    const pass = passOver(eventsOf(boundedRuns.bag))
    const html = (...bad: readonly [number, number]): string => {
      const [before, after] = bad.map((count) => reportOf(pass, { bad: count }))
      return before && after ? [...renderComparison(before, after)].join('') : ''
    }
    expect(html(2, 1)).toContain('<strong>first run: 2 lines skipped.</strong>')
    expect(html(2, 1)).toContain('<strong>second run: 1 line skipped.</strong>')
    expect(html(0, 1)).not.toContain('first run: ')
    expect(html(0, 0)).not.toContain('skipped.')
  })

  it('report: more slots in use are points, and neither good nor bad', () => {
    const html = [...renderComparison(runWith(1), runWith(3))].join('')
    const row = /<tr><td[^>]*>slots in use<.*?<\/tr>/s.exec(html)?.[0] ?? ''
    expect(row).toContain('+2 points')
    expect(row).not.toMatch(/class="(up|down)"/)
  })
})

describe('tutti report', () => {
  const read = (...args: readonly string[]) => startCommandIn(folder.path, args).ended

  it('report: writes one file, and tells its path and size', async () => {
    const path = writeRecord(folder.path, boundedRuns.bag, { sessionId: 's-7' })
    const end = await read('report', path, '--json')
    expect(end.code).toBe(0)
    const { path: file, bytes } = JSON.parse(end.stdout) as { path: string; bytes: number }
    expect(file).toBe('s-7.report.html')
    expect(readFileSync(join(folder.path, file))).toHaveLength(bytes)
    const compared = await read('report', path, path, '-o', '-')
    expect(compared.stdout).toContain('What bounded them')
    const nowhere = await read('report', path, '-o', 'no/such/folder/x.html')
    expect([nowhere.code, nowhere.stderr]).toEqual([2, expect.stringContaining('cannot write')])
  })

  it('report: a run that goes on is said to, and its last line is not called torn', async () => {
    const told = eventsOf({ ...boundedRuns.bag, end: 5 }).filter(
      ({ event_type, event_time }) => event_type !== 'SessionEnded' && event_time <= 5,
    )
    const path = join(folder.path, 's-8.1790000000.telemetry.jsonl')
    writeFileSync(path, `${linesOf(told, 's-8')}{"section":"ev`)
    const lock = acquireLock(lockPathOf(folder.path, 's-8'))
    const running = await read('report', path, '-o', '-')
    lock.release()
    const over = await read('report', path, '-o', '-')
    expect(running.stdout).toMatch(
      />The run is in progress: after [^,]+, 20 of 40 tasks done, 0 failed, 20 open/,
    )
    expect(running.stdout).not.toMatch(/The run has no end|torn/)
    expect(running.stdout).toContain('"state":"running"')
    const compared = await read('report', path, 's-7', '-o', '-')
    expect(compared.stdout).toContain('>The first run has no end: its numbers are those up to its')
    expect(over.stdout).toMatch(/>The run has no end: after 5\.00 s/)
    expect(over.stdout).toContain('the last line is incomplete')
  })

  const whole = linesOf([...mixedEvents()])
  const damaged: readonly [string, string | Buffer, RegExp][] = [
    ['an empty file', '', /The record has no event/],
    ['half a record', whole.slice(0, whole.length / 2), /the last line is incomplete/],
    ['a corrupt record', `${whole.slice(0, 5000)}\0\0\n${whole}{]\n`, /\d lines skipped/],
    ['a record without a good line', Buffer.from([0xff, 0xfe, 10, 1, 2, 10, 3]), /2 lines skipped/],
    ['a record without an end', whole.split('\n').slice(0, 50).join('\n'), /The run has no end/],
  ]
  it.each(damaged)('row 94: %s gives a report that says so', async (_, content, words) => {
    const path = join(folder.path, 'damaged.1.telemetry.jsonl')
    writeFileSync(path, content)
    const end = await read('report', path, '-o', '-')
    expect([end.code, end.stderr]).toEqual([0, ''])
    expect(end.stdout).toMatch(words)
    expect(end.stdout.endsWith('</html>\n')).toBe(true)
  })
})
