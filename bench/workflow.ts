/**
 * The cost of a workflow compared with the session that it runs on: a chain with one task at a
 * time, a bag of tasks with the session's own, and diamonds. Every run is a separate process; runs
 * are interleaved and medians compared.
 */

import { measureModes, table } from './harness.ts'
import type { modes } from './workflow-modes.ts'

const runs = Number(process.env['RUNS'] ?? 5)
const names: readonly (keyof typeof modes)[] = [
  'oneAtATime',
  'chain',
  'sessionBag',
  'engineBag',
  'diamondsOfFour',
]

const measured = measureModes(new URL('workflow-modes.ts', import.meta.url), names, runs)
const of = (name: keyof typeof modes, key = 'perSecond'): number => measured(name, key)
const ratio = (a: number, b: number): string => (a / b).toFixed(2)

const chain = of('chain', 'taskMicros')
const [oneP50, oneMean] = [of('oneAtATime', 'p50Micros'), of('oneAtATime', 'taskMicros')]
table(
  ['one after the other', 'µs per task', 'ratio'],
  [
    ['session: construct, submit, await; median of tasks', oneP50.toFixed(1), ''],
    ['the same, mean of 1,000', oneMean.toFixed(1), ''],
    [
      'workflow: a chain of 1,000, mean',
      chain.toFixed(1),
      `${ratio(chain, oneP50)} x the median, ${ratio(chain, oneMean)} x the mean`,
    ],
  ],
)
table(
  ['100,000 independent no-ops, 2 threads', 'tasks/s', 'ratio'],
  [
    ['session', Math.round(of('sessionBag')), ''],
    ['workflow', Math.round(of('engineBag')), `${ratio(of('engineBag'), of('sessionBag'))} x`],
  ],
)
table(
  ['10,000 diamonds of 4, 2 threads', 'diamonds/s', 'tasks/s'],
  [['workflow', Math.round(of('diamondsOfFour')), Math.round(of('diamondsOfFour') * 4)]],
)
