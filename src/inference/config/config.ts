/** Loads a configuration: reads the file, validates it and fills in defaults. */

import { existsSync } from 'node:fs'
import { homedir } from 'node:os'
import { basename, dirname, join, resolve } from 'node:path'
import { errnoOf, type ErrorDetails, messageOf, ValueError } from '../../foundation/errors.ts'
import { type Log, processLog } from '../../foundation/log.ts'
import { expectObject } from '../../foundation/options.ts'
import { readRegularFileSync } from '../../foundation/regular-file.ts'
import {
  commandLine,
  type ConfigEntry,
  type ConfigNode,
  ConfigProblems,
  isEmptyNode,
  type MapNode,
  startOfFile,
  toConfigNode,
  ConfigDocument,
} from './config-tree.ts'
import { resolveGuardrails } from './guardrail-config.ts'
import { readEngineOption, readTree, resolveOverrides } from './read-tree.ts'
import { findDescriptor, type EngineConfig, toEngineConfig } from '../engines/engines.ts'
import type { DynamicWorkersConfig, HardwareConfig, LlmConfig } from './config-sections.ts'
import type {
  ConfigSections,
  FurtherModel,
  InferenceConfig,
  InferenceOverrides,
} from './inference-config.ts'
import { createConfigSchema, type FileConfig } from './config-schema.ts'
import type { Environment } from '../schema/config-fields.ts'
import { Secret } from '../schema/secret.ts'
import { maxConfigBytes, parseYamlTree } from './yaml-tree.ts'

/** Reads and validates a configuration file. `overrides` take precedence over the file. */
export const loadInferenceConfig = async (
  path: string,
  overrides: InferenceOverrides = {},
  log: Log = processLog,
): Promise<InferenceConfig> => loadConfigWithSettings(path, {}, overrides, log)

/** Single keys of the configuration, by section. They take precedence over the file. */
export type ConfigSettings = Readonly<Record<string, Readonly<Record<string, unknown>>>>

export function loadConfigWithSettings(
  path: string,
  settings: ConfigSettings,
  overrides: InferenceOverrides = {},
  log: Log = processLog,
): InferenceConfig {
  const validOverrides = resolveOverrides(overrides)
  const { text, mode } = readConfigFile(path)
  const files = createConfigFiles(dirname(path), log)
  const source = {
    file: basename(path),
    env: process.env,
    files,
    overrides: validOverrides,
    settings,
  }
  const config = parseInferenceConfig(text, source)
  const holdsSecret = [config.hubToken, ...Object.values(config.engine)].some(
    (value) => value instanceof Secret && text.includes(value.reveal()),
  )
  if (holdsSecret) warnIfReadable(log, path, mode & 0o004)
  return config
}

/**
 * Validates a configuration that is an object. Relative paths in it start at the working directory.
 */
export function readInferenceConfig(
  sections: ConfigSections,
  overrides: InferenceOverrides = {},
  log: Log = processLog,
  settings: ConfigSettings = {},
): InferenceConfig {
  const root = withSettings(toConfigNode(expectObject('config', sections)), settings)
  return resolveConfig(root, {
    problems: new ConfigProblems({ kind: 'object' }),
    env: process.env,
    files: createConfigFiles('.', log),
    overrides: resolveOverrides(overrides),
  })
}

export interface ConfigContext {
  readonly env: Environment
  readonly overrides: InferenceOverrides
  readonly files: ConfigFiles
}

/** Validates a text and fills in defaults. One `ValueError` lists all problems with positions. */
export function parseInferenceConfig(
  text: string,
  {
    file,
    settings = {},
    ...context
  }: ConfigContext & { readonly file: string; readonly settings?: ConfigSettings },
): InferenceConfig {
  const problems = new ConfigProblems({ kind: 'file', name: file })
  return resolveConfig(withSettings(parseYamlTree(text, problems), settings), {
    problems,
    ...context,
  })
}

type Merge = (earlier: ConfigNode, later: ConfigNode) => ConfigNode

function withSettings(root: ConfigNode, settings: ConfigSettings): ConfigNode {
  if (Object.keys(settings).length === 0) return root
  const mergeSection: Merge = (earlier, later) => mergeEntries(earlier, later, (_, value) => value)
  return mergeEntries(root, toConfigNode(settings, [], [], commandLine), mergeSection)
}

