/**
 * The program of a model's process: loads the model, serves the parent process and exits with it.
 */

import { systemClock } from '../../../foundation/clock.ts'
import { messageOf } from '../../../foundation/errors.ts'
import { definedFields } from '../../../foundation/options.ts'
import { connectToParent } from '../../../runtime/child-program.ts'
import { EmbeddingLoop, type EmbeddingRuntime } from './embedding-loop.ts'
import { LoadError, loadForPurpose } from './llama-cpp.ts'
import { startLoadHeartbeat } from './load-heartbeat.ts'
import type { PromptTokens } from '../../generation/inference-engine.ts'
import { detokenize, readPrompt } from './prepared-prompt.ts'
import type {
  Failure,
  LoadRequest,
  MessageFromLlama,
  MessageToLlama,
  TokenQuery,
} from './protocol.ts'
import type { LlamaRuntime, Vocabulary } from './runtime.ts'
import { StepLoop, type StepLoopOptions } from './step-loop.ts'
import { choosesReasoning } from './templates/template-messages.ts'
import { sliceText } from './token-text.ts'

let loop: StepLoop | EmbeddingLoop | null = null
let model: LlamaRuntime | EmbeddingRuntime | null = null

const parent = connectToParent<MessageToLlama, MessageFromLlama>({
  onMessage: receive,
  // A normal exit would wait for the library's computations in other threads.
  onEnd: () => process.kill(process.pid, 'SIGKILL'),
  // Collects updates, because small models step faster than messages are sent.
  minIntervalMs: 4,
  // Makes the model wait for a parent that is too busy to read.
  maxInFlight: 16,
})

function receive(message: MessageToLlama): void {
  if (message.kind === 'load') void load(message.request)
  else if (message.kind === 'generate') loop?.add(message.requests)
  else if (message.kind === 'cancel') loop?.cancel(message.id)
  else if (message.kind === 'query') void runQuery(message.queryId, message.query)
  else if (loop instanceof StepLoop) loop.setPaused(message.id, message.kind === 'hold')
}

async function load(request: LoadRequest): Promise<void> {
  const heartbeat = startLoadHeartbeat(systemClock, (message) => parent.send(message))
  try {
    model = await loadForPurpose(request, (progress) => heartbeat.report(progress))
    loop = createLoop(model)
    const { contextLength } = model
    const {
      template,
      threadWarning,
      tuningReport: tuning,
    } = 'template' in model ? model : { template: null, threadWarning: null, tuningReport: null }
    const facts = {
      name: request.modelName,
      contextLength,
      hasChatTemplate: template !== null,
      purpose: 'template' in model ? ('chat' as const) : ('embedding' as const),
      ...definedFields({ chatTemplate: template?.source, tuning: tuning ?? undefined }),
    }
    const templateProblem = template?.problem ?? null
    const readsReasoning = template?.names?.members.has('reasoning_content') ?? false
    const readsNames = template?.readsNames ?? false
    const readsEffort = choosesReasoning(template)
    const problems = { templateProblem, threadWarning }
    parent.send({ kind: 'loaded', facts, ...problems, readsReasoning, readsNames, readsEffort })
  } catch (error) {
    const hint = error instanceof LoadError ? { hint: error.hint } : {}
    const failure = { code: 'engine_error' as const, message: messageOf(error), ...hint }
    parent.send({ kind: 'unloadable', failure })
  } finally {
    heartbeat.stop()
  }
}

/** The interval of signs of life. A longer step delays the next sign. */
const aliveIntervalMs = 500

function createLoop(runtime: LlamaRuntime | EmbeddingRuntime): StepLoop | EmbeddingLoop {
  let sentMs = systemClock.monotonicMs()
  const reports: Pick<StepLoopOptions, 'onUpdate' | 'onStep'> = {
    onUpdate(update) {
      sentMs = systemClock.monotonicMs()
      parent.enqueue({ kind: 'update', update })
    },
    onStep(isLast) {
      const now = systemClock.monotonicMs()
      // Sends a sign of life, because steps that only evaluate prompts send no updates.
      if (now - sentMs >= aliveIntervalMs) {
        sentMs = now
        parent.enqueue({ kind: 'alive' })
      }
      return parent.flush(isLast)
    },
  }
  return 'slots' in runtime
    ? new StepLoop({ runtime, clock: systemClock, ...reports })
    : new EmbeddingLoop({ runtime, ...reports })
}

async function runQuery(queryId: number, query: TokenQuery): Promise<void> {
  if (model !== null) {
    parent.send({ kind: 'queryResult', queryId, result: await findResult(model, query) })
  }
}

async function findResult(
  runtime: LlamaRuntime | EmbeddingRuntime,
  query: TokenQuery,
): Promise<PromptTokens | Failure> {
  if (query.kind === 'tokenize') return tokenize(runtime.vocabulary, query.text)
  if (query.kind === 'detokenize') return detokenize(query.tokens, runtime.vocabulary)
  if ('template' in runtime) return readPrompt(query.input, runtime)
  return { code: 'unsupported', message: 'an embedding model reads no conversations' }
}

/** Tokenizes a long text in slices, so that the step loop continues between them. */
async function tokenize(vocabulary: Vocabulary, text: string): Promise<PromptTokens> {
  const tokens: number[] = []
  for (const slice of sliceText(text, vocabulary.slicing)) {
    for (const token of vocabulary.tokenize(slice, wholeText)) tokens.push(token)
    await new Promise<void>((resolve) => systemClock.nextTurn(resolve))
  }
  return { text, tokens }
}

const wholeText = { special: false, inner: false }
