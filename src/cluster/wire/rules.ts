/** The part of an agent's rules that its driver can check, too: the kind of the task. */

import type { TaskSpec } from '../../tasks/spec.ts'
import type { AgentRules, NotAllowed } from './messages.ts'

export const rulesHint = 'Start the agent with another --only or --allow.'

/** Closures and prompts need no case: they are not sent to agents. */
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
