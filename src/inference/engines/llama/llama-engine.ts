/** Runs GGUF models with llama.cpp in a child process, because llama.cpp may abort its process. */

import { homedir } from 'node:os'
import { basename, isAbsolute, join } from 'node:path'
import type { Clock } from '../../../foundation/clock.ts'
import type { InferenceError } from '../../../foundation/errors.ts'
import type { Log } from '../../../foundation/log.ts'
import {
  definedFields,
  expectBoolean,
  expectSecret,
  expectString,
} from '../../../foundation/options.ts'
import { maskSecrets, registerSecret } from '../../../foundation/secrets.ts'
import { once } from '../../../foundation/service.ts'
import type {
  EngineCapacity,
  GenerationInput,
  GenerationListener,
  GenerationRequest,
  InferenceEngine,
  ModelFacts,
  PromptTokens,
} from '../../generation/inference-engine.ts'
import { inferenceError } from '../../generation/inference-errors.ts'
import {
  createTextSchema,
  integer,
  numberAbove,
  orNull,
  section,
} from '../../schema/config-fields.ts'
import { findModelProblem, modelFileHint } from '../../models/gguf-file.ts'
import { annotate, z } from '../../schema/schema.ts'
import type { EngineDescriptor, EngineSettings } from '../engine-descriptor.ts'
import type { ChildExit } from '../../../runtime/supervised-child.ts'
import {
  describeExit,
  hintForExit,
  type LlamaProcess,
  toError,
  UpdateRelay,
  startLlamaProcess,
} from './llama-process.ts'
import {
  sharedChecks,
  expectOptions,
  integerAtLeast,
  nullable,
  oneOf,
  optional,
  type OptionChecks,
  positiveSeconds,
} from '../engine-options.ts'
import { SilenceWatch, type WatchedProcess } from '../../../runtime/silence-watch.ts'
import type { LoadProgress, LoadRequest, MessageFromLlama, TokenQuery } from './protocol.ts'

/** The model to load, and the resources that it may use. */
export interface LlamaEngineOptions extends Partial<Omit<LlamaEngineConfig, 'kind' | 'cacheDir'>> {
  /** A GGUF file, or a name on the hub such as `user/model:Q4_K_M`. */
  readonly modelName: string
  /** The token for the hub. It is used only for downloads. */
  readonly hubToken: string | null
  /** The folder of models that are downloaded from the hub. */
  readonly cacheDir: string
  /**
   * The maximum number of tokens of prompt and answer together, at most the model's context length.
   * Default `null`: that length, up to 4096.
   */
  readonly contextLength?: number | null
  /** What the model is loaded for. Default `null`: what the GGUF file says. */
  readonly purpose?: 'chat' | 'embedding' | null
  /** The GGUF file of a LoRA adapter that is applied to the model. Default `null`: none. */
  readonly adapterPath?: string | null
  /** @deprecated Has no effect: the native context of node-llama-cpp is always used. */
  readonly usesNativeContext?: boolean
  readonly clock: Clock
  readonly log: Log
  /** Called with a line of text while a model is downloaded or loaded. */
  readonly onProgress?: (text: string) => void
}

/** Creates an engine. It does nothing until `start` is called. */
export function createLlamaEngine(options: LlamaEngineOptions): InferenceEngine {
  expectOptions('createLlamaEngine', options, checks)
  return new LlamaEngine(options)
}

const checks: OptionChecks<LlamaEngineOptions> = {
  modelName: sharedChecks.modelName,
  hubToken: nullable(expectSecret),
  cacheDir: expectString,
  threads: optional(nullable(integerAtLeast(1))),
  gpu: optional(oneOf('auto', false)),
  flashAttention: optional(oneOf('auto', true, false)),
  sequences: optional(integerAtLeast(1)),
  batchSize: optional(nullable(integerAtLeast(1))),
  contextLength: optional(nullable(integerAtLeast(1))),
  purpose: optional(oneOf('chat', 'embedding', null)),
  adapterPath: optional(nullable(expectString)),
  hungSeconds: optional(positiveSeconds),
  usesNativeContext: optional(expectBoolean),
  clock: sharedChecks.clock,
  log: sharedChecks.log,
  onProgress: sharedChecks.onProgress,
}

