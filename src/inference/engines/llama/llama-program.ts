/** The program of a model's process: loads the model, answers its parent, dies with it. */

import { systemClock } from '../../../foundation/clock.ts'
import { messageOf } from '../../../foundation/errors.ts'
import { loadRuntime } from './llama-cpp.ts'
import { LoadError } from './load-error.ts'
import { NewsOutbox } from './news-outbox.ts'
import type { FromLlama, LoadOrder, LoadProgress, ToLlama } from './protocol.ts'
import type { LlamaRuntime } from './runtime.ts'
import { StepLoop } from './step-loop.ts'

let loop: StepLoop | null = null
let model: LlamaRuntime | null = null

process.on('message', (message) => receive(message as ToLlama))
// At once: a normal exit would wait for what the library computes in other threads.
process.on('disconnect', () => process.kill(process.pid, 'SIGKILL'))

function receive(message: ToLlama): void {
  if (message.kind === 'load') void load(message.order)
  else if (message.kind === 'generate') loop?.add(message.requests)
  else if (message.kind === 'cancel') loop?.cancel(message.id)
  else if (message.kind === 'tokenize') tokenize(message.ask, message.text)
  else loop?.setHeld(message.id, message.kind === 'hold')
}

async function load(order: LoadOrder): Promise<void> {
  try {
    model = await loadRuntime(order, createProgress())
    loop = createLoop(model)
    const { contextLength, template } = model
    const facts = { name: order.modelName, contextLength, hasChatTemplate: template !== null }
    tell({ kind: 'loaded', facts })
  } catch (error) {
    const hint = error instanceof LoadError ? { hint: error.hint } : {}
    const failure = { code: 'engine_error' as const, message: messageOf(error), ...hint }
    tell({ kind: 'unloadable', failure })
  }
}

/** The library tells every change; ten messages are enough. */
function createProgress(): (progress: LoadProgress) => void {
  let last = ''
  return (progress) => {
    const now = `${progress.stage} ${Math.floor(progress.done * 10)}`
    if (now !== last) tell({ kind: 'progress', progress })
    last = now
  }
}

function createLoop(runtime: LlamaRuntime): StepLoop {
  const outbox = new NewsOutbox({
    clock: systemClock,
    send: (news, hasLeft) => tell({ kind: 'news', news }, hasLeft),
  })
  return new StepLoop({
    runtime,
    report: (news) => outbox.put(news),
    stepped: (isLast) => outbox.flush(isLast),
  })
}

function tokenize(ask: number, text: string): void {
  const tokens = model?.vocabulary.tokenize(text, { special: false, inner: false }) ?? []
  tell({ kind: 'tokens', ask, tokens })
}

/** A parent that is gone ends this process by itself. */
function tell(message: FromLlama, hasLeft: () => void = () => {}): void {
  process.send?.(message, undefined, undefined, hasLeft)
}
