/** Steps between panels that several parts of the page take. */

import { signal } from '@preact/signals'
import type { TasksPart } from '../../protocol.ts'
import { updateState } from './fragment.ts'

export interface TaskOrder {
  readonly sort: TasksPart['sort']
  readonly isDescending: boolean
}

export const taskOrder = signal<TaskOrder>({ sort: 'order', isDescending: false })

/** Shows the tasks that a query finds. The longest times come first. */
export function openTasks(q: string, sort: TasksPart['sort']): void {
  taskOrder.value = { sort, isDescending: sort === 'ran' || sort === 'waited' }
  updateState({ panel: 'tasks', q })
}

export const openTask = (uid: string): void => updateState({ task: uid })
