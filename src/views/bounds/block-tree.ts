/**
 * Tracks which block created which task, and the order in which tasks ended, because the body of a
 * block continues when a task that it created has ended. 24 bytes per task in runs with blocks.
 */

import { blockBackend } from '../../foundation/ids.ts'
import { addToValue, type Column, createColumn, setValue, valueAt } from '../columns.ts'
import { hasEnded, stages } from '../lifecycle.ts'
import { numberOf, type TaskStep, type ViewEvent } from '../panel.ts'

export interface BlockTree {
  /** Open blocks by uid in the current file. */
  readonly open: Map<string, number>
  /** Columns with one row per task. Values are task numbers plus 1; 0 means none. */
  readonly blockOfTask: Column
  /** The last task of the same block that ended before this task was created. */
  readonly siblingOfTask: Column
  /** The sum of the block's retry delays when this task was created. */
  readonly delayOfTask: Column
  /** Columns with one row per block: the sum of retry delays, and the last task that ended. */
  readonly delayOfBlock: Column
  readonly latestOfBlock: Column
  /** Tasks in the order in which they ended; recorded only once the run has a block. */
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

/** Whether the record has tasks that were created by a block. */
export const hasChildren = ({ blockOfTask }: BlockTree): boolean => blockOfTask.blocks.length > 0

/** Call for each lifecycle event that changes the stages of its task. */
export function followBlocks(tree: BlockTree, event: ViewEvent, step: TaskStep): void {
  const { task, stage, after } = step
  const uid = event.task_id ?? ''
  if (stage === stages.created) makeInBlock(tree, event, task)
  else if (stage === stages.submitted && event.backend === blockBackend) tree.open.set(uid, task)
  else if (hasEnded(after) && (tree.open.size > 0 || tree.endedCount > 0)) endTask(tree, uid, task)
}

/** Call when an attempt of a task has failed and a retry follows. */
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