/** Merges two maps. If a node is not a map, the validation reports it. */
function mergeEntries(earlier: ConfigNode, later: ConfigNode, merge: Merge): ConfigNode {
  if (isEmptyNode(earlier)) return later
  if (earlier.kind !== 'map' || later.kind !== 'map') return earlier
  const merged = new Map(earlier.entries.map((entry) => [entry.key, entry]))
  for (const entry of later.entries) {
    const before = merged.get(entry.key)
    const value = before === undefined ? entry.value : merge(before.value, entry.value)
    merged.set(entry.key, { ...entry, value })
  }
  return { ...earlier, entries: [...merged.values()] }
}

interface ResolveContext extends ConfigContext {
  readonly problems: ConfigProblems
  /** The purpose of a further model. */
  readonly purpose?: 'chat' | 'embedding'
}

function resolveConfig(root: ConfigNode, context: ResolveContext): InferenceConfig {
  const { problems, env, overrides } = context
  if (root.kind !== 'map' && !isEmptyNode(root)) {
    problems.add(root.position, 'expected sections, such as "required:"')
  }
  problems.throwIfAny()
  const tree: MapNode =
    root.kind === 'map' ? root : { kind: 'map', entries: [], position: startOfFile }
  const file = readTree(createConfigSchema(env), tree, problems)
  const document = new ConfigDocument(tree, problems)
  for (const section of ['guardrails', 'dynamic_workers']) {
    const isOff = document.has(section) && !document.has(section, 'toggle_on')
    if (isOff) context.files.warn('SectionIsOff', sectionIsOff(section))
  }
  const engine = readEngineOption(overrides.engine, resolveFileEngine(file, context.files), env)
  const required = resolveRequiredSection(file.required, document, engine, context)
  const problem = findDescriptor(engine).findProblem?.(engine)
  if (problem !== undefined) document.addProblem(['engine', problem.key], problem.text, 'key')
  const hardware = resolveHardware(file.hardware, overrides, required.tpSize)
  const batching = resolveBatching(file.input_batching, document, overrides)
  const slots = findDescriptor(engine).slots(engine, batching.maxBatchSize)
  const config: InferenceConfig = {
    ...required,
    purpose: context.purpose ?? null,
    adapterPath: null,
    hardware,
    llm: resolveLlm(file.llm, document, engine),
    batching,
    guardrails: resolveGuardrails(file.guardrails, document),
    dynamicWorkers: resolveDynamicWorkers(file.dynamic_workers, document, hardware, slots),
    engine,
    server: { isStrict: file.server.strict },
    models: [],
  }
  problems.throwIfAny()
  const models = file.models.flatMap((model, at) => resolveModel(model, at, tree, context))
  expectUniqueNames([config, ...models.map((one) => one.config)], document)
  problems.throwIfAny()
  return freezeDeeply({ ...config, models })
}

/**
 * Resolves a further model as if it had its own file, which includes the sections that all models
 * share. Each adapter of the model becomes a model as well.
 */
function resolveModel(
  { purpose, preload, keep_alive_seconds: keepAliveSeconds, adapters }: FileModel,
  index: number,
  root: MapNode,
  context: ResolveContext,
): readonly FurtherModel[] {
  const models = findEntry(root, 'models')
  const own = models?.kind === 'list' ? models.items[index] : undefined
  if (own?.kind !== 'map') throw new TypeError('a model that is no map passed the check')
  const select = (from: ConfigNode | undefined, names: readonly string[]): ConfigEntry[] =>
    from?.kind === 'map' ? from.entries.filter(({ key }) => names.includes(key)) : []
  const required: MapNode = {
    ...own,
    entries: [
      ...select(own, ['model_name', 'served_name']),
      ...select(findEntry(root, 'required'), ['hf_token', 'token_file', 'tp_size']),
    ],
  }
  const entries = [toEntry('required', required)]
  for (const { key, value } of select(own, ['llm', 'engine'])) {
    const shared = key === 'llm' ? findEntry(root, key) : undefined
    const merged = shared === undefined ? value : mergeEntries(shared, value, (_, later) => later)
    entries.push(toEntry(key, merged))
  }
  const replaced = new Set(['models', ...entries.map(({ key }) => key)])
  entries.push(...root.entries.filter(({ key }) => !replaced.has(key)))
  const { modelName: _, engine, ...overrides } = context.overrides
  const isShared = engine !== undefined && findEntry(own, 'engine') === undefined
  const config = resolveConfig(
    { ...root, entries },
    {
      ...context,
      purpose,
      overrides: { ...overrides, ...(isShared ? { engine } : {}) },
      // The warnings about the shared sections were already given.
      files: { ...context.files, warn: () => {} },
    },
  )
  const takesAdapters = config.engine.kind === 'llama' && purpose === 'chat'
  if (adapters.length > 0 && !takesAdapters) {
    const text = `models[${index}].adapters: only models for text of the llama engine have adapters`
    context.problems.add(own.position, text)
  }
  const adapted = adapters.map(({ name, path }) => ({
    config: { ...config, servedNames: [name], adapterPath: context.files.resolve(path) },
    isPreloaded: false,
    keepAliveSeconds,
  }))
  return [{ config, isPreloaded: preload, keepAliveSeconds }, ...adapted]
}

