/** Runs GGUF models with llama.cpp in a child process, because llama.cpp may abort its process. */

import { homedir } from 'node:os'
import { basename, join } from 'node:path'
import type { Clock } from '../../../foundation/clock.ts'
import type { InferenceError } from '../../../foundation/errors.ts'
import type { Log } from '../../../foundation/log.ts'
import { expectBoolean, expectString } from '../../../foundation/options.ts'
import { maskSecrets, registerSecret } from '../../../foundation/secrets.ts'
import { once } from '../../../foundation/service.ts'
import type {
  EngineCapacity,
  GenerationListener,
  GenerationRequest,
  InferenceEngine,
  ModelFacts,
} from '../../generation/inference-engine.ts'
import { inferenceError } from '../../generation/inference-errors.ts'
import {
  createTextSchema,
  integer,
  numberAbove,
  orNull,
  section,
} from '../../schema/config-fields.ts'
import { annotate, z } from '../../schema/schema.ts'
import type { EngineDescriptor, EngineSettings } from '../engine-descriptor.ts'
import type { ChildExit } from '../../../runtime/supervised-child.ts'
import {
  describeExit,
  hintForExit,
  type LlamaProcess,
  Recipient,
  startLlamaProcess,
} from './llama-process.ts'
import {
  sharedChecks,
  expectOptions,
  integerFrom,
  nullable,
  oneOf,
  optional,
  type OptionChecks,
  secondsAbove0,
  secretText,
} from '../engine-options.ts'
import { SilenceWatch, type Watched } from '../../../runtime/silence-watch.ts'
import type { FromLlama, LoadOrder, LoadProgress } from './protocol.ts'

/** Which model to load, and how much of the machine it may use. */
export interface LlamaEngineOptions {
  /** A GGUF file, or a name on the hub such as `user/model:Q4_K_M`. */
  readonly modelName: string
  /** Used only for downloads. */
  readonly hubToken: string | null
  /** The folder of models that are downloaded from the hub. */
  readonly cacheDir: string
  /** Default `null`: the fastest number of threads up to the free cores, measured at the start. */
  readonly threads?: number | null
  /** Default `auto`. */
  readonly gpu?: 'auto' | false
  /** Default `auto`: off on a CPU, where it slows down prompts that follow many tokens. */
  readonly flashAttention?: 'auto' | boolean
  /** The number of answers that are generated concurrently, up to 256. Default 16. */
  readonly sequences?: number
  /** The number of tokens that are evaluated together. Default 512. */
  readonly batchSize?: number
  /**
   * Default `null`: the context length that the model was trained with, up to 4096. Larger values
   * than the model's are reduced.
   */
  readonly contextLength?: number | null
  /**
   * The number of seconds that a busy process may be silent before it is replaced. After half of
   * this time, but no more than 10 s, `problem` reports the silence. Default 60. While the model is
   * loading, the minimum is 60.
   */
  readonly hungSeconds?: number
  /** @deprecated Has no effect: the native context of node-llama-cpp is always used. */
  readonly usesNativeContext?: boolean
  readonly clock: Clock
  readonly log: Log
  /** Called with a line of text while a model is downloaded or loaded. */
  readonly onProgress?: (text: string) => void
}

/** Creates an engine; nothing runs before `start`. */
export function createLlamaEngine(options: LlamaEngineOptions): InferenceEngine {
  expectOptions('createLlamaEngine', options, checks)
  return new LlamaEngine(options)
}

const checks: OptionChecks<LlamaEngineOptions> = {
  modelName: sharedChecks.modelName,
  hubToken: nullable(secretText),
  cacheDir: expectString,
  threads: optional(nullable(integerFrom(1))),
  gpu: optional(oneOf('auto', false)),
  flashAttention: optional(oneOf('auto', true, false)),
  sequences: optional(integerFrom(1)),
  batchSize: optional(integerFrom(1)),
  contextLength: optional(nullable(integerFrom(1))),
  hungSeconds: optional(secondsAbove0),
  usesNativeContext: optional(expectBoolean),
  clock: sharedChecks.clock,
  log: sharedChecks.log,
  onProgress: sharedChecks.onProgress,
}

