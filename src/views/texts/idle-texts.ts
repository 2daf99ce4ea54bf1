/** Texts for each reason why slots were idle. Pure. */

import type { IdleReason } from '../bounds/slots.ts'

/** The bounds of a run that are visible as idle slots. */
export type IdleBound =
  | 'slots'
  | 'limits'
  | 'worker start'
  | 'short tasks'
  | 'scheduler'
  | 'nodes'
  | 'tasks'
  | 'gpus'
  | 'memory'
  | 'labels'

export interface IdleText {
  readonly bound: IdleBound
  /** The subject of the sentence "… bounded this run". */
  readonly subject: string
  /** The end of the sentence "for 20 % of the slots' time …". */
  readonly state: string
  /** The beginning of the sentence "… it could end up to 2 s earlier". */
  readonly change: string
}

const slotText = (state: string): IdleText => {
  return { bound: 'slots', subject: 'The slots', state, change: 'With more slots' }
}

export const idleTexts: Readonly<Record<IdleReason, IdleText>> = {
  cores: slotText('free slots had too few cores for the tasks that were ready'),
  workers: slotText('all `workers` for functions were in use'),
  processes: slotText('all `maxProcesses` for programs were in use'),
  gpus: {
    bound: 'gpus',
    subject: 'Too few gpus',
    state: 'free slots lacked gpus for the tasks that were ready',
    change: 'With enough gpus for the tasks that are ready',
  },
  memory: {
    bound: 'memory',
    subject: 'Too little memory',
    state: 'free slots lacked memory for the tasks that were ready',
    change: 'With enough memory for the tasks that are ready',
  },
  labels: {
    bound: 'labels',
    subject: 'Too few nodes with the right labels',
    state: 'free slots lacked the labels of the tasks that were ready',
    change: 'If all nodes had the labels that tasks ask for,',
  },
  nameLimit: {
    bound: 'limits',
    subject: 'The limits of the session',
    state: 'a ready task waited for the limit of its name (`limits`)',
    change: 'Without the limits of the session',
  },
  startingWorkers: {
    bound: 'worker start',
    subject: 'Starting workers',
    state: 'a ready task waited for its worker to start and load its module',
    change: 'If workers started in no time,',
  },
  taskOverhead: {
    bound: 'short tasks',
    subject: 'Tasks too short for their overhead',
    state: 'a ready task was just being started',
    change: 'If starting a task took no time,',
  },
  heldBack: {
    bound: 'scheduler',
    subject: 'Waiting for the scheduler',
    state: 'a ready task that fitted a free slot waited for the scheduler',
    change: 'If no ready task waited for the scheduler,',
  },
  nodeAway: {
    bound: 'nodes',
    subject: 'Missing nodes',
    state: 'a node had not joined yet or had left',
    change: 'If the nodes were present all the time,',
  },
  noTaskReady: {
    bound: 'tasks',
    subject: 'Too few ready tasks',
    state: 'no task was ready',
    change: 'If tasks were ready earlier,',
  },
}
