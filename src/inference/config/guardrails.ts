/** The `guardrails` section: built-in rules by name, and own ones. */

import {
  boolean,
  type Field,
  integer,
  listOf,
  number,
  oneOf,
  type Reader,
  readSection,
  text,
  wrong,
} from './fields.ts'
import type { MapNode } from './tree.ts'
import { findDanger } from '../guardrails/own-pattern.ts'
import {
  type BuiltInRule,
  builtInRules,
  type GuardAction,
  type GuardrailConfig,
  type GuardRule,
  type GuardStage,
} from '../guardrails/rules.ts'

const action = oneOf('reject', 'redact', 'flag')
const builtIn = oneOf(...builtInRules)

/** An own pattern; one that could take long on some text is refused here. */
const pattern: Reader<string> = (node, field) => {
  const source = text()(node, field)
  const danger = source === undefined ? undefined : findDanger(source)
  if (danger === undefined) return source
  field.problems.add(node.place, `${field.path}: ${danger}`)
  return undefined
}

const phrases = listOf(text({ maxLength: 128, pattern: /\S/, expected: 'a word or phrase' }))

const ruleSpec = {
  id: text({ pattern: /^[\w.-]{1,64}$/, expected: 'letters, digits, ".", "_" or "-"' }),
  pattern,
  keywords: phrases,
  unless: phrases,
  stage: oneOf('input', 'output', 'both'),
  action,
}

/** A rule as written; what it leaves out comes from the section. */
type WrittenRule = Pick<GuardRule, 'id'> & {
  readonly stage: GuardStage | undefined
  readonly action: GuardAction | undefined
} & (
    | { readonly kind: 'built-in'; readonly id: BuiltInRule }
    | {
        readonly kind: 'keywords'
        readonly keywords: readonly string[]
        readonly unless: readonly string[]
      }
    | { readonly kind: 'pattern'; readonly pattern: string; readonly unless: readonly string[] }
  )

const rule: Reader<WrittenRule> = (node, field) => {
  if (node.kind === 'list') return wrong(node, field, 'a rule')
  if (node.kind === 'scalar') {
    const id = builtIn(node, field)
    return id && { kind: 'built-in', id, stage: undefined, action: undefined }
  }
  const { values, has, placeOf } = readSection(ruleSpec, node, field)
  const refuse = (problem: string): undefined => {
    field.problems.add(node.place, `${field.path}: ${problem}`)
  }
  const { id, stage, unless = [] } = values
  if (!has('id')) return refuse('expected an id')
  if (has('pattern') && has('keywords')) return refuse('expected a pattern or keywords, not both')
  if (id === undefined) return undefined
  const chosen = { stage, action: values.action, id }
  const name = builtInRules.find((one) => one === id)
  if (!has('pattern') && !has('keywords')) {
    if (name === undefined) return refuse('expected a pattern or keywords')
    if ((name === 'injection' || name === 'limits') && (stage ?? 'input') !== 'input') {
      field.problems.add(placeOf('stage'), `${field.path}.stage: ${name} judges input alone`)
    }
    return { kind: 'built-in', ...chosen, id: name }
  }
  if (name !== undefined) return refuse(`expected another id, ${name} is a built-in rule`)
  if (values.pattern !== undefined) {
    return { kind: 'pattern', ...chosen, pattern: values.pattern, unless }
  }
  return values.keywords && { kind: 'keywords', ...chosen, keywords: values.keywords, unless }
}

const spec = {
  toggle_on: boolean,
  sensitivity: number({ min: 0, max: 1 }),
  rules: listOf(rule, 200),
  max_prompt_chars: integer(1, 100_000_000),
  action,
  on_block: oneOf('error', 'refusal'),
}

/** Without `rules`, prompt injection alone; `max_prompt_chars` is a rule of its own, the first. */
export function readGuardrails(node: MapNode, field: Field): GuardrailConfig {
  const { values, has, placeOf } = readSection(spec, node, field)
  const { action: usual = 'reject', max_prompt_chars: maxPromptChars = null } = values
  const written = values.rules ?? (has('rules') ? [] : [injection])
  const names = written.map(({ id }) => id)
  const twice = names.find((id, at) => names.indexOf(id) !== at)
  if (twice !== undefined) {
    field.problems.add(placeOf('rules'), `${field.path}.rules: two rules have the id ${twice}`)
  }
  if (names.includes('limits') && !has('max_prompt_chars')) {
    field.problems.add(placeOf('rules'), `${field.path}.rules: limits needs max_prompt_chars`)
  }
  const isLimited = maxPromptChars !== null && !names.includes('limits')
  const rules = (isLimited ? [limits, ...written] : written).map((one): GuardRule => ({
    ...one,
    stage: one.stage ?? usualStage(one),
    action: one.action ?? usual,
  }))
  return {
    isOn: values.toggle_on ?? false,
    sensitivity: values.sensitivity ?? 0.5,
    rules,
    maxPromptChars,
    action: usual,
    onBlock: values.on_block ?? 'error',
  }
}

const unsaid = { stage: undefined, action: undefined }
const injection: WrittenRule = { kind: 'built-in', id: 'injection', ...unsaid }
const limits: WrittenRule = { kind: 'built-in', id: 'limits', ...unsaid }

const usualStage = ({ kind, id }: WrittenRule): GuardStage =>
  kind === 'built-in' && (id === 'injection' || id === 'limits') ? 'input' : 'both'