/** The resolved settings of the llama.cpp engine. */
export interface LlamaEngineConfig extends EngineSettings {
  readonly kind: 'llama'
  /** `null`: chosen by the engine. */
  readonly threads: number | null
  readonly gpu: 'auto' | false
  /** `auto`: chosen by the engine. */
  readonly flashAttention: 'auto' | boolean
  /** The maximum number of concurrent requests. Default 16. */
  readonly sequences: number
  /** The number of prompt tokens that are evaluated in one step. Default 512. */
  readonly batchSize: number
  /** Seconds of silence from a working process after which it is replaced. Default 60. */
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
      threads: orNull(integer(1, 1024)).describe('CPU threads. Default: the free cores.'),
      gpu: annotate(z.literal(['auto', false]), { expected: 'one of auto, false' })
        .default('auto')
        .describe('Whether a GPU is used if there is one.'),
      flash_attention: annotate(z.literal(['auto', true, false]), {
        expected: 'one of auto, true, false',
      })
        .default('auto')
        .describe('Faster with many clients, slower with long chats. Default on a CPU: false.'),
      sequences: integer(1, 256).default(16).describe('Requests at a time.'),
      batch_size: integer(1, 65_536)
        .default(512)
        .describe('Tokens of a prompt that one step reads.'),
      hung_seconds: numberAbove(0, 86_400)
        .default(60)
        .describe('Silence after which the process is replaced.'),
      cache_dir: orNull(createTextSchema(env)()).describe('Folder of downloaded models.'),
    }).describe('The embedded engine; needs the package node-llama-cpp.')
  },
  slots: ({ sequences }, maxBatchSize) => Math.min(sequences, maxBatchSize),
  resolvePaths: (settings, resolve) =>
    settings.cacheDir === null ? settings : { ...settings, cacheDir: resolve(settings.cacheDir) },
  create: (settings, { config, clock, log, onProgress }) =>
    createLlamaEngine({
      ...settings,
      modelName: config.modelPath,
      contextLength: config.llm.maxModelLen,
      cacheDir: settings.cacheDir ?? defaultCacheDir(),
      hubToken: config.hubToken?.reveal() ?? null,
      clock,
      log,
      onProgress,
    }),
}

/** The default folder of downloaded models, in the user's cache folder. */
const defaultCacheDir = (): string =>
  join(process.env['XDG_CACHE_HOME'] ?? join(homedir(), '.cache'), 'tutti', 'models')

/** The fields that the engine supports in addition to those of `Sampling` and `GenerationInput`. */
const llamaFields: readonly string[] = [
  'prompt.tokens',
  'echo.logprobs',
  'parallel_tool_calls',
  'guided_json',
  'guided_regex',
  'guided_choice',
  'guided_grammar',
  'structured_outputs',
  'grammar',
  'json_schema',
  'chat_template_kwargs',
  'reasoning_effort',
]
const thoughtFields: readonly string[] = ['messages.reasoning_content', 'messages.reasoning']

class LlamaEngine implements InferenceEngine {
  readonly capacity: EngineCapacity
  readonly #options: LlamaEngineOptions
  readonly #order: LoadOrder
  readonly #recipients = new Map<string, Recipient>()
  readonly #asks = new Map<number, PromiseWithResolvers<readonly number[]>>()
  readonly #started = Promise.withResolvers<ModelFacts>()
  readonly #lost = Promise.withResolvers<string>()
  readonly #life: Watched = { silentMs: 0 }
  readonly #silence: SilenceWatch<Watched>
  readonly #hungMs: number
  #process: LlamaProcess | null = null
  #isLoaded = false
  #failure: InferenceError | null = null
  #lastAsk = 0

