/** Loads a configuration: reads the file, validates it and fills in defaults. */

import { basename, dirname } from 'node:path'
import { messageOf, ValueError } from '../../foundation/errors.ts'
import { type Log, processLog } from '../../foundation/log.ts'
import { expectObject } from '../../foundation/options.ts'
import {
  builtInRules,
  type GuardrailConfig,
  type GuardRule,
  type GuardStage,
} from '../guardrails/rules.ts'
import {
  type ConfigNode,
  ConfigProblems,
  isEmptyNode,
  startOfFile,
  treeOf,
  WrittenFile,
} from './config-tree.ts'
import { readEngineOption, resolveOverrides } from './overrides.ts'
import { descriptorOf, type EngineConfig, toEngineConfig } from '../engines/engines.ts'
import { type ConfigFiles, filesBeside, readConfigFile, warnOfReaders } from './files.ts'
import type { DynamicWorkersConfig, HardwareConfig, LlmConfig } from './config-sections.ts'
import type { ConfigSections, InferenceConfig, InferenceOverrides } from './inference-config.ts'
import { readTree } from './read-tree.ts'
import { createConfigSchema, type FileConfig } from './config-schema.ts'
import type { Environment } from '../schema/config-fields.ts'
import { Secret } from '../schema/secret.ts'
import { parseYamlTree } from './yaml-tree.ts'

/** Reads and validates a file, and fills in defaults. Overrides take precedence over the file. */
export async function loadInferenceConfig(
  path: string,
  overrides: InferenceOverrides = {},
  log: Log = processLog,
): Promise<InferenceConfig> {
  const checked = resolveOverrides(overrides)
  const { text, mode } = readConfigFile(path)
  const files = filesBeside(dirname(path), log)
  const config = parseInferenceConfig(text, {
    file: basename(path),
    env: process.env,
    overrides: checked,
    files,
  })
  const holdsSecret = [config.hubToken, ...Object.values(config.engine)].some(
    (value) => value instanceof Secret && text.includes(value.reveal()),
  )
  if (holdsSecret) warnOfReaders(log, path, mode & 0o004)
  return config
}

/** Validates an object and fills in defaults. Relative paths start at the working directory. */
export function readInferenceConfig(
  sections: ConfigSections,
  overrides: InferenceOverrides = {},
  log: Log = processLog,
): InferenceConfig {
  return resolveConfig(treeOf(expectObject('config', sections)), {
    problems: new ConfigProblems({ kind: 'object' }),
    env: process.env,
    files: filesBeside('.', log),
    overrides: resolveOverrides(overrides),
  })
}

export interface ParseOptions {
  /** The file's name, for messages. */
  readonly file: string
  /** The environment variables that replace `${env:NAME}`. */
  readonly env: Environment
  readonly overrides?: InferenceOverrides
  /** Access to the files that the configuration names. Default: all files are missing. */
  readonly files?: ConfigFiles
}

/** Validates a text and fills in defaults. One `ValueError` lists all problems with positions. */
export function parseInferenceConfig(text: string, options: ParseOptions): InferenceConfig {
  const { file, env, files = noFiles, overrides = {} } = options
  const problems = new ConfigProblems({ kind: 'file', name: file })
  const root = parseYamlTree(text, problems)
  return resolveConfig(root, { problems, env, files, overrides: resolveOverrides(overrides) })
}

const noFiles: ConfigFiles = {
  exists: () => false,
  resolve: (path) => path,
  readToken() {
    throw new ValueError('there are no files')
  },
}

export interface ResolveContext {
  readonly problems: ConfigProblems
  readonly env: Environment
  readonly overrides: InferenceOverrides
  readonly files: ConfigFiles
}

