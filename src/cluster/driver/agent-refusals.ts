/** Remembers which agents do not allow which tasks, learned from jobs that agents returned. */

import type { TaskSpec } from '../../tasks/spec.ts'
import type { NotAllowed } from '../wire/messages.ts'
import type { Exclusion } from './placement/placement-node.ts'

/** When there are more targets, all are forgotten. Agents will refuse again. */
const maxTargets = 10_000

export class AgentRefusals {
  /** The refusals by task target, then by agent. */
  readonly #targets = new Map<string, Map<string, NotAllowed>>()
  readonly #exclusions = new Map<string, Exclusion>()

  add(agent: string, spec: TaskSpec, why: NotAllowed): void {
    const key = targetOf(spec)
    if (this.#targets.size >= maxTargets && !this.#targets.has(key)) {
      this.#targets.clear()
      this.#exclusions.clear()
    }
    const refusals = this.#targets.get(key) ?? new Map<string, NotAllowed>()
    this.#targets.set(key, refusals.set(agent, why))
  }

  /** Why an agent does not allow a task; `undefined` if unknown or allowed. */
  find(agent: string, spec: TaskSpec): NotAllowed | undefined {
    return this.#targets.get(targetOf(spec))?.get(agent)
  }

  /** The agents that do not allow a task; `null` if there are none. */
  exclusionOf(spec: TaskSpec): Exclusion | null {
    if (this.#targets.size === 0) return null
    const refusals = this.#targets.get(targetOf(spec))
    if (refusals === undefined) return null
    const names = [...refusals.keys()].toSorted()
    const key = JSON.stringify(names)
    const known = this.#exclusions.get(key) ?? { key, agents: new Set(names) }
    this.#exclusions.set(key, known)
    return known
  }

  /**
   * Forgets an agent that may have been restarted with other rules. `false` if it refused nothing.
   */
  forget(agent: string): boolean {
    let hasRefused = false
    for (const [key, refusals] of this.#targets) {
      if (refusals.delete(agent)) hasRefused = true
      if (refusals.size === 0) this.#targets.delete(key)
    }
    return hasRefused
  }
}

/** A key with all properties of a task that an agent's rules depend on. */
function targetOf(spec: TaskSpec): string {
  if (spec.kind === 'function') return spec.definition.module
  if (spec.kind !== 'program') return spec.kind
  const { executable, shell, cwd, workDir, env, captureStdio } = spec
  return JSON.stringify([executable, shell, cwd, workDir, env, captureStdio])
}
