/** Loads a model with node-llama-cpp, in the model's process. */

import { existsSync } from 'node:fs'
import { registerHooks } from 'node:module'
import { availableParallelism, cpus, homedir, loadavg } from 'node:os'
import { join } from 'node:path'
import type * as LlamaLibrary from 'node-llama-cpp'
import type { LlamaContext, LlamaModel, Token as LibraryToken } from 'node-llama-cpp'
import { systemClock } from '../../../foundation/clock.ts'
import { errnoOf, messageOf } from '../../../foundation/errors.ts'
import { llamaVersion } from '../../../foundation/version.ts'
import { importPeer } from '../../../runtime/import-peer.ts'
import { toUnitVector } from '../../generation/fields/unit-vector.ts'
import { estimateCacheBytes, findModelProblem, modelFileHint } from '../../models/gguf-file.ts'
import { createDirectSlots } from './evaluation/direct-slots.ts'
import { chooseCpuAttention, readCpuFlags } from './evaluation/cpu-attention.ts'
import { NativeContext } from './evaluation/native-context.ts'
import type { EmbeddingRuntime } from './embedding-loop.ts'
import { GrammarCache } from './grammar/next-characters.ts'
import { type ChatTemplate, createChatTemplate } from './templates/chat-template.ts'
import { toGrammar } from './grammar/output-grammar.ts'
import type { LoadRequest, LoadProgress } from './protocol.ts'
import { hasWaited, readCoreTime } from './tuning/core-time.ts'
import { measure, probeSize } from './tuning/measurement.ts'
import { tune, type TunedSettings } from './tuning/tune.ts'
import {
  type Attention,
  chooseTuning,
  excessWarning,
  type FixedSettings,
  type Measurements,
  nothingMeasured,
} from './tuning/tuning.ts'
import type { LlamaRuntime, Vocabulary } from './runtime.ts'
import { spellingToBytes, maxSpellingLength, findSlicing } from './token-text.ts'

type Library = typeof LlamaLibrary

/** The default context length is limited, because all sequences share the memory. */
const defaultContextLength = 4096
/** The types of tokens in GGUF files. */
const unknownType = 2
const controlType = 3
const unusedType = 5
const textlessTypes: ReadonlySet<number> = new Set([unknownType, controlType, unusedType])
const userDefinedType = 4

type OnProgress = (progress: LoadProgress) => void

/** Loads a model that generates text. */
export async function loadRuntime(
  request: LoadRequest,
  onProgress: OnProgress,
): Promise<LlamaRuntime> {
  return createRuntime(await loadModel(request, onProgress), request)
}

/**
 * Loads a model to generate text or to compute embeddings, as the request or the model's file says.
 */
export async function loadForPurpose(
  request: LoadRequest,
  onProgress: OnProgress,
): Promise<LlamaRuntime | EmbeddingRuntime> {
  const loaded = await loadModel(request, onProgress)
  const purpose = request.purpose ?? findPurpose(loaded.model)
  return purpose === 'embedding'
    ? createEmbeddingRuntime(loaded.model, request, loaded.maxThreads)
    : createRuntime(loaded, request)
}

/**
 * A model is an embedding model if its file says how the vectors of tokens are pooled, or that
 * attention is not causal.
 */
function findPurpose({ fileInfo }: LlamaModel): 'chat' | 'embedding' {
  const { pooling_type: pooling, attention } = fileInfo.architectureMetadata as {
    readonly pooling_type?: number
    readonly attention?: { readonly causal?: boolean }
  }
  const isPooled = pooling !== undefined && poolingTypes.has(pooling)
  return isPooled || attention?.causal === false ? 'embedding' : 'chat'
}

/** The pooling types mean, first and last, as numbers in GGUF files. */
const poolingTypes: ReadonlySet<number> = new Set([1, 2, 3])

interface LoadedModel {
  readonly model: LlamaModel
  readonly modelPath: string
  readonly maxThreads: number
  /** Whether other programs use most of the cores, which makes measurements unreliable. */
  readonly isMachineBusy: boolean
}

