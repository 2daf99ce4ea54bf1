/** Loads a model with node-llama-cpp, in the model's process. No other file names the library. */

import { createRequire } from 'node:module'
import { availableParallelism, cpus, loadavg } from 'node:os'
import { pathToFileURL } from 'node:url'
import type * as LlamaLibrary from 'node-llama-cpp'
import type {
  LlamaContext,
  LlamaContextSequence,
  LlamaGrammar,
  LlamaModel,
  Token as LibraryToken,
} from 'node-llama-cpp'
import { errnoOf, messageOf } from '../../../foundation/errors.ts'
import { objectGrammar, toJsonGrammar } from './json-grammar.ts'
import { expectGguf, freeCores, LoadError, toModelSource } from './model-loading.ts'
import type { LoadOrder, LoadProgress } from './protocol.ts'
import type { ChatTemplate, LlamaRuntime, Slot, TokenChoice, Vocabulary } from './runtime.ts'
import { bytesOfSpelling, longestSpelling } from './token-text.ts'

type Library = typeof LlamaLibrary

/** Unless more is configured: all sequences share the memory. */
const defaultContext = 4096
/** Token types of GGUF. A user-defined token is a control token if it is written like one. */
const controlType = 3
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
  const model = await llama.loadModel({
    modelPath,
    onLoadProgress: (done) => onProgress({ stage: 'load', done }),
  })
  const contextLength = Math.min(order.contextLength ?? defaultContext, model.trainContextSize)
  const context = await createContext(model, order, { contextLength, threads })
  const slots = Array.from({ length: order.sequences }, () =>
    createSlot(library, model, context.getSequence()),
  )
  return {
    contextLength,
    batchSize: order.batchSize,
    slots,
    vocabulary: createVocabulary(model),
    template: await createTemplate(model),
    createGrammar: (format) => ({
      ofRuntime: new library.LlamaGrammar(llama, {
        grammar: format.kind === 'json_object' ? objectGrammar : toJsonGrammar(format.schema),
      }),
    }),
  }
}

async function importLibrary(): Promise<Library> {
  try {
    return await import('node-llama-cpp')
  } catch (error) {
    if (errnoOf(error) !== 'ERR_MODULE_NOT_FOUND') throw error
    throw new LoadError(
      'the llama engine needs node-llama-cpp',
      'npm install node-llama-cpp',
      error,
    )
  }
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
  { sequences, batchSize }: LoadOrder,
  { contextLength, threads }: { readonly contextLength: number; readonly threads: number },
): Promise<LlamaContext> {
  try {
    return await model.createContext({
      sequences,
      contextSize: contextLength,
      batchSize,
      threads: { ideal: threads, min: threads },
      failedCreationRemedy: false,
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
  // At the beginning of a text, a word would lose its space.
  const anchor = model.tokenize('a').slice(-1)
  const ggml = model.fileInfo.metadata.tokenizer?.ggml
  return {
    first: model.tokens.shouldPrependBosToken ? model.tokens.bos : null,
    longestToken: ggml === undefined ? Infinity : longestSpelling(ggml.model, ggml.tokens),
    tokenize: (text, { special, inner }) =>
      model.tokenize(text, special, inner ? 'trimLeadingSpace' : undefined),
    textOf: (tokens, before) => model.detokenize(ours(tokens), false, ours(before)),
    nameOf: (token) => model.detokenize(ours([token]), true, anchor),
    bytesOf(token) {
      const spelling = ggml?.tokens[token]
      return spelling === undefined ? null : bytesOfSpelling(ggml.model, spelling)
    },
    isEnd: (token) => model.isEogToken(token as LibraryToken),
  }
}

/** The library renders templates with a package that only it depends on. */
async function createTemplate(model: LlamaModel): Promise<ChatTemplate | null> {
  const { tokenizer } = model.fileInfo.metadata
  if (typeof tokenizer?.chat_template !== 'string') return null
  const source = tokenizer.chat_template
  const require = createRequire(import.meta.resolve('node-llama-cpp'))
  const url = pathToFileURL(require.resolve('@huggingface/jinja')).href
  const { Template } = (await import(url)) as JinjaModule
  // Not before it is used: a template that cannot be read leaves a model that continues text.
  let template: InstanceType<JinjaModule['Template']> | undefined
  const ends = { bos_token: model.tokens.bosString ?? '', eos_token: model.tokens.eosString ?? '' }
  const { tokens, token_type: types } = tokenizer.ggml
  return {
    knowsTools: /\btools\b/.test(source),
    controls: tokens.filter((text, at) => {
      const type = Number(types?.[at])
      return type === controlType || (type === addedType && /^[<[].*[>\]]$/.test(text))
    }),
    render(input) {
      template ??= new Template(source)
      return template.render({ ...ends, ...input })
    },
  }
}

interface JinjaModule {
  readonly Template: new (source: string) => { render(input: object): string }
}

function createSlot(library: Library, model: LlamaModel, sequence: LlamaContextSequence): Slot {
  const ours = (tokens: readonly number[]): LibraryToken[] => [...tokens] as LibraryToken[]
  return {
    clear: () => sequence.clearHistory(),
    take: (tokens) => sequence.evaluateWithoutGeneratingNewTokens(ours(tokens)),
    continue(tokens, choice) {
      const iterator = sequence.evaluateWithMetadata(
        ours(tokens),
        { probabilities: choice.wantsProbabilities },
        toOptions(choice, grammarState(choice)),
      )
      return {
        async next() {
          const { value, done } = await iterator.next()
          if (done === true) throw new Error('the model gave no token')
          return value
        },
        async close() {
          await iterator.return()
        },
      }
    },
  }

  function grammarState({ grammar }: TokenChoice) {
    if (grammar === null) return undefined
    return new library.LlamaGrammarEvaluationState({
      model,
      grammar: grammar.ofRuntime as LlamaGrammar,
    })
  }
}

function toOptions(
  { temperature, topP, topK, minP, seed, repetition }: TokenChoice,
  grammarEvaluationState: InstanceType<Library['LlamaGrammarEvaluationState']> | undefined,
) {
  return {
    temperature,
    topP,
    topK,
    minP,
    seed,
    yieldEogToken: true,
    ...(grammarEvaluationState === undefined ? {} : { grammarEvaluationState }),
    ...(repetition === null
      ? {}
      : {
          repeatPenalty: {
            penalty: repetition.penalty,
            punishTokens: () => repetition.recent() as LibraryToken[],
          },
        }),
  }
}
