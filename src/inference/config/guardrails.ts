/** From the `guardrails` section of a file to the rules that are applied. */

import type { GuardrailConfig, GuardRule, GuardStage } from '../guardrails/rules.ts'
import { builtInRules } from '../guardrails/rules.ts'
import type { FileConfig } from './schema/config-schema.ts'
import type { WrittenFile } from './config-problems.ts'

type Section = FileConfig['guardrails']
type FileRule = NonNullable<Section['rules']>[number]

/** Without `rules`, prompt injection alone; `max_prompt_chars` is a rule of its own, the first. */
export function resolveGuardrails(section: Section, written: WrittenFile): GuardrailConfig {
  const { action, max_prompt_chars: maxPromptChars = null } = section
  const own = section.rules ?? (written.has('guardrails', 'rules') ? [] : ['injection' as const])
  const ids = own.map(idOf)
  const twice = ids.find((id, at) => ids.indexOf(id) !== at)
  if (twice !== undefined) {
    written.refuse(['guardrails', 'rules'], `two rules have the id ${twice}`)
  }
  const hasLimits = ids.includes('limits')
  if (hasLimits && !written.has('guardrails', 'max_prompt_chars')) {
    written.refuse(['guardrails', 'rules'], 'limits needs max_prompt_chars')
  }
  const isLimited = maxPromptChars !== null && !hasLimits
  const rules = isLimited ? ['limits' as const, ...own] : own
  return {
    isOn: section.toggle_on,
    sensitivity: section.sensitivity,
    rules: rules.map((rule) => toRule(rule, action)),
    maxPromptChars,
    action,
    onBlock: section.on_block,
  }
}

const idOf = (rule: FileRule): string => (typeof rule === 'string' ? rule : rule.id)

function toRule(rule: FileRule, usual: Section['action']): GuardRule {
  const { id, ...given } = typeof rule === 'string' ? { id: rule } : rule
  const builtIn = builtInRules.find((name) => name === id)
  const readsInput = builtIn === 'injection' || builtIn === 'limits'
  const stage: GuardStage = given.stage ?? (readsInput ? 'input' : 'both')
  const chosen = { stage, action: given.action ?? usual }
  if (builtIn !== undefined) return { kind: 'built-in', id: builtIn, ...chosen }
  const { pattern, keywords = [], unless = [] } = given
  if (pattern !== undefined) return { kind: 'pattern', id, pattern, unless, ...chosen }
  return { kind: 'keywords', id, keywords, unless, ...chosen }
}