async function loadModel(request: LoadRequest, onProgress: OnProgress): Promise<LoadedModel> {
  const library = await importLibrary()
  const modelPath = await findModel(library, request, onProgress)
  const [load = 0] = loadavg()
  const cores = { available: availableParallelism(), installed: cpus().length, load }
  const maxThreads = request.threads ?? freeCores(cores)
  const llama = await library.getLlama({
    gpu: request.gpu,
    build: 'never',
    skipDownload: true,
    progressLogs: false,
    logLevel: library.LlamaLogLevel.error,
    maxThreads,
  })
  const model = await llama
    .loadModel({ modelPath, onLoadProgress: (done) => onProgress({ stage: 'load', done }) })
    .catch((error: unknown) => {
      const hint =
        'the GGUF file may be incomplete: fetch it again; or this version of llama.cpp does not ' +
        'know such models: a newer node-llama-cpp may'
      throw new LoadError(`${modelPath} cannot be loaded: ${messageOf(error)}`, hint, error)
    })
  return { model, modelPath, maxThreads, isMachineBusy: load > cores.installed / 2 }
}

const findContextLength = (model: LlamaModel, { contextLength }: LoadRequest): number =>
  Math.min(contextLength ?? defaultContextLength, model.trainContextSize)

async function createEmbeddingRuntime(
  model: LlamaModel,
  request: LoadRequest,
  threads: number,
): Promise<EmbeddingRuntime> {
  const contextLength = findContextLength(model, request)
  const context = await guardMemory(request, contextLength, () =>
    model.createEmbeddingContext({
      contextSize: contextLength,
      // Some models compute a text only as a whole, so a batch must hold the longest text.
      batchSize: contextLength,
      threads,
    }),
  )
  return {
    contextLength,
    vocabulary: createVocabulary(model),
    async embed(input) {
      const text = typeof input === 'string' ? input : (input as LibraryToken[])
      const { vector } = await context.getEmbeddingFor(text)
      return toUnitVector(vector)
    },
    countTokens: (input) =>
      context.calculateInputLength(typeof input === 'string' ? input : (input as LibraryToken[])),
  }
}

async function createRuntime(loaded: LoadedModel, request: LoadRequest): Promise<LlamaRuntime> {
  const { model, maxThreads } = loaded
  const contextLength = findContextLength(model, request)
  const { tuning, report } = await tuneModel(loaded, request, contextLength)
  const size = { sequences: request.sequences, contextLength, batchSize: tuning.batchSize }
  const isFree = model.llama.gpu !== false && request.flashAttention === 'auto'
  const contexts: NativeContext[] = []
  for (const usesFlash of isFree ? [null] : toFlashOptions(tuning.attention)) {
    const context = await guardMemory(request, contextLength, () =>
      createContext(model, size, usesFlash, request.adapterPath),
    )
    contexts.push(new NativeContext(model, context, tuning.threads))
  }
  const vocabulary = createVocabulary(model)
  const [slots = [], longSlots = []] = createDirectSlots(contexts, vocabulary, request.sequences)
  const grammars = new GrammarCache()
  return {
    threadWarning: excessWarning(maxThreads, availableParallelism()),
    tuningReport: report,
    contextLength,
    batchSize: tuning.batchSize,
    slots,
    longSlots,
    vocabulary,
    template: createTemplate(model),
    createGrammar(format) {
      const grammar = grammars.open(toGrammar(format))
      // Throws if the grammar is too ambiguous from its first character on.
      grammar.begin()
      return grammar
    },
  }
}

/** The context for short texts is the first. */
function toFlashOptions(attention: Attention): boolean[] {
  if (attention === 'both') return [true, false]
  return [attention === 'flash']
}

async function importLibrary(): Promise<Library> {
  const hooks = skipBinaryTest()
  const needed = `the llama engine needs node-llama-cpp ${llamaVersion}`
  const hint = `npm install node-llama-cpp@${llamaVersion}`
  try {
    const library = await importPeer<Library>('node-llama-cpp')
    const version = await library.getModuleVersion()
    if (version === llamaVersion) return library
    throw new LoadError(`${needed}, but version ${version} is installed`, hint)
  } catch (error) {
    if (errnoOf(error) !== 'ERR_MODULE_NOT_FOUND') throw error
    throw new LoadError(needed, hint, error)
  } finally {
    hooks.deregister()
  }
}

