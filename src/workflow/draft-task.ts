/** Stands for a task of a workflow until it is known what will run in its name. */

import { Task, type TaskKind, type TaskOptions } from '../tasks/task.ts'

/** Registered and awaited like any other; no backend ever sees it. */
export class DraftTask extends Task {
  readonly kind: TaskKind

  constructor(kind: TaskKind, options: TaskOptions) {
    super(options)
    this.kind = kind
  }
}
