import { describe, expect, it } from 'vitest'
import { reportOfRun } from './synthetic-reports.ts'

describe('tasks that wait behind requests for several cores', () => {
  const nodes = [{ nodeId: 'n1', cores: 4, workers: 2, maxProcesses: 2 }]
  const cores = (count: number) => ({ cores: count, gpus: 0, memory_mb: 0, ranks: 1 })
  /** A function of 4.5 s and one of 4 cores in turn, and short ones behind each of those. */
  const turns = [0, 1, 2, 3].flatMap((turn) => {
    const from = 5 * turn
    const short = { start: from + 4.9, end: from + 5, name: 'short' }
    return [
      { uid: `long${turn}`, start: from, end: from + 4.5 },
      { uid: `wide${turn}`, start: from + 4.5, end: from + 4.9, resources: cores(4) },
      { uid: `a${turn}`, ...short },
      { uid: `b${turn}`, ...short, worker: 'n1/local/w2' },
    ]
  })

  it('report: those are named, and not the workers, of which one was free', () => {
    const { boundText, bounds } = reportOfRun({ nodes, tasks: turns, end: 20 })
    expect(bounds.backends[0]?.idleSeconds.cores).toBeCloseTo(18)
    expect(boundText.bound).toBe('slots')
    expect(boundText.sentences[0]).toBe(
      'Requests for several cores bounded this run: for 90 % of the time the first task in the ' +
        'queue needed more cores than were free, so those behind it waited as well. Smaller ' +
        'requests would have finished it earlier, and so would more cores.',
    )
    expect(boundText.sentences.join(' ')).not.toContain('none was free')
  })

  it('report: where the workers were busy those are named, also with such a request', () => {
    const functions = Array.from({ length: 10 }, (_, at) => ({
      uid: `t${at}`,
      start: 1.3 * at,
      end: 1.3 * at + 1,
    }))
    const wide = { uid: 'wide', start: 13, end: 13.5, resources: cores(4) }
    const one = [{ nodeId: 'n1', cores: 4, workers: 1, maxProcesses: 2 }]
    const { boundText } = reportOfRun({ nodes: one, tasks: [...functions, wide], end: 13.5 })
    expect(boundText.sentences[0]).toMatch(
      /^The slots bounded this run: 1 worker .* for 67 % of it tasks waited because none was free/,
    )
  })
})
