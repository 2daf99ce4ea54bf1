/** The schema of the configuration file. `docs/config.schema.json` is generated from it. */

import { annotate, z } from '../schema/schema.ts'
import { findPatternProblem } from '../guardrails/rule-patterns.ts'
import { builtInRules } from '../guardrails/rules.ts'
import { Secret } from '../schema/secret.ts'
import { engineSection } from '../engines/engines.ts'
import {
  addIssue,
  createTextSchema,
  type Environment,
  integer,
  listOf,
  numberAbove,
  numberBetween,
  oneOf,
  section,
  settingRanges,
  toggle,
} from '../schema/config-fields.ts'

/** `env` has the variables that replace `${env:NAME}` in texts. */
export function createConfigSchema(env: Environment) {
  return section({
    required: requiredSection(env).prefault({}),
    hardware: hardwareSection().prefault({}),
    llm: llmSection(env).prefault({}),
    input_batching: batchingSection().prefault({}),
    guardrails: guardrailSection(env).prefault({}),
    dynamic_workers: dynamicWorkersSection().prefault({}),
    engine: engineSection(env).prefault({}),
    server: serverSection().prefault({}),
    models: z.array(modelSection(env)).max(64).default([]).describe('Further models.'),
  })
}

export type FileConfig = z.output<ReturnType<typeof createConfigSchema>>

const servedNames = 'a name without blanks, or a list of them'

const sharedInteger = (name: keyof typeof settingRanges) =>
  integer(settingRanges[name].min, settingRanges[name].max)

function requiredSection(env: Environment) {
  const text = createTextSchema(env)
  return section({
    model_name: text({ maxLength: 4096 })
      .optional()
      .describe('Name of the model on a hub, or the path of a local file.'),
    served_name: servedNameList(env),
    hf_token: text({ isPrivate: true, pattern: /^\S+$/, expected: 'a token without blanks' })
      .transform((token) => new Secret(token))
      .optional()
      .describe('Token of the hub; needed only to download. Prefer `${env:NAME}` or `token_file`.'),
    token_file: text().optional().describe('File that holds the token, relative to this file.'),
    tp_size: sharedInteger('tpSize').default(1).describe('GPUs that share one copy of the model.'),
  }).describe('The model, and the token to download it.')
}

const servedNameList = (env: Environment) =>
  listOf(createTextSchema(env)({ maxLength: 256, pattern: /^\S+$/, expected: servedNames }), {
    max: 16,
    expected: servedNames,
  })
    .optional()
    .describe('The names by which clients know the model. Default: its name, never a path.')

/** A further model. Its own sections are checked here, and merged with those of the file later. */
function modelSection(env: Environment) {
  return section({
    model_name: createTextSchema(env)({ maxLength: 4096 }).describe(
      'Name of the model on a hub, or the path of a local file.',
    ),
    served_name: servedNameList(env),
    purpose: oneOf('chat', 'embedding')
      .default('chat')
      .describe('Whether the model generates text or computes embeddings.'),
    preload: toggle().default(false).describe('Whether the model is loaded at the start.'),
    keep_alive_seconds: annotate(z.union([z.literal(-1), z.number().min(0).max(31_536_000)]), {
      expected: 'a number of seconds, or -1',
    })
      .default(300)
      .describe('How long the model stays loaded without a request; -1 for ever.'),
    adapters: z
      .array(
        section({
          name: createTextSchema(env)({ maxLength: 256, pattern: /^\S+$/, expected: servedNames }),
          path: createTextSchema(env)({ maxLength: 4096 }),
        }),
      )
      .max(64)
      .default([])
      .describe('LoRA adapters. Clients use the name of an adapter as the name of a model.'),
    llm: llmSection(env).optional().describe('Keys that replace those of the section `llm`.'),
    engine: engineSection(env).optional().describe('Replaces the section `engine`.'),
  }).describe('A further model of the server, loaded when a request names it.')
}

