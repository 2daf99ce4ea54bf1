/** The program of a model's process: loads the model, serves the parent, and exits with it. */

import { systemClock } from '../../../foundation/clock.ts'
import { messageOf } from '../../../foundation/errors.ts'
import { connectToParent } from '../../../runtime/child-program.ts'
import { LoadError, loadRuntime } from './llama-cpp.ts'
import { startLoadHeartbeat } from './load-heartbeat.ts'
import type { MessageFromLlama, LoadRequest, MessageToLlama } from './protocol.ts'
import type { LlamaRuntime } from './runtime.ts'
import { StepLoop } from './step-loop.ts'
import { sliceText } from './token-text.ts'

let loop: StepLoop | null = null
let model: LlamaRuntime | null = null

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
  else if (message.kind === 'tokenize') void tokenize(message.tokenizeId, message.text)
  else loop?.setPaused(message.id, message.kind === 'hold')
}

async function load(request: LoadRequest): Promise<void> {
  const heartbeat = startLoadHeartbeat(systemClock, (message) => parent.send(message))
  try {
    model = await loadRuntime(request, (progress) => heartbeat.report(progress))
    loop = createLoop(model)
    const { contextLength, template, threadWarning } = model
    const facts = { name: request.modelName, contextLength, hasChatTemplate: template !== null }
    const templateProblem = template?.problem ?? null
    const readsReasoning = template?.names?.members.has('reasoning_content') ?? false
    const readsNames = template?.readsNames ?? false
    const problems = { templateProblem, threadWarning }
    parent.send({ kind: 'loaded', facts, ...problems, readsReasoning, readsNames })
  } catch (error) {
    const hint = error instanceof LoadError ? { hint: error.hint } : {}
    const failure = { code: 'engine_error' as const, message: messageOf(error), ...hint }
    parent.send({ kind: 'unloadable', failure })
  } finally {
    heartbeat.stop()
  }
}

/** The maximum time without a sign of life, apart from the duration of one step. */
const aliveIntervalMs = 500

function createLoop(runtime: LlamaRuntime): StepLoop {
  let sentMs = systemClock.monotonicMs()
  return new StepLoop({
    runtime,
    clock: systemClock,
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
  })
}

/** Tokenizes a long text in slices, so that the step loop continues between them. */
async function tokenize(tokenizeId: number, text: string): Promise<void> {
  const tokens: number[] = []
  const vocabulary = model?.vocabulary
  for (const slice of sliceText(text, vocabulary?.slicing ?? null)) {
    for (const token of vocabulary?.tokenize(slice, wholeText) ?? []) tokens.push(token)
    await new Promise<void>((resolve) => systemClock.nextTurn(resolve))
  }
  parent.send({ kind: 'tokens', tokenizeId, tokens })
}

const wholeText = { special: false, inner: false }
