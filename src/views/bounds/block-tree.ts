/**
 * Tracks which block (a workflow function) created which task, and the order in which tasks ended:
 * the body of a block continues when a task that it created has ended. Uses 24 bytes per task in
 * runs with blocks.
 */

import { blockBackend } from '../../foundation/ids.ts'
import { addToValue, createColumn, setValue, valueAt } from '../columns.ts'
import { hasEnded, stages } from '../lifecycle.ts'
import { numberOf, type TaskStep, type ViewEvent } from '../panel.ts'

export const createBlockTree = () => ({
  /** The open blocks of the current file, by uid. */
  open: new Map<string, number>(),
  /**
   * The block that created each task. The columns up to `delayOfTask` have one row per task. Tasks
   * are stored as their number plus 1; 0 means none.
   */
  blockOfTask: createColumn('u32'),
  /** The last task of the same block that ended before this task was created. */
  siblingOfTask: createColumn('u32'),
  /** The sum of the block's retry delays when this task was created. */
  delayOfTask: createColumn('f32'),
  /** The sum of retry delays of each block. This column and the next one have one row per block. */
  delayOfBlock: createColumn('f32'),
  latestOfBlock: createColumn('u32'),
  /** Tasks in the order in which they ended. Not recorded before the run has a block. */
  ended: createColumn('u32'),
  endedCount: 0,
})

export type BlockTree = ReturnType<typeof createBlockTree>

/** Whether the record has tasks that a block created. */
export const hasChildren = ({ blockOfTask }: BlockTree): boolean => blockOfTask.blocks.length > 0

/** Updates the tree. Call this for each lifecycle event that changes the stages of its task. */
export function updateBlockTree(tree: BlockTree, event: ViewEvent, step: TaskStep): void {
  const { task, stage, after } = step
  const uid = event.task_id ?? ''
  if (stage === stages.created) recordCreation(tree, event, task)
  else if (stage === stages.submitted && event.backend === blockBackend) tree.open.set(uid, task)
  else if (hasEnded(after) && (tree.open.size > 0 || tree.endedCount > 0))
    recordEnd(tree, uid, task)
}

/** Adds the retry delay of a block. Call this when an attempt has failed and a retry follows. */
export function addBlockDelay(tree: BlockTree, event: ViewEvent, task: number): void {
  if (!tree.open.has(event.task_id ?? '')) return
  const delay = (numberOf(event.retry_at) ?? 0) - event.event_time
  if (delay > 0) addToValue(tree.delayOfBlock, task, delay)
}

function recordCreation(tree: BlockTree, { attributes }: ViewEvent, task: number): void {
  const uid = attributes['tutti.block']
  const block = typeof uid === 'string' ? tree.open.get(uid) : undefined
  if (block === undefined) return
  setValue(tree.blockOfTask, task, block + 1)
  setValue(tree.siblingOfTask, task, valueAt(tree.latestOfBlock, block))
  setValue(tree.delayOfTask, task, valueAt(tree.delayOfBlock, block))
}

function recordEnd(tree: BlockTree, uid: string, task: number): void {
  tree.open.delete(uid)
  setValue(tree.ended, tree.endedCount++, task + 1)
  const block = valueAt(tree.blockOfTask, task) - 1
  if (block !== -1) setValue(tree.latestOfBlock, block, task + 1)
}