/** Skips a test of the prebuilt binary, because it takes a third of the CPU time of a start. */
function skipBinaryTest(): ReturnType<typeof registerHooks> {
  const patchSource = (url: string): string =>
    `import { testBindingBinary as test } from ${JSON.stringify(url)}
    export const testBindingBinary = async (binary, backends, gpu, ...rest) =>
      gpu === false || (await test(binary, backends, gpu, ...rest))`
  return registerHooks({
    resolve(specifier, context, nextResolve) {
      const found = nextResolve(specifier, context)
      const isTest = found.url.endsWith('/node-llama-cpp/dist/bindings/utils/testBindingBinary.js')
      if (!isTest || context.parentURL?.startsWith('data:') === true) return found
      const url = `data:text/javascript,${encodeURIComponent(patchSource(found.url))}`
      return { url, format: 'module', shortCircuit: true }
    },
  })
}

async function findModel(
  library: Library,
  { modelName, cacheDir, hubToken }: LoadRequest,
  onProgress: (progress: LoadProgress) => void,
): Promise<string> {
  const source = toModelSource(modelName)
  const path = source.kind === 'file' ? source.path : await download(source.uri)
  await expectGguf(path)
  return path

  async function download(uri: string): Promise<string> {
    try {
      return await library.resolveModelFile(uri, {
        directory: cacheDir,
        cli: false,
        ...(hubToken === null ? {} : { tokens: { huggingFace: hubToken } }),
        onProgress: ({ downloadedSize, totalSize }) =>
          onProgress({ stage: 'download', done: totalSize > 0 ? downloadedSize / totalSize : 0 }),
      })
    } catch (error) {
      const hint = 'check its name, the network and the token, or give the path of a GGUF file'
      throw new LoadError(`${modelName} cannot be fetched: ${messageOf(error)}`, hint, error)
    }
  }
}

/**
 * Finds the fastest settings by measuring, unless a GPU computes or more threads are requested than
 * cores are available.
 */
async function tuneModel(
  loaded: LoadedModel,
  request: LoadRequest,
  contextLength: number,
): Promise<TunedSettings> {
  const { model, modelPath, maxThreads, isMachineBusy } = loaded
  const { flashAttention, batchSize, cacheDir, sequences } = request
  const threads = request.threads ?? (maxThreads === 1 ? 1 : null)
  const fixed = { threads, flashAttention, batchSize }
  if (model.llama.gpu !== false || maxThreads > availableParallelism()) {
    const tuning = chooseTuning(nothingMeasured, fixed, { maxThreads, cacheBytes: null })
    return { tuning, report: null }
  }
  const size = { sequences, maxLength: contextLength }
  const cacheBytes = await estimateCacheBytes(modelPath, size).catch(() => null)
  const coreTime = readCoreTime()
  const busyCores = request.threads === null ? availableParallelism() - maxThreads : 0
  return tune({
    facts: { cacheBytes, busyCores },
    key: { modelPath, fixed, maxThreads, build: model.llama.buildType },
    folder: join(cacheDir, 'tuning'),
    isKept: () => !isMachineBusy && !hasWaited(coreTime, readCoreTime()),
    clock: systemClock,
    measure: () => measureModel(loaded, fixed),
  })
}

function measureModel(
  { model, maxThreads }: LoadedModel,
  fixed: FixedSettings,
): Promise<Measurements> {
  return measure({
    clock: systemClock,
    cpuMs: readCpuMs,
    fixed,
    maxThreads,
    vocabularySize: model.fileInfo.metadata.tokenizer?.ggml.tokens.length ?? 1,
    async withProbe(usesFlash, use) {
      const context = await createContext(model, probeSize, usesFlash)
      try {
        await use(new NativeContext(model, context))
      } finally {
        await context.dispose()
      }
    },
  })
}

function readCpuMs(): number {
  const { user, system } = process.cpuUsage()
  return (user + system) / 1000
}

interface ContextSize {
  readonly sequences: number
  readonly contextLength: number
  readonly batchSize: number
}

function createContext(
  model: LlamaModel,
  { sequences, contextLength, batchSize }: ContextSize,
  usesFlash: boolean | null,
  adapterPath: string | null = null,
): Promise<LlamaContext> {
  const { architectureMetadata: architecture } = model.fileInfo
  return model.createContext({
    sequences,
    contextSize: contextLength,
    // A pass contains prompt tokens and one token of each generating sequence.
    batchSize: batchSize + sequences,
    threads: 1,
    failedCreationRemedy: false,
    ...(adapterPath === null ? {} : { lora: { adapters: [{ filePath: adapterPath }] } }),
    ...(usesFlash === null ? {} : { flashAttention: usesFlash }),
    ...(model.llama.gpu === false
      ? chooseCpuAttention(architecture, readCpuFlags(), usesFlash === true)
      : {}),
  })
}

