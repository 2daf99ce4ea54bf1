/** Stands for a task of a workflow until it is known what will run in its name. */

import type { TaskFields } from '../tasks/task-fields.ts'
import { Task, type TaskKind } from '../tasks/task.ts'

/** Registered and awaited like any other; no backend ever sees it. */
export class DraftTask extends Task {
  readonly kind: TaskKind

  constructor(kind: TaskKind, fields: TaskFields) {
    super(fields)
    this.kind = kind
  }
}