/** The resolved settings of the llama.cpp engine. */
export interface LlamaEngineConfig extends EngineSettings {
  readonly kind: 'llama'
  /** The number of threads. Default `null`: the fastest by measurement, up to the free cores. */
  readonly threads: number | null
  /** Whether a GPU may be used. Default `auto`. */
  readonly gpu: 'auto' | false
  /**
   * Default `auto`. On a CPU: on or off, whichever is faster by measurement, or one context of each
   * kind. On a GPU: llama.cpp chooses.
   */
  readonly flashAttention: 'auto' | boolean
  /** The number of answers that are generated concurrently, up to 256. Default 16. */
  readonly sequences: number
  /**
   * The prompt tokens that one step evaluates. Default `null`: the fastest number by measurement.
   */
  readonly batchSize: number | null
  /** Seconds without a heartbeat after which a busy process is replaced. Default 60. */
  readonly hungSeconds: number
  /** The folder of downloaded models; `null` for the user's cache folder. */
  readonly cacheDir: string | null
}

export const llamaEngine: EngineDescriptor<LlamaEngineConfig> = {
  kind: 'llama',
  model: 'download',
  nodes: 'this',
  hasServer: false,
  section(env) {
    return section({
      kind: z.literal('llama').default('llama').describe('llama.cpp in a process of its own.'),
      threads: orNull(integer(1, 1024)).describe('CPU threads. Default: what measures fastest.'),
      gpu: annotate(z.literal(['auto', false]), { expected: 'one of auto, false' })
        .default('auto')
        .describe('Whether a GPU is used if there is one.'),
      flash_attention: annotate(z.literal(['auto', true, false]), {
        expected: 'one of auto, true, false',
      })
        .default('auto')
        .describe(
          'Mostly faster for many short answers, slower for long chats. Default: what measures ' +
            'faster, or both in two contexts.',
        ),
      sequences: integer(1, 256).default(16).describe('Requests at a time.'),
      batch_size: orNull(integer(1, 65_536)).describe(
        'Tokens of prompts that one step reads. Default: what measures fastest, up to 512.',
      ),
      hung_seconds: numberAbove(0, 86_400)
        .default(60)
        .describe('Silence after which the process is replaced.'),
      cache_dir: orNull(createTextSchema(env)()).describe('Folder of downloaded models.'),
    }).describe('The embedded engine; needs the package node-llama-cpp.')
  },
  slots: ({ sequences }, maxBatchSize) => Math.min(sequences, maxBatchSize),
  resolvePaths: (settings, resolve) =>
    settings.cacheDir === null ? settings : { ...settings, cacheDir: resolve(settings.cacheDir) },
  findPossibleFields: ({ purpose }) => [
    ...(purpose === 'chat' ? [] : embeddingFields),
    ...(purpose === 'embedding'
      ? []
      : [...llamaFields, ...reasoningFields, ...nameFields, ...effortFields]),
  ],
  async checkModel({ modelPath, adapterPath }) {
    // A local file has an absolute path. Any other name belongs to a model on the hub.
    for (const path of [isAbsolute(modelPath) ? modelPath : null, adapterPath]) {
      const problem = path === null ? null : await findModelProblem(path)
      if (problem !== null) throw inferenceError('engine_error', problem, { hint: modelFileHint })
    }
  },
  create: (settings, { config, clock, log, onProgress }) =>
    createLlamaEngine({
      ...settings,
      modelName: config.modelPath,
      contextLength: config.llm.maxModelLen,
      purpose: config.purpose,
      adapterPath: config.adapterPath,
      cacheDir: settings.cacheDir ?? defaultCacheDir(),
      hubToken: config.hubToken?.reveal() ?? null,
      clock,
      log,
      onProgress,
    }),
}

const defaultCacheDir = (): string =>
  join(process.env['XDG_CACHE_HOME'] ?? join(homedir(), '.cache'), 'tutti', 'models')

/** Fields that the engine supports in addition to those of `Sampling` and `GenerationInput`. */
const llamaFields: readonly string[] = (
  'prompt.tokens echo.logprobs parallel_tool_calls guided_json guided_regex guided_choice ' +
  'guided_grammar structured_outputs grammar json_schema chat_template_kwargs ' +
  'continue_final_message add_generation_prompt'
).split(' ')
const embeddingFields: readonly string[] = ['prompt.tokens', 'embeddings']
const effortFields: readonly string[] = ['reasoning_effort']
const nameFields: readonly string[] = ['messages.name']
const reasoningFields: readonly string[] = ['messages.reasoning_content', 'messages.reasoning']

class LlamaEngine implements InferenceEngine {
  readonly capacity: EngineCapacity
  readonly #options: LlamaEngineOptions
  readonly #loadRequest: LoadRequest
  readonly #relays = new Map<string, UpdateRelay>()
  readonly #queries = new Map<number, PromiseWithResolvers<PromptTokens>>()
  readonly #started = Promise.withResolvers<ModelFacts>()
  readonly #lost = Promise.withResolvers<string>()
  readonly #watchedProcess: WatchedProcess = { silentMs: 0 }
  readonly #silenceWatch: SilenceWatch<WatchedProcess>
  readonly #hungTimeoutMs: number
  #child: LlamaProcess | null = null
  #isLoaded = false
  #failure: InferenceError | null = null
  #lastQueryId = 0