  constructor(options: LlamaEngineOptions) {
    this.#options = options
    this.#order = toOrder(options)
    this.capacity = { admits: 'step', slots: this.#order.sequences }
    if (options.hubToken !== null) registerSecret(options.hubToken, 'hubToken')
    this.#started.promise.catch(() => {})
    const { clock, hungSeconds = 60 } = options
    this.#hungMs = hungSeconds * 1000
    this.#silence = new SilenceWatch({
      clock,
      intervalMs: Math.min(1000, this.#hungMs / 4),
      hungMs: () => (this.#isLoaded ? this.#hungMs : Math.max(minLoadHungMs, this.#hungMs)),
      expected: () => (this.#isBusy() ? [this.#life] : []),
      onHung: () => this.#onHung(this.#life.silentMs),
    })
  }

  start(): Promise<ModelFacts> {
    if (this.#failure === null && this.#process === null) {
      this.#process = startLlamaProcess({
        clock: this.#options.clock,
        onMessages: (messages) => {
          for (const message of messages) this.#receive(message)
        },
        onExit: (exit) => this.#onExit(exit),
      })
      this.#process.send({ kind: 'load', order: this.#order })
      this.#noteLife()
    }
    return this.#started.promise
  }

  async generate(
    requests: readonly GenerationRequest[],
    listener: GenerationListener,
  ): Promise<void> {
    if (this.close.isCalled) return this.#refuse(requests, listener)
    const process = this.#ready()
    const alive = requests.filter(({ id, signal }) => {
      if (signal.aborted) listener.end(id, { kind: 'canceled' })
      return !signal.aborted
    })
    const ends = alive.map((request) => this.#expect(request, listener, process))
    const plain = alive.map(({ id, input, sampling }) => ({ id, input, sampling }))
    process.send({ kind: 'generate', requests: plain })
    this.#noteLife()
    await Promise.all(ends)
  }

  /** Resolves when the request has ended; rejects when the engine is lost. */
  #expect(
    request: GenerationRequest,
    listener: GenerationListener,
    process: LlamaProcess,
  ): Promise<void> {
    return new Promise((resolve, reject) => {
      const recipient = new Recipient({
        request,
        listener,
        send: (message) => {
          process.send(message)
          // The process may have been silent because the reader was slow, so the silence is
          // measured anew.
          if (message.kind === 'resume') this.#noteLife()
        },
        onEnd: () => {
          this.#recipients.delete(request.id)
          resolve()
        },
        onLoss: reject,
      })
      this.#recipients.set(request.id, recipient)
    })
  }

  async tokenize(text: string): Promise<readonly number[]> {
    const process = this.#ready()
    const ask = ++this.#lastAsk
    const answer = Promise.withResolvers<readonly number[]>()
    this.#asks.set(ask, answer)
    process.send({ kind: 'tokenize', ask, text })
    this.#noteLife()
    return answer.promise
  }

  lost(): Promise<string> {
    return this.#lost.promise
  }

