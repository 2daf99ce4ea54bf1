/** Where the programs of a session run on this node. */

import { existsSync, mkdirSync, rmSync } from 'node:fs'
import { inWorkDir, type TaskSpec } from '../../tasks/spec.ts'

/** The session's own folder where this node has it, else one that is removed with the session. */
export class SessionFolder {
  readonly #substitute: string
  #isCreated = false

  constructor(substitute: string) {
    this.#substitute = substitute
  }

  /** The spec with a folder of this node; `wanted` is that of a session that named none. */
  place(spec: TaskSpec, wanted: string): TaskSpec {
    if (spec.kind !== 'program') return spec
    const folder = spec.workDir ?? wanted
    if (existsSync(folder)) return inWorkDir(spec, folder)
    if (!this.#isCreated) mkdirSync(this.#substitute, { recursive: true })
    this.#isCreated = true
    return inWorkDir(spec, this.#substitute)
  }

  remove(): void {
    if (this.#isCreated) rmSync(this.#substitute, { recursive: true, force: true })
  }
}