  constructor(options: LlamaEngineOptions) {
    this.#options = options
    this.#loadRequest = toLoadRequest(options)
    this.capacity = { admits: 'step', slots: this.#loadRequest.sequences }
    if (options.hubToken !== null) registerSecret(options.hubToken, 'hubToken')
    this.#started.promise.catch(() => {})
    const { clock, hungSeconds = 60 } = options
    this.#hungTimeoutMs = hungSeconds * 1000
    this.#silenceWatch = new SilenceWatch({
      clock,
      intervalMs: Math.min(1000, this.#hungTimeoutMs / 4),
      maxSilenceMs: () =>
        this.#isLoaded ? this.#hungTimeoutMs : Math.max(minLoadTimeoutMs, this.#hungTimeoutMs),
      expected: () => (this.#isBusy() ? [this.#watchedProcess] : []),
      onHung: () => this.#onHung(this.#watchedProcess.silentMs),
    })
  }

  start(): Promise<ModelFacts> {
    if (this.#failure === null && this.#child === null) {
      this.#child = startLlamaProcess({
        clock: this.#options.clock,
        onMessages: (messages) => {
          for (const message of messages) this.#receive(message)
        },
        onExit: (exit) => this.#onExit(exit),
      })
      this.#child.send({ kind: 'load', request: this.#loadRequest })
      this.#recordActivity()
    }
    return this.#started.promise
  }

  async generate(
    requests: readonly GenerationRequest[],
    listener: GenerationListener,
  ): Promise<void> {
    if (this.close.isCalled) {
      const error = inferenceError('closing', 'the engine is closed')
      for (const { id } of requests) listener.end(id, { kind: 'failed', error })
      return
    }
    const process = this.#expectReady()
    const alive = requests.filter(({ id, signal }) => {
      if (signal.aborted) listener.end(id, { kind: 'canceled' })
      return !signal.aborted
    })
    const ends = alive.map((request) => this.#addRecipient(request, listener, process))
    const plain = alive.map(({ id, input, sampling }) => ({ id, input, sampling }))
    process.send({ kind: 'generate', requests: plain })
    this.#recordActivity()
    await Promise.all(ends)
  }

  /** Resolves when the request has ended. Rejects when the engine is lost. */
  #addRecipient(
    request: GenerationRequest,
    listener: GenerationListener,
    process: LlamaProcess,
  ): Promise<void> {
    return new Promise((resolve, reject) => {
      const recipient = new UpdateRelay({
        request,
        listener,
        send: (message) => {
          process.send(message)
          // A slow reader may have caused the silence, so its measurement starts again.
          if (message.kind === 'resume') this.#recordActivity()
        },
        onEnd: () => {
          this.#relays.delete(request.id)
          resolve()
        },
        onLoss: reject,
      })
      this.#relays.set(request.id, recipient)
    })
  }

  async tokenize(text: string): Promise<readonly number[]> {
    return (await this.#query({ kind: 'tokenize', text })).tokens
  }

  async detokenize(tokens: readonly number[]): Promise<string> {
    return (await this.#query({ kind: 'detokenize', tokens })).text
  }

  readPrompt(input: GenerationInput): Promise<PromptTokens> {
    return this.#query({ kind: 'readPrompt', input })
  }

  async #query(query: TokenQuery): Promise<PromptTokens> {
    const process = this.#expectReady()
    const queryId = ++this.#lastQueryId
    const result = Promise.withResolvers<PromptTokens>()
    this.#queries.set(queryId, result)
    process.send({ kind: 'query', queryId, query })
    this.#recordActivity()
    return result.promise
  }

  lost(): Promise<string> {
    return this.#lost.promise
  }

  problem(): string | null {
    const { silentMs } = this.#watchedProcess
    const isSilent = silentMs >= Math.min(maxQuietMs, this.#hungTimeoutMs / 2)
    const isProblem = isSilent && this.#isLoaded && this.#isBusy()
    return isProblem ? `has given no sign of life for ${Math.floor(silentMs / 1000)} s` : null
  }

  /** Ends each running request individually, because only a lost process may fail a whole batch. */
  readonly close = once(async (): Promise<void> => {
    const error = inferenceError('closing', 'the engine is closed')
    for (const recipient of this.#relays.values()) recipient.end({ kind: 'failed', error })
    this.#fail(error)
    await this.#child?.close()
  })

  #expectReady(): LlamaProcess {
    if (this.#failure !== null) throw this.#failure
    if (this.#child !== null && this.#isLoaded) return this.#child
    throw inferenceError('not_ready', 'the engine has not started')
  }

  #receive(message: MessageFromLlama): void {
    this.#recordActivity()
    if (message.kind === 'alive') return
    if (message.kind === 'update') {
      this.#relays.get(message.update.id)?.receive(message.update)
    } else if (message.kind === 'queryResult') {
      const { queryId, result } = message
      const query = this.#queries.get(queryId)
      this.#queries.delete(queryId)
      if ('code' in result) query?.reject(toError(result))
      else query?.resolve(result)
    } else if (message.kind === 'progress') {
      this.#reportProgress(message.progress)
    } else if (message.kind === 'loaded') {
      this.#isLoaded = true
      this.#checkContext(message.facts)
      this.#checkTemplate(message.templateProblem)
      const { threadWarning, readsReasoning, readsNames, readsEffort } = message
      if (threadWarning !== null) this.#options.log.warn('ThreadsStall', threadWarning)
      this.#reportTuning(message.facts)
      const fields = [
        ...(message.facts.purpose === 'embedding' ? embeddingFields : llamaFields),
        ...(readsReasoning ? reasoningFields : []),
        ...(readsNames ? nameFields : []),
        ...(readsEffort ? effortFields : []),
      ]
      this.#started.resolve({ ...message.facts, fields })
    } else {
      const { code, message: text, hint } = message.failure
      this.#fail(inferenceError(code, maskSecrets(text), definedFields({ hint })))
      void this.#child?.close()
    }
  }

  #reportProgress({ stage, done }: LoadProgress): void {
    const activity = stage === 'download' ? 'downloading' : 'loading'
    const percent = `${Math.floor(done * 100)} %`
    this.#options.onProgress?.(`${activity} ${basename(this.#loadRequest.modelName)}: ${percent}`)
  }

  #reportTuning({ tuning }: ModelFacts): void {
    if (tuning === undefined) return
    this.#options.onProgress?.(`tuned ${basename(this.#loadRequest.modelName)}: ${tuning}`)
  }

  #checkContext({ contextLength }: ModelFacts): void {
    const wanted = this.#loadRequest.contextLength
    if (wanted === null || wanted <= contextLength) return
    const text = `the context of the model has ${contextLength} tokens; max_model_len is ${wanted}`
    this.#options.log.warn('ContextClipped', text)
  }

  #checkTemplate(problem: string | null): void {
    if (problem === null) return
    const text = `the chat template of the model cannot be rendered: ${problem}`
    const hint = 'chats will fail; text completions work'
    this.#options.log.warn('ChatTemplateUnusable', `${text} (${hint})`)
  }

  #recordActivity(): void {
    if (this.#failure === null) this.#silenceWatch.recordActivity(this.#watchedProcess)
  }

  /**
   * Whether loading, a query or a request needs the process now. Requests that are paused for slow
   * readers do not.
   */
  #isBusy(): boolean {
    if (!this.#isLoaded || this.#queries.size > 0) return true
    for (const { isPaused } of this.#relays.values()) if (!isPaused) return true
    return false
  }

  #onHung(silentMs: number): void {
    const seconds = Math.round(silentMs / 1000)
    const reason = `the model's process gave no sign of life for ${seconds} s`
    if (this.#failure === null) this.#lost.resolve(reason)
    this.#fail(inferenceError('engine_lost', reason))
    this.#child?.kill()
  }

  #onExit(exit: ChildExit): void {
    const reason = describeExit(exit)
    if (this.#failure === null) this.#lost.resolve(reason)
    const hint = definedFields({ hint: hintForExit(exit) })
    this.#fail(inferenceError('engine_lost', reason, hint))
  }

  #fail(error: InferenceError): void {
    if (this.#failure !== null) return
    this.#failure = error
    this.#silenceWatch.stop()
    this.#started.reject(error)
    for (const recipient of this.#relays.values()) recipient.failBatch(error)
    for (const { reject } of this.#queries.values()) reject(error)
    this.#relays.clear()
    this.#queries.clear()
  }
}

const maxQuietMs = 10_000

/** The minimum time-out while loading, because some stages of loading block heartbeats. */
const minLoadTimeoutMs = 60_000

/** The maximum number of sequences per context in llama.cpp. */
const maxSequences = 256

const toLoadRequest = (options: LlamaEngineOptions): LoadRequest => ({
  modelName: options.modelName,
  hubToken: options.hubToken,
  cacheDir: options.cacheDir,
  threads: options.threads ?? null,
  gpu: options.gpu ?? 'auto',
  flashAttention: options.flashAttention ?? 'auto',
  sequences: Math.min(options.sequences ?? 16, maxSequences),
  batchSize: options.batchSize ?? null,
  contextLength: options.contextLength ?? null,
  purpose: options.purpose ?? null,
  adapterPath: options.adapterPath ?? null,
})
