/** The part of an agent's rules that drivers check too. Agents check all of them. */

import type { TaskSpec } from '../../tasks/spec.ts'
import type { AgentRules, NotAllowed } from './messages.ts'

export const noRules: AgentRules = Object.freeze({ only: null, allow: null })
export const rulesHint = 'Start the agent with another --only or --allow.'

/** Agents get only functions and programs, so a task that is not a program is a function. */
export const toTaskKind = ({ kind }: Pick<TaskSpec, 'kind'>): 'functions' | 'programs' =>
  kind === 'program' ? 'programs' : 'functions'

/** Returns why the agent does not run this kind of task; `null` if it does. */
export function refuseByKind(
  agent: string,
  { only }: AgentRules,
  spec: TaskSpec,
): NotAllowed | null {
  if (only === null || only === toTaskKind(spec)) return null
  const message = `agent "${agent}" runs ${only} only, not ${spec.executable}`
  return { message, hint: rulesHint }
}
