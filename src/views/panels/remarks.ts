/**
 * Remarks: facts about single tasks other than their times: the errors of attempts, the reason of a
 * cancellation, reused results, and moves from a lost node. 21 bytes per remark, up to a limit, and
 * 4 bytes per task if there are any.
 */

import { type Column, createColumn, createTextIndex, findText, indexOf } from '../columns.ts'
import { setValue, textAt, type TextIndex, valueAt } from '../columns.ts'
import { stages } from '../lifecycle.ts'
import { type Panel, resumption, textOf, type ViewEvent } from '../panel.ts'

/** `attempt`: an attempt failed and another one follows. */
const kinds = ['attempt', 'canceled', 'reused'] as const
type RemarkKind = (typeof kinds)[number]

export interface Remark {
  readonly kind: RemarkKind
  readonly time: number
  /**
   * The error of an attempt; the reason of a cancellation; or the source of a reused result:
   * `stored`, `shared` or `record`, empty if unknown.
   */
  readonly text: string
}

/** A task that was moved from a lost node. */
export interface TaskMove {
  readonly time: number
  readonly nodeId: string
}

export interface RemarksState {
  readonly texts: TextIndex
  /** The following columns have one row per remark. */
  readonly kind: Column
  readonly time: Column
  readonly text: Column
  /** The previous remark about the same task, plus 1. */
  readonly earlier: Column
  size: number
  /** For each task, its latest remark plus 1. */
  readonly latestOfTask: Column
  /** Moves of tasks, by uid in the current session. */
  readonly moves: Map<string, TaskMove>
  /** The uid and result source of the latest ResultReused. */
  reusedTask: string
  source: string
}

export interface RemarksQuery {
  readonly task: number
  readonly uid: string
}

export interface RemarksView {
  /** In order of time. */
  readonly remarks: readonly Remark[]
  readonly move: TaskMove | null
}

const maxRemarks = 1_000_000
const maxMoves = 10_000
/** Beyond this number, only the beginning of a text is kept, which is the type of the error. */
const maxTexts = 10_000
const maxTextLength = 300

export const remarks: Panel<RemarksState, RemarksQuery, RemarksView> = {
  create: () => ({
    texts: createTextIndex(),
    kind: createColumn('u8'),
    time: createColumn('f64'),
    text: createColumn('u32'),
    earlier: createColumn('u32'),
    size: 0,
    latestOfTask: createColumn('u32'),
    moves: new Map(),
    reusedTask: '',
    source: '',
  }),

  take(state, event, step) {
    const { stage, task, before, after } = step
    // Most events are of early stages, which have no remarks.
    if (stage !== 0 && stage < stages.completed) return
    if (stage === 0) {
      if (task !== -1) followAttempt(state, event, task)
      else if (event.event_type === 'tutti.TaskMoved') followMove(state, event)
      else if (event.event_type === 'tutti.ResultReused') followReuse(state, event)
      else if (step === resumption) state.moves.clear()
      return
    }
    if (stage === stages.canceled && after !== before) {
      add(state, task, 'canceled', event, textOf(event.attributes['reason']))
    } else if (stage === stages.completed && event.attributes['reused'] === true) {
      add(state, task, 'reused', event, event.task_id === state.reusedTask ? state.source : '')
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

function followAttempt(state: RemarksState, event: ViewEvent, task: number): void {
  if (event.event_type !== 'tutti.TaskAttempt') return
  const [type, message] = [textOf(event.error_type), textOf(event.error_message)]
  add(state, task, 'attempt', event, `${type}: ${message}`)
}

/** ResultReused immediately precedes the terminal event of its task. */
function followReuse(state: RemarksState, { task_id, source }: ViewEvent): void {
  state.reusedTask = task_id ?? ''
  state.source = textOf(source).slice(0, maxTextLength)
}

function followMove({ moves }: RemarksState, { tasks, event_time, node_id }: ViewEvent): void {
  if (!Array.isArray(tasks)) return
  for (const uid of tasks.slice(0, maxMoves - moves.size)) {
    moves.set(textOf(uid), { time: event_time, nodeId: node_id ?? '' })
  }
}

function add(
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