function hardwareSection() {
  return section({
    num_nodes: sharedInteger('numNodes').default(1).describe('Nodes that run workers.'),
    num_gpus: sharedInteger('numGpus').default(1).describe('GPUs of each node; 0 for CPU only.'),
    node_offset: sharedInteger('offset').default(0).describe('First node that is used.'),
    num_inf_workers: integer(1, 65_536)
      .optional()
      .describe('Workers. Default: num_nodes × ⌊num_gpus ÷ tp_size⌋, at least 1.'),
    model_memory_mb: integer(1, 1_000_000_000)
      .optional()
      .describe('Memory of all models of `models`. Default: the free memory less 2 GB.'),
    queue_limit: integer(1, 10_000_000)
      .default(10_000)
      .describe('Requests of clients that may wait; one more is refused.'),
  }).describe('Nodes, GPUs and workers.')
}

const dtypes = ['bfloat16', 'float16', 'float32', 'half', 'float', 'auto'] as const

function llmSection(env: Environment) {
  const text = createTextSchema(env)
  const texts = 'a non-empty text, or a list of them'
  return section({
    dtype: oneOf(...dtypes)
      .default('bfloat16')
      .describe('Number format of the weights.'),
    max_tokens: integer(1, 10_000_000)
      .optional()
      .meta({ default: 100 })
      .describe('Most tokens of an answer, at most `max_model_len`.'),
    max_model_len: integer(1, 10_000_000)
      .default(8192)
      .describe('Tokens of prompt and answer together.'),
    temperature: numberBetween(0, 2).default(0.5).describe('0 always takes the likeliest token.'),
    top_p: numberAbove(0, 1)
      .default(0.95)
      .describe('Considers the likeliest tokens up to this total probability.'),
    top_k: integer(0, 1_000_000)
      .default(50)
      .describe('Considers this many tokens; 0 considers all.'),
    repetition_penalty: numberAbove(0, 10)
      .default(1.1)
      .describe('Above 1, repeated tokens become less likely.'),
    seed: integer(0, 2 ** 32 - 1)
      .optional()
      .describe('Makes the choice of tokens repeatable.'),
    stop: listOf(text({ maxLength: 1024 }), { max: 64, expected: texts })
      .optional()
      .describe('Texts that end an answer; one or a list.'),
    ignore_eos: toggle().default(false).describe('Whether the model’s end mark is ignored.'),
    system_prompt: listOf(text({ maxLength: 1_000_000 }), { expected: texts })
      .optional()
      .describe('Instructions before every conversation; one or a list.'),
    gpu_memory_utilization: numberAbove(0, 1)
      .default(0.95)
      .describe('Share of the GPU memory for the model and its caches.'),
  }).describe('The model’s limits, and how tokens are chosen if a request does not set it.')
}

function batchingSection() {
  return section({
    toggle_on: toggle().default(true).describe('Whether requests are batched.'),
    max_batch_size: sharedInteger('maxBatchSize')
      .default(1024)
      .describe('Most requests of a batch.'),
    max_batch_wait_ms: sharedInteger('maxBatchWaitMs')
      .default(500)
      .describe('Longest time that a request waits for others.'),
    type: oneOf('adaptive', 'fixed')
      .optional()
      .describe(
        '`adaptive` sends immediately while a worker is free, `fixed` waits for size or time. ' +
          'Default: `fixed` where `max_batch_wait_ms` is given, else `adaptive`.',
      ),
  }).describe('How requests are collected for the engine.')
}

function dynamicWorkersSection() {
  const workers = integer(1, 65_536)
  const seconds = numberBetween(0, 86_400)
  return section({
    toggle_on: toggle().default(false).describe('Whether workers are added and removed by load.'),
    min_workers: workers.default(1).describe('Fewest workers.'),
    max_workers: workers.optional().describe('Most workers. Default: `hardware.num_inf_workers`.'),
    target_ongoing_requests: numberAbove(0, 1_000_000)
      .optional()
      .describe('Requests for each worker. Default: what the engine works on at a time.'),
    spin_up_seconds: seconds.default(3).describe('How long load must be high to add workers.'),
    spin_down_seconds: seconds.default(300).describe('How long load must be low to remove one.'),
  }).describe('Scaling of the number of workers.')
}