/** Returns the settings, deeply frozen. Throws one error with all problems. */
function resolveConfig(root: ConfigNode, context: ResolveContext): InferenceConfig {
  const { problems, env, overrides } = context
  if (root.kind !== 'map' && !isEmptyNode(root)) {
    problems.add(root.position, 'expected sections, such as "required:"')
  }
  problems.throwIfAny()
  const tree: ConfigNode =
    root.kind === 'map' ? root : { kind: 'map', entries: [], position: startOfFile }
  const file = readTree(createConfigSchema(env), tree, problems)
  const written = new WrittenFile(tree, problems)
  const engine = readEngineOption(overrides.engine, fileEngine(file, context.files), env)
  const required = resolveRequired(file.required, written, engine, context)
  const problem = descriptorOf(engine).findProblem?.(engine)
  if (problem !== undefined) written.refuse(['engine', problem.key], problem.text, 'key')
  const hardware = resolveHardware(file.hardware, overrides, required.tpSize)
  const batching = resolveBatching(file.input_batching, written, overrides)
  const slots = descriptorOf(engine).slots(engine, batching.maxBatchSize)
  const config: InferenceConfig = {
    ...required,
    hardware,
    llm: resolveLlm(file.llm, written, engine),
    batching,
    guardrails: resolveGuardrails(file.guardrails, written),
    dynamicWorkers: resolveDynamicWorkers(file.dynamic_workers, written, hardware, slots),
    engine,
    server: { isStrict: file.server.strict },
  }
  problems.throwIfAny()
  return freezeDeeply(config)
}

/** Requires a token only for a hub model that the built-in llama engine downloads. */
function resolveRequired(
  section: FileConfig['required'],
  written: WrittenFile,
  engine: EngineConfig,
  { overrides, files }: ResolveContext,
): Pick<InferenceConfig, 'modelName' | 'modelPath' | 'servedNames' | 'hubToken' | 'tpSize'> {
  const modelName = overrides.modelName ?? section.model_name ?? ''
  if (overrides.modelName === undefined && !written.has('required', 'model_name')) {
    written.refuse(['required', 'model_name'], 'missing; set it, or the option modelName')
  }
  const hasToken = written.has('required', 'hf_token')
  const hasFile = written.has('required', 'token_file')
  let hubToken = section.hf_token ?? null
  if (hasToken && hasFile) {
    written.refuse(['required', 'token_file'], 'hf_token is set too; keep one of them')
  } else if (section.token_file !== undefined) {
    const { token, reason } = readToken(files, section.token_file)
    if (token !== undefined) hubToken = new Secret(token)
    else written.refuse(['required', 'token_file'], `cannot be used (${reason})`)
  }
  const isWritten = overrides.modelName === undefined
  const localPath = isWritten ? files.resolve(modelName) : modelName
  const isHub = modelName !== '' && !looksLocal(modelName) && !files.exists(localPath)
  const { model } = descriptorOf(engine)
  const modelPath = model !== 'name' && !isHub && !isRemote(modelName) ? localPath : modelName
  // If the kind is misspelt, it is unknown whether the engine would download the model.
  const kind = overrides.engine === undefined ? written.valueAt('engine', 'kind') : undefined
  const isKindKnown = kind === undefined || kind === engine.kind
  const isOurs = model === 'download' && typeof overrides.engine !== 'function'
  if (isOurs && isKindKnown && isHub && !hasToken && !hasFile) {
    const ways = 'set it, or token_file, or name a local file'
    written.refuse(['required', 'hf_token'], `needed to download the model; ${ways}`)
  }
  const servedNames = section.served_name ?? [servedNameOf(modelName)]
  const tpSize = overrides.tpSize ?? section.tp_size
  return { modelName, modelPath, servedNames, hubToken, tpSize }
}

function readToken(files: ConfigFiles, path: string): { token?: string; reason?: string } {
  try {
    const token = files.readToken(path)
    return /^\S+$/.test(token) ? { token } : { reason: 'it does not hold one token' }
  } catch (error) {
    return { reason: messageOf(error) }
  }
}

/** The default name for clients. It must never be a path. */
const servedNameOf = (name: string): string =>
  looksLocal(name) && !isRemote(name) ? basename(name).replace(/\.gguf$/i, '') || name : name

const looksLocal = (name: string): boolean => /^(?:\.{0,2}\/|~)|\.gguf$/i.test(name)

/** Whether the engine downloads the model, even if the name ends in `.gguf`. */
const isRemote = (name: string): boolean => name === '' || /^(?:hf|https?):/.test(name)

/** The engine settings of the file. Relative paths start at the folder of the file. */
function fileEngine(file: FileConfig, files: ConfigFiles): EngineConfig {
  const engine = toEngineConfig(file.engine)
  const descriptor = descriptorOf(engine)
  return (descriptor.resolvePaths?.(engine, (path) => files.resolve(path)) ??
    engine) as EngineConfig
}

