/** Forwards requests for untyped paths to an engine, with guardrails and a time-out. */

import type { Clock } from '../../foundation/clock.ts'
import { TimeoutError } from '../../foundation/errors.ts'
import { boundedWait } from '../../foundation/promises.ts'
import type { StepScheduler } from '../../runtime/turn-budget.ts'
import type { Guard } from '../guardrails/guard.ts'
import { guardFields, redactAnswer } from '../guardrails/guarded-input.ts'
import { inferenceError } from './inference-errors.ts'
import type { EngineProxy, ForwardedAnswer, ForwardedCall } from './pass-through.ts'

export interface PathProxyParts {
  readonly paths: readonly string[]
  readonly forward: EngineProxy['forward']
  readonly guard: Guard
  readonly checkScheduler: StepScheduler
  readonly clock: Clock
  readonly engineTimeoutMs: number
}

/** Rules judge every text of bodies and JSON answers. With output rules, streams are refused. */
export class PathProxy {
  readonly #parts: PathProxyParts

  constructor(parts: PathProxyParts) {
    this.#parts = parts
  }

  get paths(): readonly string[] {
    return this.#parts.paths
  }

  async forward({ path, fields, signal }: ForwardedCall): Promise<ForwardedAnswer> {
    const { guard, checkScheduler, forward } = this.#parts
    const steps = guardFields(fields, guard)
    const redactedFields = guard.hasInputRules ? await checkScheduler.run(steps, signal) : fields
    const hasOutputRules = guard.createOutputGuard() !== null
    if (hasOutputRules && fields['stream'] === true) throw createStreamError()
    const controller = new AbortController()
    const call = {
      path,
      fields: redactedFields,
      signal: AbortSignal.any([signal, controller.signal]),
    }
    const answer = await this.#waitFor(controller, forward(call))
    const limited = { ...answer, bytes: this.#withTimeout(controller, answer.bytes) }
    return hasOutputRules ? this.#redactAnswer(limited, controller) : limited
  }

  async *#withTimeout(
    controller: AbortController,
    bytes: AsyncIterable<Uint8Array>,
  ): AsyncGenerator<Uint8Array> {
    const iterator = bytes[Symbol.asyncIterator]()
    try {
      for (;;) {
        const { value, done } = await this.#waitFor(controller, iterator.next())
        if (done === true) return
        yield value
      }
    } finally {
      controller.abort(inferenceError('canceled', 'the client stopped reading the answer'))
    }
  }

  async #waitFor<T>(controller: AbortController, promise: Promise<T>): Promise<T> {
    const { clock, engineTimeoutMs } = this.#parts
    try {
      return await boundedWait(clock, engineTimeoutMs, promise)
    } catch (error) {
      if (!(error instanceof TimeoutError)) throw error
      const timeoutError = inferenceError('engine_timeout', 'the server did not answer in time')
      controller.abort(timeoutError)
      throw timeoutError
    }
  }

  async #redactAnswer(
    answer: ForwardedAnswer,
    controller: AbortController,
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
    const text = redactAnswer(Buffer.concat(chunks).toString(), this.#parts.guard)
    return { ...answer, bytes: singleChunk(Buffer.from(text)) }
  }
}

/** The maximum size of an answer that output rules judge. Such an answer is buffered as a whole. */
const maxAnswerBytes = 16 << 20

async function* singleChunk(bytes: Uint8Array): AsyncGenerator<Uint8Array> {
  yield bytes
}

const createStreamError = (): Error =>
  inferenceError('unsupported', 'the guardrails cannot read a stream of this path', {
    refusal: {
      status: 400,
      message: "Invalid 'stream': the guardrails of this server read whole JSON answers only here.",
      param: 'stream',
      code: 'invalid_value',
    },
  })