type FileModel = FileConfig['models'][number]

const findEntry = ({ entries }: MapNode, name: string): ConfigNode | undefined =>
  entries.find(({ key }) => key === name)?.value

const toEntry = (key: string, value: ConfigNode): ConfigEntry => ({
  key,
  value,
  position: value.position,
})

function expectUniqueNames(configs: readonly InferenceConfig[], document: ConfigDocument): void {
  const seen = new Set<string>()
  for (const { servedNames } of configs) {
    const twice = servedNames.find((name) => seen.has(name))
    if (twice !== undefined) document.addProblem(['models'], `two models have the name ${twice}`)
    for (const name of servedNames) seen.add(name)
  }
}

const sectionIsOff = (section: string): string =>
  `the section ${section} has no effect, because its toggle_on is not true; ` +
  'set toggle_on: true, or toggle_on: false to keep it off without this warning'

/**
 * Resolves the section `required`. A token is needed only for a hub model that the llama engine
 * downloads.
 */
function resolveRequiredSection(
  section: FileConfig['required'],
  document: ConfigDocument,
  engine: EngineConfig,
  { overrides, files }: ConfigContext,
): Pick<InferenceConfig, 'modelName' | 'modelPath' | 'servedNames' | 'hubToken' | 'tpSize'> {
  const modelName = overrides.modelName ?? section.model_name ?? ''
  if (overrides.modelName === undefined && !document.has('required', 'model_name')) {
    document.addProblem(['required', 'model_name'], 'missing; set it, or the option modelName')
  }
  const hasToken = document.has('required', 'hf_token')
  const hasFile = document.has('required', 'token_file')
  let hubToken = section.hf_token ?? null
  if (hasToken && hasFile) {
    document.addProblem(['required', 'token_file'], 'hf_token is set too; keep one of them')
  } else if (section.token_file !== undefined) {
    const { token, reason } = readToken(files, section.token_file)
    if (token !== undefined) hubToken = new Secret(token)
    else document.addProblem(['required', 'token_file'], `cannot be used (${reason})`)
  }
  const isFromFile = overrides.modelName === undefined
  const localPath = isFromFile ? files.resolve(modelName) : resolveFrom('.', modelName)
  const isHub = modelName !== '' && !isLocalName(modelName) && !files.exists(localPath)
  const { model } = findDescriptor(engine)
  const modelPath = model !== 'name' && !isHub && !isRemoteName(modelName) ? localPath : modelName
  // If the kind is misspelt, it is unknown whether the engine needs a token, so none is required.
  const kind = overrides.engine === undefined ? document.valueAt('engine', 'kind') : undefined
  const isKindKnown = kind === undefined || kind === engine.kind
  const isDownloaded = model === 'download' && typeof overrides.engine !== 'function'
  if (isDownloaded && isKindKnown && isHub && !hasToken && !hasFile) {
    const why = modelName.startsWith('hf:') ? '' : `there is no file ${modelName}; `
    const text = `${why}a download from the hub needs a file with its token, for public models too`
    document.addProblem(['required', 'token_file'], text)
  }
  const servedNames = section.served_name ?? [toServedName(modelName)]
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

/** Returns the default name for clients, which is never a path. */
const toServedName = (name: string): string =>
  isLocalName(name) && !isRemoteName(name) ? basename(name).replace(/\.gguf$/i, '') || name : name

const isLocalName = (name: string): boolean => /^(?:\.{0,2}\/|~)|\.gguf$/i.test(name)

/** Whether the name is empty, or a URL from which the engine itself obtains the model. */
const isRemoteName = (name: string): boolean => name === '' || /^(?:hf|https?):/.test(name)

function resolveFileEngine(file: FileConfig, files: ConfigFiles): EngineConfig {
  const engine = toEngineConfig(file.engine)
  const descriptor = findDescriptor(engine)
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
    modelMemoryMb: section.model_memory_mb ?? null,
  }
}

