/** Adds guardrails and a time-out to requests that an engine passes on to its server. */

import type { Clock } from '../../foundation/clock.ts'
import { TimeoutError } from '../../foundation/errors.ts'
import { boundedWait } from '../../foundation/promises.ts'
import type { StepScheduler } from '../../runtime/turn-budget.ts'
import type { Guard } from '../guardrails/guard.ts'
import { guardFields, redactAnswer } from '../guardrails/guarded-input.ts'
import { inferenceError } from './inference-errors.ts'
import type { EngineProxy, ForwardedAnswer } from './pass-through.ts'

interface ProxyParts {
  readonly guard: Guard
  readonly checkScheduler: StepScheduler
  readonly clock: Clock
  readonly engineTimeoutMs: number
}

/** Rules judge every text of bodies and JSON answers. With output rules, streams are refused. */
export const createGuardedProxy = (proxy: EngineProxy, parts: ProxyParts): EngineProxy => ({
  paths: proxy.paths,
  async forward({ path, fields, signal }) {
    const { guard, checkScheduler } = parts
    const steps = guardFields(fields, guard)
    const redactedFields = guard.hasInputRules ? await checkScheduler.run(steps, signal) : fields
    const hasOutputRules = guard.createOutputGuard() !== null
    if (hasOutputRules && fields['stream'] === true) throw createStreamError()
    const controller = new AbortController()
    const anySignal = AbortSignal.any([signal, controller.signal])
    const answering = proxy.forward({ path, fields: redactedFields, signal: anySignal })
    const answer = await waitFor(answering, controller, parts)
    const answerWithTimeout = { ...answer, bytes: withTimeout(answer.bytes, controller, parts) }
    return hasOutputRules ? redactBytes(answerWithTimeout, controller, guard) : answerWithTimeout
  },
})

async function* withTimeout(
  bytes: AsyncIterable<Uint8Array>,
  controller: AbortController,
  parts: ProxyParts,
): AsyncGenerator<Uint8Array> {
  const iterator = bytes[Symbol.asyncIterator]()
  try {
    for (;;) {
      const { value, done } = await waitFor(iterator.next(), controller, parts)
      if (done === true) return
      yield value
    }
  } finally {
    controller.abort(inferenceError('canceled', 'the client stopped reading the answer'))
  }
}

async function waitFor<T>(
  promise: Promise<T>,
  controller: AbortController,
  { clock, engineTimeoutMs }: ProxyParts,
): Promise<T> {
  try {
    return await boundedWait(clock, engineTimeoutMs, promise)
  } catch (error) {
    if (!(error instanceof TimeoutError)) throw error
    const timeoutError = inferenceError('engine_timeout', 'the server did not answer in time')
    controller.abort(timeoutError)
    throw timeoutError
  }
}

async function redactBytes(
  answer: ForwardedAnswer,
  controller: AbortController,
  guard: Guard,
): Promise<ForwardedAnswer> {
  if (!/^application\/json\b/i.test(answer.contentType)) {
    controller.abort(createStreamError())
    throw createStreamError()
  }
  const chunks: Uint8Array[] = []
  let size = 0
  for await (const chunk of answer.bytes) {
    size += chunk.length
    if (size > maxAnswerBytes) throw inferenceError('engine_error', 'the answer is too long')
    chunks.push(chunk)
  }
  const text = redactAnswer(Buffer.concat(chunks).toString(), guard)
  return { ...answer, bytes: ReadableStream.from([Buffer.from(text)]) }
}

/** The maximum size of an answer that output rules judge. Such an answer is buffered as a whole. */
const maxAnswerBytes = 16 << 20

const createStreamError = (): Error =>
  inferenceError('unsupported', 'the guardrails cannot read a stream of this path', {
    refusal: {
      status: 400,
      message: "Invalid 'stream': the guardrails of this server read whole JSON answers only here.",
      param: 'stream',
      code: 'invalid_value',
    },
  })
