/** The program of a model's process: loads the model, serves the parent, and exits with it. */

import { systemClock } from '../../../foundation/clock.ts'
import { messageOf } from '../../../foundation/errors.ts'
import { connectToParent } from '../../../runtime/child-program.ts'
import { LoadError, loadRuntime } from './llama-cpp.ts'
import { LoadHeartbeat } from './load-heartbeat.ts'
import type { FromLlama, LoadOrder, ToLlama } from './protocol.ts'
import type { LlamaRuntime } from './runtime.ts'
import { StepLoop } from './step-loop.ts'
import { slicesIn } from './token-text.ts'

let loop: StepLoop | null = null
let model: LlamaRuntime | null = null

const parent = connectToParent<ToLlama, FromLlama>({
  onMessage: receive,
  // SIGKILL, because a normal exit would wait for the library's computations in other threads.
  onEnd: () => process.kill(process.pid, 'SIGKILL'),
  // Limits the rate of messages, because small models step faster than messages are sent.
  minIntervalMs: 4,
  // With more batches in flight, the parent is too busy to read, so the model waits.
  maxInFlight: 16,
})

function receive(message: ToLlama): void {
  if (message.kind === 'load') void load(message.order)
  else if (message.kind === 'generate') loop?.add(message.requests)
  else if (message.kind === 'cancel') loop?.cancel(message.id)
  else if (message.kind === 'tokenize') void tokenize(message.ask, message.text)
  else loop?.setHeld(message.id, message.kind === 'hold')
}

async function load(order: LoadOrder): Promise<void> {
  const heartbeat = new LoadHeartbeat(systemClock, (message) => parent.send(message))
  try {
    model = await loadRuntime(order, (progress) => heartbeat.report(progress))
    loop = createLoop(model)
    const { contextLength, template, threadProblem } = model
    const facts = { name: order.modelName, contextLength, hasChatTemplate: template !== null }
    const templateProblem = template?.problem ?? null
    const readsThoughts = template?.names?.members.has('reasoning_content') ?? false
    const readsNames = template?.readsNames ?? false
    const problems = { templateProblem, threadProblem }
    parent.send({ kind: 'loaded', facts, ...problems, readsThoughts, readsNames })
  } catch (error) {
    const hint = error instanceof LoadError ? { hint: error.hint } : {}
    const failure = { code: 'engine_error' as const, message: messageOf(error), ...hint }
    parent.send({ kind: 'unloadable', failure })
  } finally {
    heartbeat.stop()
  }
}

/** The maximum silence of a working process, in addition to the time of a step. */
const aliveMs = 500

function createLoop(runtime: LlamaRuntime): StepLoop {
  let sentMs = systemClock.monotonicMs()
  return new StepLoop({
    runtime,
    clock: systemClock,
    report(update) {
      sentMs = systemClock.monotonicMs()
      parent.hold({ kind: 'update', update })
    },
    stepped(isLast) {
      const now = systemClock.monotonicMs()
      // Steps that only evaluate prompts send no updates.
      if (now - sentMs >= aliveMs) {
        sentMs = now
        parent.hold({ kind: 'alive' })
      }
      return parent.flush(isLast)
    },
  })
}

/** Tokenizes a long text in slices, so that the step loop continues between them. */
async function tokenize(ask: number, text: string): Promise<void> {
  const tokens: number[] = []
  const vocabulary = model?.vocabulary
  for (const slice of slicesIn(text, vocabulary?.slices ?? null)) {
    for (const token of vocabulary?.tokenize(slice, whole) ?? []) tokens.push(token)
    await new Promise<void>((resolve) => systemClock.nextTurn(resolve))
  }
  parent.send({ kind: 'tokens', ask, tokens })
}

const whole = { special: false, inner: false }
