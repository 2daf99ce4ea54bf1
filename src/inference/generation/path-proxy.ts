/**
 * Passes requests for other paths on to an engine. Applies guardrails and limits engine silence.
 */

import type { Clock } from '../../foundation/clock.ts'
import { TimeoutError } from '../../foundation/errors.ts'
import { boundedWait } from '../../foundation/promises.ts'
import type { StepScheduler } from '../../runtime/turn-budget.ts'
import type { Guard } from '../guardrails/guard.ts'
import { guardFields, redactAnswer } from '../guardrails/guarded-input.ts'
import { inferenceError } from './inference-errors.ts'
import type { EngineProxy, ForwardedAnswer, ForwardedCall } from './pass-through.ts'

export interface PathProxyParts {
  /** The paths whose requests are passed on. */
  readonly paths: readonly string[]
  readonly forward: EngineProxy['forward']
  readonly guard: Guard
  readonly checks: StepScheduler
  readonly clock: Clock
  /** How long the engine may be silent. */
  readonly engineTimeoutMs: number
}

/**
 * Input rules judge every text of the body; output rules judge every text of a JSON answer. If
 * there are output rules, streams are refused, because their format is unknown for these paths.
 */
export class PathProxy {
  readonly #parts: PathProxyParts

  constructor(parts: PathProxyParts) {
    this.#parts = parts
  }

  get paths(): readonly string[] {
    return this.#parts.paths
  }

  async forward({ path, fields, signal }: ForwardedCall): Promise<ForwardedAnswer> {
    const { guard, checks, forward } = this.#parts
    const steps = guardFields(fields, guard)
    const judged = guard.judgesInput ? await checks.run(steps, signal) : fields
    const judgesAnswer = guard.openOutput() !== null
    if (judgesAnswer && fields['stream'] === true) throw streamRefusal()
    const over = new AbortController()
    const call = { path, fields: judged, signal: AbortSignal.any([signal, over.signal]) }
    const answer = await this.#within(over, forward(call))
    const limited = { ...answer, bytes: this.#limited(over, answer.bytes) }
    return judgesAnswer ? this.#judge(limited, over) : limited
  }

  async *#limited(
    over: AbortController,
    bytes: AsyncIterable<Uint8Array>,
  ): AsyncGenerator<Uint8Array> {
    const iterator = bytes[Symbol.asyncIterator]()
    try {
      for (;;) {
        const { value, done } = await this.#within(over, iterator.next())
        if (done === true) return
        yield value
      }
    } finally {
      over.abort(inferenceError('canceled', 'the client stopped reading the answer'))
    }
  }

  async #within<T>(over: AbortController, promise: Promise<T>): Promise<T> {
    const { clock, engineTimeoutMs } = this.#parts
    try {
      return await boundedWait(clock, engineTimeoutMs, promise)
    } catch (error) {
      if (!(error instanceof TimeoutError)) throw error
      const late = inferenceError('engine_timeout', 'the server did not answer in time')
      over.abort(late)
      throw late
    }
  }

  async #judge(answer: ForwardedAnswer, over: AbortController): Promise<ForwardedAnswer> {
    if (!/^application\/json\b/i.test(answer.contentType)) {
      over.abort(streamRefusal())
      throw streamRefusal()
    }
    const chunks: Uint8Array[] = []
    let size = 0
    for await (const chunk of answer.bytes) {
      size += chunk.length
      if (size > maxAnswerBytes) throw inferenceError('engine_error', 'the answer is too long')
      chunks.push(chunk)
    }
    const text = redactAnswer(Buffer.concat(chunks).toString(), this.#parts.guard)
    return { ...answer, bytes: once(Buffer.from(text)) }
  }
}

/** The maximum size of an answer that rules judge. Such an answer is held in memory as a whole. */
const maxAnswerBytes = 16 << 20

async function* once(bytes: Uint8Array): AsyncGenerator<Uint8Array> {
  yield bytes
}

const streamRefusal = (): Error =>
  inferenceError('unsupported', 'the guardrails cannot read a stream of this path', {
    refusal: {
      status: 400,
      message: "Invalid 'stream': the guardrails of this server read whole JSON answers only here.",
      param: 'stream',
      code: 'invalid_value',
    },
  })
