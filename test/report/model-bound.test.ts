import { describe, expect, it } from 'vitest'
import { renderReport } from '../../src/report/page/document.ts'
import type { ReportData } from '../../src/report/report-data.ts'
import type { SyntheticTask } from '../views/synthetic-run.ts'
import { reportOfRun } from './synthetic-reports.ts'

const textOf = ({ boundText }: ReportData): string =>
  [...boundText.sentences, ...boundText.improvements].join('\n')

/** Prompts that a model answers four at a time, of 2 s each, all ready from the start. */
const prompts = (count: number): SyntheticTask[] =>
  Array.from({ length: count }, (_, at) => ({
    uid: `p${at}`,
    name: 'stories.gguf',
    taskType: 'ai',
    backend: 'llm',
    start: 2 * Math.floor(at / 4),
    end: 2 * Math.floor(at / 4) + 2,
    worker: 'inference-0',
  }))

const closure = { uid: 'load', start: 0, end: 0.01, worker: 'n1/local/main' }

describe('a run whose prompts wait for a model', () => {
  it('report: the model bounded it, also where slots of another backend were idle', () => {
    const nodes = [{ nodeId: 'n1', cores: 2 }]
    const data = reportOfRun({ nodes, tasks: [closure, ...prompts(20)], end: 10 })
    expect(data.boundText.bound).toBe('model')
    expect(data.boundText.sentences).toEqual([
      'The model of llm bounded this run: it answered prompts for 100 % of the time, at most 4 ' +
        'at a time (`sequences`, of other engines than llama `max_concurrency`), and for 80 % of ' +
        'the time further ones waited.',
      '2 slots of local ran tasks for 0 % of 10.0 s.',
    ])
    expect(data.boundText.improvements[0]).toBe(
      'With twice as many prompts of llm at a time (`sequences`, of other engines than llama ' +
        '`max_concurrency`) it could end up to 5.00 s earlier.',
    )
    expect(textOf(data)).not.toContain('ready earlier')
    const page = [...renderReport(data)].join('')
    expect(page).toContain('</strong>slots of local in use')
    expect(page).toContain('<strong>100 %</strong>llm busy')
  })

  it('report: without any node told, no worker of a model counts as a slot', () => {
    const data = reportOfRun({ nodes: [], tasks: prompts(20), end: 10 })
    expect(data.boundText.bound).toBe('model')
    expect(data.bounds.slots).toBe(0)
    expect(textOf(data)).not.toMatch(/slots? ran|NaN|Infinity/u)
    expect([...renderReport(data)].join('')).not.toMatch(/NaN|Infinity|slots in use/u)
  })

  it('report: where tasks wait for what a model answers, few ready tasks are no bound', () => {
    const answers = prompts(4).map((task, at) => ({ ...task, start: 2 * at, end: 2 * at + 2 }))
    const after = answers.map(({ uid, end }, at) => ({
      uid: `join${at}`,
      dependencies: [uid],
      ready: end,
      start: end,
      end: end + 0.1,
      worker: 'n1/local/main',
    }))
    const waiting = answers.map((task, at) => ({ ...task, created: 2 * at }))
    const nodes = [{ nodeId: 'n1', cores: 2 }]
    const { boundText } = reportOfRun({ nodes, tasks: [...waiting, ...after], end: 9 })
    expect(boundText.bound).toBe('model')
    expect(boundText.sentences[0]).toContain('none had to wait for it')
  })

  it('report: a chain of prompts is a critical path', () => {
    const chain = prompts(5).map((task, at) => ({
      ...task,
      start: 2 * at,
      end: 2 * at + 2,
      ...(at === 0 ? {} : { ready: 2 * at, dependencies: [`p${at - 1}`] }),
    }))
    const { boundText } = reportOfRun({ nodes: [], tasks: chain, end: 10 })
    expect(boundText.bound).toBe('critical path')
  })
})
