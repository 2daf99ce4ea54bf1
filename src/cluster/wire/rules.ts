/** What of an agent's rules its driver can decide, too: the kinds of tasks that it runs. */

import type { TaskSpec } from '../../tasks/spec.ts'
import type { AgentRules, NotAllowed } from './messages.ts'

export const rulesHint = 'Start the agent with another --only or --allow.'

/** A closure or a prompt is sent to no agent. */
export const kindOf = ({ kind }: Pick<TaskSpec, 'kind'>): 'functions' | 'programs' =>
  kind === 'program' ? 'programs' : 'functions'

export function refuseByKind(
  agent: string,
  { only }: AgentRules,
  spec: TaskSpec,
): NotAllowed | null {
  if (only === null || only === kindOf(spec)) return null
  const message = `agent "${agent}" runs ${only} only, not ${spec.executable}`
  return { message, hint: rulesHint }
}
