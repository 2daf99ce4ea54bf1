/** Remembers which agents do not allow which tasks. Agents return jobs that they do not allow. */

import type { TaskSpec } from '../../../tasks/spec.ts'
import type { NotAllowed } from '../../wire/messages.ts'
import type { Exclusion } from '../placement/placement-node.ts'

/**
 * The maximum number of targets (see `toTargetKey`). If it is exceeded, all are forgotten, and
 * agents refuse the tasks again.
 */
const maxTargets = 10_000

export class AgentRefusals {
  readonly #targets = new Map<string, Map<string, NotAllowed>>()
  readonly #exclusions = new Map<string, Exclusion>()

  add(agent: string, spec: TaskSpec, why: NotAllowed): void {
    const key = toTargetKey(spec)
    if (this.#targets.size >= maxTargets && !this.#targets.has(key)) {
      this.#targets.clear()
      this.#exclusions.clear()
    }
    const refusals = this.#targets.get(key) ?? new Map<string, NotAllowed>()
    this.#targets.set(key, refusals.set(agent, why))
  }

  find(agent: string, spec: TaskSpec): NotAllowed | undefined {
    return this.#targets.get(toTargetKey(spec))?.get(agent)
  }

  findExclusion(spec: TaskSpec): Exclusion | null {
    if (this.#targets.size === 0) return null
    const refusals = this.#targets.get(toTargetKey(spec))
    if (refusals === undefined) return null
    const names = [...refusals.keys()].toSorted()
    const key = JSON.stringify(names)
    const known = this.#exclusions.get(key) ?? { key, agents: new Set(names) }
    this.#exclusions.set(key, known)
    return known
  }

  /**
   * Forgets the refusals of an agent that may have other rules now. Returns `false` if it had none.
   */
  removeAgent(agent: string): boolean {
    let hasRefused = false
    for (const [key, refusals] of this.#targets) {
      if (refusals.delete(agent)) hasRefused = true
      if (refusals.size === 0) this.#targets.delete(key)
    }
    return hasRefused
  }
}

/** Returns a key of the task's properties on which an agent's rules depend. */
function toTargetKey(spec: TaskSpec): string {
  if (spec.kind === 'function') return spec.definition.module
  if (spec.kind !== 'program') return spec.kind
  const { executable, shell, cwd, workDir, env, captureStdio } = spec
  return JSON.stringify([executable, shell, cwd, workDir, env, captureStdio])
}
