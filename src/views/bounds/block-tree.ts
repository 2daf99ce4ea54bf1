/**
 * Which block made which task, and in what order tasks ended: the body of a block goes on when a
 * task that it made has ended. In runs with blocks 24 bytes a task.
 */

import { blockBackend } from '../../foundation/ids.ts'
import { addToValue, type Column, createColumn, setValue, valueAt } from '../columns.ts'
import { hasEnded, stages } from '../lifecycle.ts'
import { numberOf, type TaskStep, type ViewEvent } from '../panel.ts'

export interface BlockTree {
  /** The blocks that have not ended, by their uids in the file that is read. */
  readonly open: Map<string, number>
  /** Columns with one row for each task; tasks are their numbers plus 1, and 0 is none. */
  readonly blockOfTask: Column
  /** The task of the same block that ended last before this one was made. */
  readonly siblingOfTask: Column
  /** The delays between attempts of its block until then. */
  readonly delayOfTask: Column
  /** Of a block: all its delays, and the task of it that ended last. */
  readonly delayOfBlock: Column
  readonly latestOfBlock: Column
  /** Tasks in the order in which they ended, from the first block on. */
  readonly ended: Column
  endedCount: number
}

export const createBlockTree = (): BlockTree => ({
  open: new Map(),
  blockOfTask: createColumn('u32'),
  siblingOfTask: createColumn('u32'),
  delayOfTask: createColumn('f32'),
  delayOfBlock: createColumn('f32'),
  latestOfBlock: createColumn('u32'),
  ended: createColumn('u32'),
  endedCount: 0,
})

/** Whether the record tells of tasks that a block made. */
export const hasChildren = ({ blockOfTask }: BlockTree): boolean => blockOfTask.blocks.length > 0

/** Call for the lifecycle events that change their task. */
export function followBlocks(tree: BlockTree, event: ViewEvent, step: TaskStep): void {
  const { task, stage, after } = step
  const uid = event.task_id ?? ''
  if (stage === stages.created) makeInBlock(tree, event, task)
  else if (stage === stages.submitted && event.backend === blockBackend) tree.open.set(uid, task)
  else if (hasEnded(after) && (tree.open.size > 0 || tree.endedCount > 0)) endTask(tree, uid, task)
}

/** The latest attempt at a task has failed, and another one follows. */
export function followBlockAttempt(tree: BlockTree, event: ViewEvent, task: number): void {
  if (!tree.open.has(event.task_id ?? '')) return
  const delay = (numberOf(event.retry_at) ?? 0) - event.event_time
  if (delay > 0) addToValue(tree.delayOfBlock, task, delay)
}

function makeInBlock(tree: BlockTree, { attributes }: ViewEvent, task: number): void {
  const uid = attributes['tutti.block']
  const block = typeof uid === 'string' ? tree.open.get(uid) : undefined
  if (block === undefined) return
  setValue(tree.blockOfTask, task, block + 1)
  setValue(tree.siblingOfTask, task, valueAt(tree.latestOfBlock, block))
  setValue(tree.delayOfTask, task, valueAt(tree.delayOfBlock, block))
}

function endTask(tree: BlockTree, uid: string, task: number): void {
  tree.open.delete(uid)
  setValue(tree.ended, tree.endedCount++, task + 1)
  const block = valueAt(tree.blockOfTask, task) - 1
  if (block !== -1) setValue(tree.latestOfBlock, block, task + 1)
}