  problem(): string | null {
    const { silentMs } = this.#life
    const isSilent = silentMs >= Math.min(maxSilenceMs, this.#hungMs / 2)
    const isProblem = isSilent && this.#isLoaded && this.#isBusy()
    return isProblem ? `has given no sign of life for ${Math.floor(silentMs / 1000)} s` : null
  }

  /** Ends each running request individually: only a lost process may fail a batch as a whole. */
  readonly close = once(async (): Promise<void> => {
    const error = inferenceError('closing', 'the engine is closed')
    for (const recipient of this.#recipients.values()) recipient.end({ kind: 'failed', error })
    this.#fail(error)
    await this.#process?.close()
  })

  #refuse(requests: readonly GenerationRequest[], listener: GenerationListener): void {
    const error = inferenceError('closing', 'the engine is closed')
    for (const { id } of requests) listener.end(id, { kind: 'failed', error })
  }

  #ready(): LlamaProcess {
    if (this.#failure !== null) throw this.#failure
    if (this.#process !== null && this.#isLoaded) return this.#process
    throw inferenceError('not_ready', 'the engine has not started')
  }

  #receive(message: FromLlama): void {
    this.#noteLife()
    if (message.kind === 'alive') return
    if (message.kind === 'update') {
      this.#recipients.get(message.update.id)?.receive(message.update)
    } else if (message.kind === 'tokens') {
      this.#asks.get(message.ask)?.resolve(message.tokens)
      this.#asks.delete(message.ask)
    } else if (message.kind === 'progress') {
      this.#reportProgress(message.progress)
    } else if (message.kind === 'loaded') {
      this.#isLoaded = true
      this.#checkContext(message.facts)
      this.#checkTemplate(message.templateProblem)
      const { threadProblem, readsThoughts, readsNames } = message
      if (threadProblem !== null) this.#options.log.warn('ThreadsStall', threadProblem)
      const fields = [
        ...llamaFields,
        ...(readsThoughts ? thoughtFields : []),
        ...(readsNames ? ['messages.name'] : []),
      ]
      this.#started.resolve({ ...message.facts, fields })
    } else {
      const { code, message: text, hint } = message.failure
      const details = hint === undefined ? {} : { hint }
      this.#fail(inferenceError(code, maskSecrets(text), details))
      void this.#process?.close()
    }
  }

  #reportProgress({ stage, done }: LoadProgress): void {
    const what = stage === 'download' ? 'downloading' : 'loading'
    const percent = `${Math.floor(done * 100)} %`
    this.#options.onProgress?.(`${what} ${basename(this.#order.modelName)}: ${percent}`)
  }

  #checkContext({ contextLength }: ModelFacts): void {
    const wanted = this.#order.contextLength
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

  /** Called when the process has sent a message or received work. */
  #noteLife(): void {
    if (this.#failure === null) this.#silence.sign(this.#life)
  }

  /** A request that is paused for its slow reader is not waiting for the process. */
  #isBusy(): boolean {
    if (!this.#isLoaded || this.#asks.size > 0) return true
    for (const { isHeld } of this.#recipients.values()) if (!isHeld) return true
    return false
  }

  #onHung(silentMs: number): void {
    const seconds = Math.round(silentMs / 1000)
    const reason = `the model's process gave no sign of life for ${seconds} s`
    if (this.#failure === null) this.#lost.resolve(reason)
    this.#fail(inferenceError('engine_lost', reason))
    this.#process?.kill()
  }

  #onExit(exit: ChildExit): void {
    const reason = describeExit(exit)
    const hint = hintForExit(exit)
    if (this.#failure === null) this.#lost.resolve(reason)
    this.#fail(inferenceError('engine_lost', reason, hint === undefined ? {} : { hint }))
  }

  /** Only the first error is reported. */
  #fail(error: InferenceError): void {
    if (this.#failure !== null) return
    this.#failure = error
    this.#silence.stop()
    this.#started.reject(error)
    for (const recipient of this.#recipients.values()) recipient.lose(error)
    for (const { reject } of this.#asks.values()) reject(error)
    this.#recipients.clear()
    this.#asks.clear()
  }
}

/** `problem` reports any silence longer than this. */
const maxSilenceMs = 10_000

/** The minimum while loading, because some stages of loading block signs of life. */
const minLoadHungMs = 60_000

/** llama.cpp's maximum number of sequences per context. */
const maxSequences = 256

const toOrder = (options: LlamaEngineOptions): LoadOrder => ({
  modelName: options.modelName,
  hubToken: options.hubToken,
  cacheDir: options.cacheDir,
  threads: options.threads ?? null,
  gpu: options.gpu ?? 'auto',
  flashAttention: options.flashAttention ?? 'auto',
  sequences: Math.min(options.sequences ?? 16, maxSequences),
  batchSize: options.batchSize ?? 512,
  contextLength: options.contextLength ?? null,
})
