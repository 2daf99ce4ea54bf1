/** Fills in the defaults of the section `guardrails`. */

import {
  builtInRules,
  type GuardrailConfig,
  type GuardRule,
  type GuardStage,
} from '../guardrails/rules.ts'
import type { FileConfig } from './config-schema.ts'
import type { ConfigDocument } from './config-tree.ts'

type GuardrailSection = FileConfig['guardrails']
type FileRule = NonNullable<GuardrailSection['rules']>[number]

/** Without `rules`, only `injection` applies. `max_prompt_chars` adds the rule `limits`. */
export function resolveGuardrails(
  section: GuardrailSection,
  document: ConfigDocument,
): GuardrailConfig {
  const { action, max_prompt_chars: maxPromptChars = null } = section
  const givenRules =
    section.rules ?? (document.has('guardrails', 'rules') ? [] : ['injection' as const])
  const ids = givenRules.map((rule) => (typeof rule === 'string' ? rule : rule.id))
  const duplicate = ids.find((id, at) => ids.indexOf(id) !== at)
  if (duplicate !== undefined) {
    document.addProblem(['guardrails', 'rules'], `two rules have the id ${duplicate}`)
  }
  const hasLimits = ids.includes('limits')
  if (hasLimits && !document.has('guardrails', 'max_prompt_chars')) {
    document.addProblem(['guardrails', 'rules'], 'limits needs max_prompt_chars')
  }
  const isLimited = maxPromptChars !== null && !hasLimits
  const rules = isLimited ? ['limits' as const, ...givenRules] : givenRules
  return {
    isOn: section.toggle_on,
    sensitivity: section.sensitivity,
    rules: rules.map((rule) => toRule(rule, action)),
    maxPromptChars,
    action,
    onBlock: section.on_block,
  }
}

function toRule(rule: FileRule, defaultAction: GuardrailSection['action']): GuardRule {
  const { id, ...given } = typeof rule === 'string' ? { id: rule } : rule
  const builtIn = builtInRules.find((name) => name === id)
  const readsInput = builtIn === 'injection' || builtIn === 'limits'
  const stage: GuardStage = given.stage ?? (readsInput ? 'input' : 'both')
  const chosen = { stage, action: given.action ?? defaultAction }
  if (builtIn !== undefined) return { kind: 'built-in', id: builtIn, ...chosen }
  const { pattern, keywords = [], unless = [] } = given
  if (pattern !== undefined) return { kind: 'pattern', id, pattern, unless, ...chosen }
  return { kind: 'keywords', id, keywords, unless, ...chosen }
}