function resolveBatching(
  section: FileConfig['input_batching'],
  document: ConfigDocument,
  overrides: InferenceOverrides,
): InferenceConfig['batching'] {
  const isInFile = document.has('input_batching', 'max_batch_wait_ms')
  const hasWait = overrides.maxBatchWaitMs !== undefined || isInFile
  return {
    isOn: section.toggle_on,
    maxBatchSize: overrides.maxBatchSize ?? section.max_batch_size,
    maxBatchWaitMs: overrides.maxBatchWaitMs ?? section.max_batch_wait_ms,
    type: section.type ?? (hasWait ? 'fixed' : 'adaptive'),
  }
}

function resolveLlm(
  section: FileConfig['llm'],
  document: ConfigDocument,
  engine: EngineConfig,
): LlmConfig {
  // Not every server knows `top_k` and `repetition_penalty`, so servers get only values from the
  // file.
  const { hasServer } = findDescriptor(engine)
  const isUnset = (key: string): boolean => hasServer && !document.has('llm', key)
  const maxModelLen = section.max_model_len
  const maxTokens = section.max_tokens ?? Math.min(100, maxModelLen)
  if (maxTokens > maxModelLen) {
    const problem = `expected at most max_model_len (${maxModelLen}), got ${maxTokens}`
    document.addProblem(['llm', 'max_tokens'], problem)
  }
  return {
    dtype: section.dtype,
    maxTokens,
    maxModelLen,
    temperature: section.temperature,
    topP: section.top_p,
    topK: isUnset('top_k') ? 0 : section.top_k,
    repetitionPenalty: isUnset('repetition_penalty') ? 1 : section.repetition_penalty,
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
  document: ConfigDocument,
  { numInfWorkers }: HardwareConfig,
  slots: number,
): DynamicWorkersConfig {
  const minWorkers = section.min_workers
  const maxWorkers = section.max_workers ?? Math.max(numInfWorkers, minWorkers)
  if (maxWorkers < minWorkers) {
    const problem = `expected at least min_workers (${minWorkers}), got ${maxWorkers}`
    document.addProblem(['dynamic_workers', 'max_workers'], problem)
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

interface ConfigFiles {
  exists(path: string): boolean
  /** Makes a path absolute. Relative paths start at the folder of the configuration. */
  resolve(path: string): string
  readToken(path: string): string
  warn(code: string, message: string): void
}

/** A token is a single line, so a larger file cannot be a token. */
const maxTokenBytes = 65_536

function readConfigFile(path: string): { readonly text: string; readonly mode: number } {
  const refuse = (reason: string, details: ErrorDetails = {}): ValueError =>
    new ValueError(`the configuration ${path} ${reason}`, {
      ...details,
      code: 'ConfigError',
      field: 'configFile',
      expected: 'a readable file',
      got: path,
    })
  try {
    const { bytes, mode } = readRegularFileSync(path, maxConfigBytes)
    return { text: bytes.toString('utf8'), mode }
  } catch (error) {
    if (errnoOf(error) !== 'ENOENT') {
      throw refuse(`cannot be read: ${messageOf(error)}`, { cause: error })
    }
    const hint = `It was looked for at ${resolve(path)}. Write it there, or give its path.`
    throw refuse('does not exist', { cause: error, hint })
  }
}

const resolveFrom = (folder: string, path: string): string =>
  path.startsWith('~/') ? join(homedir(), path.slice(2)) : resolve(folder, path)

function createConfigFiles(folder: string, log: Log): ConfigFiles {
  const resolvePath = (path: string): string => resolveFrom(folder, path)
  return {
    exists: (path) => existsSync(path),
    resolve: resolvePath,
    warn: (code, message) => log.warn(code, message),
    readToken(path) {
      const file = resolvePath(path)
      const { bytes, mode } = readRegularFileSync(file, maxTokenBytes)
      warnIfReadable(log, file, mode & 0o044)
      return bytes.toString('utf8').trim()
    },
  }
}

/** `readers` has the mode bits that let the group or others read the file. */
function warnIfReadable(log: Log, file: string, readers: number): void {
  if (readers === 0) return
  log.warn('TokenFileReadable', `Others can read the token in ${file}; run: chmod 600 ${file}`)
}
