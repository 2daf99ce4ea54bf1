import { expect, it } from 'vitest'
import { timeline } from '../../src/report/page/charts.ts'
import { reportOfRun } from './synthetic-reports.ts'

/** The rows of the timeline by task, and the worker of each row. */
function rowsOf(html: string): { rows: Record<string, number>; labels: string[] } {
  const rects = html.matchAll(/y="([\d.]+)"[^>]*><title>(\w+) /g)
  const rows = Object.fromEntries(Array.from(rects, ([, y, uid]) => [uid, (Number(y) - 2) / 16]))
  return { rows, labels: Array.from(html.matchAll(/<div title="([^"]+)"/g), ([, id]) => id ?? '') }
}

it('tasks that one worker ran at the same time are drawn in rows of their own', () => {
  const data = reportOfRun({
    nodes: [{ nodeId: 'n1', cores: 4 }],
    tasks: [
      { uid: 'a', start: 0, end: 4, worker: 'n1/local/p1' },
      { uid: 'b', start: 1, end: 2, worker: 'n1/local/p1' },
      { uid: 'c', start: 2, end: 3, worker: 'n1/local/p1' },
      { uid: 'd', start: 0, end: 4, worker: 'n1/local/p2' },
    ],
    end: 4,
  })
  const { rows, labels } = rowsOf(timeline(data))
  expect(labels).toEqual(['n1/local/p1 #1', 'n1/local/p1 #2', 'n1/local/p2'])
  expect(rows).toEqual({ a: 0, b: 1, c: 1, d: 2 })
})

it('closures get few rows, below those of workers', () => {
  const closures = Array.from({ length: 30 }, (_, at) => {
    return { uid: `c${at}`, start: 0, end: 1, worker: 'n1/local/main' }
  })
  const busy = { uid: 'a', start: 0, end: 4, worker: 'n1/local/w1' }
  const nodes = [{ nodeId: 'n1', cores: 4 }]
  const html = timeline(reportOfRun({ nodes, tasks: [...closures, busy], end: 4 }))
  const main = [1, 2, 3, 4].map((row) => `n1/local/main #${row}`)
  expect(rowsOf(html).labels).toEqual(['n1/local/w1', ...main])
  expect(rowsOf(html).rows['a']).toBe(0)
  expect(html).toContain('Not shown: 26 attempts, the least busy ones.')
})

it('workers beyond the rows that fit are told', () => {
  const tasks = Array.from({ length: 70 }, (_, at) => ({
    uid: `t${at}`,
    start: 0,
    end: 1,
    worker: `n1/local/w${at}`,
  }))
  const html = timeline(reportOfRun({ nodes: [{ nodeId: 'n1', cores: 70 }], tasks, end: 1 }))
  expect(rowsOf(html).labels).toHaveLength(64)
  expect(html).toContain('Not shown: 6 more workers and 6 attempts, the least busy ones.')
})

it('where rows are short, those that were busy longest are shown, also of the last worker', () => {
  const programs = Array.from({ length: 200 }, (_, at) => ({
    uid: `c${at}`,
    start: 0,
    end: 0.1 + at / 1e4,
    worker: 'n1/local/p1',
  }))
  const answer = { uid: 'prompt', start: 1, end: 9, worker: 'inference-0', backend: 'llm' }
  const nodes = [{ nodeId: 'n1', cores: 4 }]
  const html = timeline(reportOfRun({ nodes, tasks: [...programs, answer], end: 10 }))
  const { rows, labels } = rowsOf(html)
  expect(labels).toHaveLength(64)
  expect(labels.at(-1)).toBe('inference-0')
  expect(rows['prompt']).toBe(63)
  // The longest of the others.
  expect(Object.keys(rows)).toContain('c199')
  expect(html).toContain('Not shown: 137 attempts, the least busy ones.')
  // Rows that would look empty are left out, but each worker has one.
  const long = { ...answer, end: 9000 }
  const few = timeline(reportOfRun({ nodes, tasks: [...programs, long], end: 9000 }))
  expect(rowsOf(few).labels).toEqual(['n1/local/p1', 'inference-0'])
})
