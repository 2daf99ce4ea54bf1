/** Loads a model with node-llama-cpp, in the model's process. */

import { existsSync } from 'node:fs'
import { registerHooks } from 'node:module'
import { availableParallelism, cpus, homedir, loadavg } from 'node:os'
import { join } from 'node:path'
import type * as LlamaLibrary from 'node-llama-cpp'
import type { LlamaContext, LlamaModel, Token as LibraryToken } from 'node-llama-cpp'
import { systemClock } from '../../../foundation/clock.ts'
import { errnoOf, messageOf } from '../../../foundation/errors.ts'
import { importPeer } from '../../../runtime/import-peer.ts'
import { isGguf } from '../../models/gguf-file.ts'
import { createDirectSlots } from './evaluation/direct-slots.ts'
import { cpuAttention, cpuFlags } from './evaluation/cpu-attention.ts'
import { libraryVersion, NativeContext } from './evaluation/native-context.ts'
import { GrammarCache } from './grammar/next-characters.ts'
import { threadWarning, fastest, measureThreads, stallOf } from './evaluation/thread-choice.ts'
import { type ChatTemplate, createChatTemplate } from './templates/chat-template.ts'
import { grammarOf } from './grammar/output-grammar.ts'
import type { LoadOrder, LoadProgress } from './protocol.ts'
import type { LlamaRuntime, Vocabulary } from './runtime.ts'
import { bytesOfSpelling, maxSpellingLength, slicesOf } from './token-text.ts'

type Library = typeof LlamaLibrary

/** The default context length. Limited, because all sequences share the memory. */
const defaultContext = 4096
/** GGUF token types. A user-defined token counts as a control token if it is written like one. */
const unknownType = 2
const controlType = 3
const unusedType = 5
const textlessTypes: ReadonlySet<number> = new Set([unknownType, controlType, unusedType])
const addedType = 4

export async function loadRuntime(
  order: LoadOrder,
  onProgress: (progress: LoadProgress) => void,
): Promise<LlamaRuntime> {
  const library = await importLibrary()
  const modelPath = await findModel(library, order, onProgress)
  const threads = order.threads ?? coresNow()
  const llama = await library.getLlama({
    gpu: order.gpu,
    build: 'never',
    skipDownload: true,
    progressLogs: false,
    logLevel: library.LlamaLogLevel.error,
    maxThreads: threads,
  })
  const model = await llama
    .loadModel({ modelPath, onLoadProgress: (done) => onProgress({ stage: 'load', done }) })
    .catch((error: unknown) => {
      const hint =
        'the GGUF file may be incomplete: fetch it again; or this version of llama.cpp does not ' +
        'know such models: a newer node-llama-cpp may'
      throw new LoadError(`${modelPath} cannot be loaded: ${messageOf(error)}`, hint, error)
    })
  const contextLength = Math.min(order.contextLength ?? defaultContext, model.trainContextSize)
  const context = await createContext(model, order, { contextLength, threads })
  const vocabulary = createVocabulary(model)
  const native = new NativeContext(model, context)
  const grammars = new GrammarCache()
  const isTried = llama.gpu === false && threads > 1
  return {
    threadProblem: isTried ? await tryThreads(native, order.threads, threads) : null,
    contextLength,
    batchSize: order.batchSize,
    slots: createDirectSlots(native, vocabulary, order.sequences),
    vocabulary,
    template: createTemplate(model),
    createGrammar(format) {
      const grammar = grammars.open(grammarOf(format))
      // Refuses the request early if the grammar cannot even begin.
      grammar.begin()
      return grammar
    },
  }
}

async function importLibrary(): Promise<Library> {
  const hooks = loadCpuBinaryAtOnce()
  const needed = `the llama engine needs node-llama-cpp ${libraryVersion}`
  const hint = `npm install node-llama-cpp@${libraryVersion}`
  try {
    const library = await importPeer<Library>('node-llama-cpp')
    const version = await library.getModuleVersion()
    if (version === libraryVersion) return library
    throw new LoadError(`${needed}, but version ${version} is installed`, hint)
  } catch (error) {
    if (errnoOf(error) !== 'ERR_MODULE_NOT_FOUND') throw error
    throw new LoadError(needed, hint, error)
  } finally {
    hooks.deregister()
  }
}

/**
 * The library tests a prebuilt binary in a child process, which takes a third of the CPU time of a
 * start. The test is skipped: it protects programs that must survive a broken binary and helps to
 * choose a GPU, but this process may crash and has no alternative to the CPU.
 */
function loadCpuBinaryAtOnce(): ReturnType<typeof registerHooks> {
  const own = (url: string): string =>
    `import { testBindingBinary as test } from ${JSON.stringify(url)}
    export const testBindingBinary = async (binary, backends, gpu, ...rest) =>
      gpu === false || (await test(binary, backends, gpu, ...rest))`
  return registerHooks({
    resolve(specifier, context, nextResolve) {
      const found = nextResolve(specifier, context)
      const isTest = found.url.endsWith('/node-llama-cpp/dist/bindings/utils/testBindingBinary.js')
      if (!isTest || context.parentURL?.startsWith('data:') === true) return found
      const url = `data:text/javascript,${encodeURIComponent(own(found.url))}`
      return { url, format: 'module', shortCircuit: true }
    },
  })
}