function serverSection() {
  return section({
    strict: toggle()
      .default(false)
      .describe('Whether request fields that have no effect are refused instead of ignored.'),
  }).describe('The HTTP server.')
}

const ruleId = /^[\w.-]{1,64}$/
const action = () => oneOf('reject', 'redact', 'flag')

function guardrailSection(env: Environment) {
  const about = { expected: `one of ${builtInRules.join(', ')}, or a rule with an id` }
  const [builtIn, own] = [oneOf(...builtInRules), ruleSchema(env)]
  const list = z.array(annotate(z.union([builtIn, own]), about)).max(200)
  const rules = z.union([builtIn, own, list]).transform((value) => [value].flat())
  return section({
    toggle_on: toggle().default(false).describe('Whether prompts and answers are checked.'),
    sensitivity: numberBetween(0, 1)
      .default(0.5)
      .describe('For `injection`: with a higher value weaker signs are enough.'),
    rules: annotate(rules, about)
      .optional()
      .describe('Names of built-in rules, and own rules. Default: `injection`.'),
    max_prompt_chars: integer(1, 100_000_000)
      .optional()
      .describe('Longest prompt; a rule of its own, checked first.'),
    action: action().default('reject').describe('The action of rules that set none.'),
    on_block: oneOf('error', 'refusal')
      .default('error')
      .describe('Whether a rejected request fails, or is answered with a sentence.'),
  }).describe('Rules on prompts and answers.')
}

function ruleSchema(env: Environment) {
  const text = createTextSchema(env)
  const word = text({ maxLength: 128, pattern: /\S/, expected: 'a word or phrase' })
  const phrases = listOf(word, { expected: 'a word or phrase' })
  const pattern = text().transform((source, context) => {
    const problem = findPatternProblem(source)
    if (problem !== undefined) addIssue(context, problem)
    return source
  })
  return section({
    id: text({ pattern: ruleId, expected: 'letters, digits, ".", "_" or "-"' }).describe(
      'The name of the rule; that of a built-in rule changes its stage or action.',
    ),
    pattern: pattern.optional().describe('A regular expression.'),
    keywords: phrases.optional().describe('Words or phrases; one or a list.'),
    unless: phrases
      .optional()
      .describe('Literal words or phrases; a match inside one of them does not count.'),
    stage: oneOf('input', 'output', 'both').optional().describe('What is checked.'),
    action: action().optional().describe('Default: the action of the section.'),
  }).superRefine(checkRule, { when: ({ value }) => typeof value === 'object' && value !== null })
}

/** Checks which keys may be used together, even if their values are invalid. */
function checkRule(rule: object, context: z.core.$RefinementCtx): void {
  const id = 'id' in rule ? rule.id : undefined
  const stage = 'stage' in rule ? rule.stage : 'input'
  const name = builtInRules.find((one) => one === id)
  const hasMatcher = 'pattern' in rule || 'keywords' in rule
  if ('pattern' in rule && 'keywords' in rule) {
    addIssue(context, 'expected a pattern or keywords, not both')
  } else if (typeof id !== 'string' || !ruleId.test(id)) {
    return
  } else if ('keywords' in rule && Array.isArray(rule.keywords) && rule.keywords.length === 0) {
    const message = 'expected at least one word or phrase'
    context.issues.push({ code: 'custom', message, path: ['keywords'], input: rule.keywords })
  } else if (!hasMatcher && name === undefined) {
    addIssue(context, 'expected a pattern or keywords')
  } else if (hasMatcher && name !== undefined) {
    addIssue(context, `expected another id, ${name} is a built-in rule`)
  } else if ((name === 'injection' || name === 'limits') && stage !== 'input') {
    const message = `${name} checks prompts only`
    context.issues.push({ code: 'custom', message, path: ['stage'], input: stage })
  }
}