function resolveHardware(
  section: FileConfig['hardware'],
  overrides: InferenceOverrides,
  tpSize: number,
): HardwareConfig {
  const numNodes = overrides.numNodes ?? section.num_nodes
  const numGpus = overrides.numGpus ?? section.num_gpus
  const derived = Math.max(1, numNodes * Math.floor(numGpus / tpSize))
  return {
    numNodes,
    numGpus,
    nodeOffset: overrides.offset ?? section.node_offset,
    numInfWorkers: section.num_inf_workers ?? derived,
    queueLimit: section.queue_limit,
  }
}

/** If `maxBatchWaitMs` is given, the type is `fixed`, unless the file specifies the type. */
function resolveBatching(
  section: FileConfig['input_batching'],
  written: WrittenFile,
  overrides: InferenceOverrides,
): InferenceConfig['batching'] {
  const isInFile = written.has('input_batching', 'max_batch_wait_ms')
  const hasWindow = overrides.maxBatchWaitMs !== undefined || isInFile
  return {
    isOn: section.toggle_on,
    maxBatchSize: overrides.maxBatchSize ?? section.max_batch_size,
    maxBatchWaitMs: overrides.maxBatchWaitMs ?? section.max_batch_wait_ms,
    type: section.type ?? (hasWindow ? 'fixed' : 'adaptive'),
  }
}

function resolveLlm(
  section: FileConfig['llm'],
  written: WrittenFile,
  engine: EngineConfig,
): LlmConfig {
  // Not every server knows these two fields, so they are sent only if the file sets them.
  const { hasServer } = descriptorOf(engine)
  const isLeftOut = (key: string): boolean => hasServer && !written.has('llm', key)
  const maxModelLen = section.max_model_len
  const maxTokens = section.max_tokens ?? Math.min(100, maxModelLen)
  if (maxTokens > maxModelLen) {
    const problem = `expected at most max_model_len (${maxModelLen}), got ${maxTokens}`
    written.refuse(['llm', 'max_tokens'], problem)
  }
  return {
    dtype: section.dtype,
    maxTokens,
    maxModelLen,
    temperature: section.temperature,
    topP: section.top_p,
    topK: isLeftOut('top_k') ? 0 : section.top_k,
    repetitionPenalty: isLeftOut('repetition_penalty') ? 1 : section.repetition_penalty,
    seed: section.seed ?? null,
    stop: section.stop ?? [],
    ignoreEos: section.ignore_eos,
    systemPrompt: section.system_prompt ?? [],
    gpuMemoryUtilization: section.gpu_memory_utilization,
  }
}

/** `slots` is the number of requests that one worker handles at a time. */
function resolveDynamicWorkers(
  section: FileConfig['dynamic_workers'],
  written: WrittenFile,
  { numInfWorkers }: HardwareConfig,
  slots: number,
): DynamicWorkersConfig {
  const minWorkers = section.min_workers
  const maxWorkers = section.max_workers ?? Math.max(numInfWorkers, minWorkers)
  if (maxWorkers < minWorkers) {
    const problem = `expected at least min_workers (${minWorkers}), got ${maxWorkers}`
    written.refuse(['dynamic_workers', 'max_workers'], problem)
  }
  return {
    isOn: section.toggle_on,
    minWorkers,
    maxWorkers,
    targetOngoingRequests: section.target_ongoing_requests ?? slots,
    spinUpSeconds: section.spin_up_seconds,
    spinDownSeconds: section.spin_down_seconds,
  }
}

function freezeDeeply<T extends object>(value: T): T {
  for (const part of Object.values(value)) {
    if (typeof part === 'object' && part !== null && !(part instanceof Secret)) freezeDeeply(part)
  }
  return Object.freeze(value)
}

type Section = FileConfig['guardrails']
type FileRule = NonNullable<Section['rules']>[number]

/**
 * Without `rules`, only `injection` applies. `max_prompt_chars` adds the rule `limits` as the first
 * rule if `rules` does not contain it.
 */
function resolveGuardrails(section: Section, written: WrittenFile): GuardrailConfig {
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