async function findModel(
  library: Library,
  { modelName, cacheDir, hubToken }: LoadOrder,
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

const coresNow = (): number =>
  freeCores({
    available: availableParallelism(),
    installed: cpus().length,
    load: loadavg()[0] ?? 0,
  })

async function createContext(
  model: LlamaModel,
  { sequences, batchSize, flashAttention }: LoadOrder,
  { contextLength, threads }: { readonly contextLength: number; readonly threads: number },
): Promise<LlamaContext> {
  const { architectureMetadata: architecture } = model.fileInfo
  try {
    return await model.createContext({
      sequences,
      contextSize: contextLength,
      // A pass holds the prompt tokens, and one token of each generating sequence.
      batchSize: batchSize + sequences,
      threads: { ideal: threads, min: threads },
      failedCreationRemedy: false,
      ...(flashAttention === 'auto' ? {} : { flashAttention }),
      ...(model.llama.gpu === false
        ? cpuAttention(architecture, cpuFlags(), flashAttention === true)
        : {}),
    })
  } catch (error) {
    const size = `${sequences} sequences of ${contextLength} tokens`
    const hint = 'lower max_model_len, or the number of sequences'
    throw new LoadError(`no memory for ${size}: ${messageOf(error)}`, hint, error)
  }
}

function createVocabulary(model: LlamaModel): Vocabulary {
  const ours = (tokens: readonly number[]): readonly LibraryToken[] =>
    tokens as readonly LibraryToken[]
  // Precedes a token that is shown alone, because a word loses its space at the beginning of a
  // text.
  const anchor = model.tokenize('a').slice(-1)
  const ggml = model.fileInfo.metadata.tokenizer?.ggml
  return {
    size: model.fileInfo.metadata.tokenizer?.ggml.tokens.length ?? Infinity,
    first: model.tokens.shouldPrependBosToken ? model.tokens.bos : null,
    maxTokenLength: ggml === undefined ? Infinity : maxSpellingLength(ggml.model, ggml.tokens),
    slices: ggml === undefined ? null : slicesOf(ggml.tokens, (text) => model.tokenize(text)),
    tokenize: (text, { special, inner }) =>
      model.tokenize(text, special, inner ? 'trimLeadingSpace' : undefined),
    textOf: (tokens, before) => model.detokenize(ours(tokens), false, ours(before)),
    nameOf: (token) => model.detokenize(ours([token]), true, anchor),
    bytesOf(token) {
      const spelling = ggml?.tokens[token]
      return spelling === undefined ? null : bytesOfSpelling(ggml.model, spelling)
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
      return type === controlType || (type === addedType && /^[<[].*[>\]]$/.test(text))
    }),
  })
}

/** Sets the given or the fastest number of threads. Returns why a given number is bad. */
async function tryThreads(
  native: NativeContext,
  given: number | null,
  max: number,
): Promise<string | null> {
  // With too many threads nothing is measured, because one token may take minutes.
  const warning = given === null ? null : threadWarning(given, availableParallelism())
  if (warning !== null) return warning
  const times = await measureThreads(native, max, { clock: systemClock, token: 0 })
  native.setThreads(given ?? fastest(times))
  return given === null ? null : stallOf(times, given)
}

/** The error for a model that cannot be loaded, with a hint. */
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

/**
 * `hf:` and `https:` names are on the hub, and so are `user/model` and `user/model:quant` unless
 * such a path exists here. `~/` is the home folder.
 */
export function toModelSource(name: string): ModelSource {
  if (/^(?:hf|https?):/.test(name)) return { kind: 'hub', uri: name }
  if (name.startsWith('~/')) return { kind: 'file', path: join(homedir(), name.slice(2)) }
  if (existsSync(name)) return { kind: 'file', path: name }
  const isHubName = /^[\w-][\w.-]*\/[\w.-]+(?::[\w.-]+)?$/.test(name) && !name.endsWith('.gguf')
  return isHubName ? { kind: 'hub', uri: `hf:${name}` } : { kind: 'file', path: name }
}

/** Checked here, because llama.cpp aborts the process for some files that are not models. */
async function expectGguf(path: string): Promise<void> {
  const hint =
    'give the path of a GGUF file (npx tutti model get stories15M fetches a small one, ' +
    'https://huggingface.co/models?library=gguf has real ones), or a name on the hub such as ' +
    'hf:user/model:Q4_K_M'
  try {
    if (await isGguf(path)) return
  } catch (error) {
    throw new LoadError(`${path} cannot be read: ${messageOf(error)}`, hint, error)
  }
  throw new LoadError(`${path} is not a GGUF file`, hint)
}

export interface CoreFacts {
  /** The number of cores that this process may use. */
  readonly available: number
  readonly installed: number
  /** The mean number of busy cores of the whole machine during the last minute. */
  readonly load: number
}

/**
 * The default number of threads, always positive. With more threads than free cores, llama.cpp
 * becomes very slow. If the process is limited to some cores, the machine's load is ignored.
 */
export function freeCores({ available, installed, load }: CoreFacts): number {
  const free = available < installed ? available : available - Math.round(load)
  return Math.max(1, free)
}
