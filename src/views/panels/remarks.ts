/**
 * Remarks: facts about single tasks other than their times, such as the errors of attempts, the
 * reason for a cancellation, reused results, and moves from a lost node. Uses 21 bytes per remark,
 * up to a limit, and 4 bytes per task if there are any remarks.
 */

import { createColumn, createTextIndex, findText, indexOf } from '../columns.ts'
import { setValue, textAt, valueAt } from '../columns.ts'
import { stages } from '../lifecycle.ts'
import { type Panel, resumption, textOf, type ViewEvent } from '../panel.ts'

/** The kinds of remarks. `attempt` means that an attempt failed and another attempt follows. */
const kinds = ['attempt', 'canceled', 'reused'] as const
type RemarkKind = (typeof kinds)[number]

export interface Remark {
  readonly kind: RemarkKind
  readonly time: number
  /**
   * The error of an attempt, the reason for a cancellation, or the source of a reused result
   * (`stored`, `shared` or `record`; empty if unknown).
   */
  readonly text: string
}

/** The move of a task from a lost node. */
export interface TaskMove {
  readonly time: number
  readonly nodeId: string
}

const createRemarks = () => ({
  texts: createTextIndex(),
  /** The kind of each remark. The columns up to `earlier` have one row per remark. */
  kind: createColumn('u8'),
  time: createColumn('f64'),
  text: createColumn('u32'),
  /** The number of the previous remark about the same task, plus 1. */
  earlier: createColumn('u32'),
  size: 0,
  /** For each task, the number of its latest remark plus 1. */
  latestOfTask: createColumn('u32'),
  /** The moves of tasks, by the uid that the task has in the current session. */
  moves: new Map<string, TaskMove>(),
  /** The uid of the task in the latest ResultReused. */
  reusedTask: '',
  source: '',
})

export type RemarksState = ReturnType<typeof createRemarks>

export interface RemarksQuery {
  readonly task: number
  readonly uid: string
}

export interface RemarksView {
  /** The remarks in order of time. */
  readonly remarks: readonly Remark[]
  readonly move: TaskMove | null
}

const maxRemarks = 1_000_000
const maxMoves = 10_000
/**
 * The maximum number of whole texts. Of further texts, only the beginning is kept, which is the
 * type of the error.
 */
const maxTexts = 10_000
const maxTextLength = 300

export const remarks: Panel<RemarksState, RemarksQuery, RemarksView> = {
  create: createRemarks,

  take(state, event, step) {
    const { stage, task, before, after } = step
    // Most events belong to early stages, which have no remarks.
    if (stage !== 0 && stage < stages.completed) return
    if (stage === 0) {
      if (task !== -1) recordAttempt(state, event, task)
      else if (event.event_type === 'tutti.TaskMoved') recordMove(state, event)
      else if (event.event_type === 'tutti.ResultReused') recordReuse(state, event)
      else if (step === resumption) state.moves.clear()
      return
    }
    if (stage === stages.canceled && after !== before) {
      addRemark(state, task, 'canceled', event, textOf(event.attributes['reason']))
    } else if (stage === stages.completed && event.attributes['reused'] === true) {
      addRemark(
        state,
        task,
        'reused',
        event,
        event.task_id === state.reusedTask ? state.source : '',
      )
    }
  },

  show(state, { task, uid }) {
    const found: Remark[] = []
    for (let at = valueAt(state.latestOfTask, task) - 1; at !== -1;) {
      found.push({
        kind: kinds[valueAt(state.kind, at)] ?? 'attempt',
        time: valueAt(state.time, at),
        text: textAt(state.texts, valueAt(state.text, at)),
      })
      at = valueAt(state.earlier, at) - 1
    }
    return { remarks: found.toReversed(), move: state.moves.get(uid) ?? null }
  },
}

function recordAttempt(state: RemarksState, event: ViewEvent, task: number): void {
  if (event.event_type !== 'tutti.TaskAttempt') return
  const [type, message] = [textOf(event.error_type), textOf(event.error_message)]
  addRemark(state, task, 'attempt', event, `${type}: ${message}`)
}

/** Stores the source for the terminal event of the task, which follows immediately. */
function recordReuse(state: RemarksState, { task_id, source }: ViewEvent): void {
  state.reusedTask = task_id ?? ''
  state.source = textOf(source).slice(0, maxTextLength)
}

function recordMove({ moves }: RemarksState, { tasks, event_time, node_id }: ViewEvent): void {
  if (!Array.isArray(tasks)) return
  for (const uid of tasks.slice(0, maxMoves - moves.size)) {
    moves.set(textOf(uid), { time: event_time, nodeId: node_id ?? '' })
  }
}

function addRemark(
  state: RemarksState,
  task: number,
  kind: RemarkKind,
  { event_time: time }: ViewEvent,
  text: string,
): void {
  if (state.size >= maxRemarks) return
  const [whole, start] = [text.slice(0, maxTextLength), text.slice(0, maxTextLength).split(':')[0]]
  const isNew = state.texts.size >= maxTexts && findText(state.texts, whole) === -1
  const at = state.size++
  setValue(state.kind, at, kinds.indexOf(kind))
  setValue(state.time, at, time)
  setValue(state.text, at, indexOf(state.texts, isNew ? (start ?? '') : whole))
  setValue(state.earlier, at, valueAt(state.latestOfTask, task))
  setValue(state.latestOfTask, task, at + 1)
}