async function guardMemory<T>(
  { sequences }: LoadRequest,
  contextLength: number,
  create: () => Promise<T>,
): Promise<T> {
  try {
    return await create()
  } catch (error) {
    const size = `${sequences} sequences of ${contextLength} tokens`
    const hint = 'lower max_model_len, or the number of sequences'
    throw new LoadError(`no memory for ${size}: ${messageOf(error)}`, hint, error)
  }
}

function createVocabulary(model: LlamaModel): Vocabulary {
  const toLibraryTokens = (tokens: readonly number[]): readonly LibraryToken[] =>
    tokens as readonly LibraryToken[]
  // Put before a single token, which would lose its leading space at the beginning of a text.
  const anchor = model.tokenize('a').slice(-1)
  const ggml = model.fileInfo.metadata.tokenizer?.ggml
  return {
    size: ggml?.tokens.length ?? Infinity,
    firstToken: model.tokens.shouldPrependBosToken ? model.tokens.bos : null,
    maxTokenLength: ggml === undefined ? Infinity : maxSpellingLength(ggml.model, ggml.tokens),
    slicing: ggml === undefined ? null : findSlicing(ggml.tokens, (text) => model.tokenize(text)),
    tokenize: (text, { special, inner }) =>
      model.tokenize(text, special, inner ? 'trimLeadingSpace' : undefined),
    textOf: (tokens, before) =>
      model.detokenize(toLibraryTokens(tokens), false, toLibraryTokens(before)),
    fullTextOf: (tokens) => model.detokenize(toLibraryTokens(tokens), true),
    nameOf: (token) => model.detokenize(toLibraryTokens([token]), true, anchor),
    bytesOf(token) {
      const spelling = ggml?.tokens[token]
      return spelling === undefined ? null : spellingToBytes(ggml.model, spelling)
    },
    isEnd: (token) => model.isEogToken(token as LibraryToken),
    isTextless: (token) => textlessTypes.has(Number(ggml?.token_type?.[token])),
  }
}

function createTemplate(model: LlamaModel): ChatTemplate | null {
  const { tokenizer } = model.fileInfo.metadata
  if (typeof tokenizer?.chat_template !== 'string') return null
  const { tokens, token_type: types } = tokenizer.ggml
  return createChatTemplate({
    source: tokenizer.chat_template,
    bos: model.tokens.bosString ?? '',
    eos: model.tokens.eosString ?? '',
    controls: tokens.filter((text, at) => {
      const type = Number(types?.[at])
      return type === controlType || (type === userDefinedType && /^[<[].*[>\]]$/.test(text))
    }),
  })
}

export class LoadError extends Error {
  readonly hint: string

  constructor(message: string, hint: string, cause?: unknown) {
    super(message, { cause })
    this.hint = hint
  }
}

export type ModelSource =
  | { readonly kind: 'file'; readonly path: string }
  | { readonly kind: 'hub'; readonly uri: string }

/** `hf:` and `https:` mean the hub, and so does `user/model` if no such path exists here. */
export function toModelSource(name: string): ModelSource {
  if (/^(?:hf|https?):/.test(name)) return { kind: 'hub', uri: name }
  if (name.startsWith('~/')) return { kind: 'file', path: join(homedir(), name.slice(2)) }
  if (existsSync(name)) return { kind: 'file', path: name }
  const isHubName = /^[\w-][\w.-]*\/[\w.-]+(?::[\w.-]+)?$/.test(name) && !name.endsWith('.gguf')
  return isHubName ? { kind: 'hub', uri: `hf:${name}` } : { kind: 'file', path: name }
}

/** Rejects files that are no models, because llama.cpp would abort the process for some. */
async function expectGguf(path: string): Promise<void> {
  const problem = await findModelProblem(path)
  if (problem !== null) throw new LoadError(problem, modelFileHint)
}

export interface CoreCounts {
  readonly available: number
  readonly installed: number
  /** The mean number of busy cores of the whole machine in the last minute. */
  readonly load: number
}

/** Ignores the machine's load if the process may use only some of the cores. */
export function freeCores({ available, installed, load }: CoreCounts): number {
  const free = available < installed ? available : available - Math.round(load)
  return Math.max(1, free)
}
