/** A prompt, or a list of them, for a language model. */

import { messageOf } from '../foundation/errors.ts'
import {
  expectInteger,
  expectNumber,
  expectObject,
  expectString,
  invalid,
} from '../foundation/options.ts'
import { defaultResources } from './resources.ts'
import type { FinishReason, PromptSpec, SamplingOptions } from './spec.ts'
import { Task } from './task.ts'
import {
  checkTaskOptions,
  expectTaskOptions,
  type TaskFields,
  taskOptionNames,
  type TaskOptions,
} from './task-fields.ts'

export type { FinishReason, ResponseFormat, SamplingOptions } from './spec.ts'

/** The options of an `AITask`. For a list of prompts, the answer is a list. */
export interface AIOptions<P extends string | readonly string[]>
  extends TaskOptions, SamplingOptions {
  readonly prompt: P
  /** The name of the model. Default: the backend's model. */
  readonly model?: string
}

export const samplingNames = [
  'systemPrompt',
  'temperature',
  'maxTokens',
  'topP',
  'topK',
  'stop',
  'seed',
  'responseFormat',
]

/**
 * A task that sends a prompt to a language model. Awaiting it returns a string for one prompt, and
 * an array in the same order for an array of prompts. It runs on the backend that its options
 * name, otherwise on the first backend that accepts the prompt and its `model`.
 *
 * @example
 * const ask = new AITask({ prompt: 'Why is the sky blue?', maxTokens: 200 })
 * await session.submitTasks([ask])
 * const text = await ask
 * if (ask.finishReason === 'length') console.log('the answer is cut')
 */
export class AITask<P extends string | readonly string[] = string> extends Task<
  P extends string ? string : string[]
> {
  readonly kind = 'ai'
  /** The task as plain data, as its backend receives it. */
  readonly spec: PromptSpec

  constructor(options: AIOptions<P>) {
    const { task, spec } = checkPromptOptions(options)
    super(task)
    this.spec = spec
  }

  /** The time limit of each attempt, in seconds; `null` for no limit. */
  get timeoutSeconds(): number | null {
    return this.spec.timeoutSeconds
  }

  /** Tasks with a higher priority run earlier. */
  get priority(): number {
    return this.spec.priority
  }

  /** The option `name`, otherwise the model's name; `""` if the backend chooses the model. */
  get name(): string {
    return this.givenName ?? this.spec.executable
  }

  /** The given prompt, or a frozen copy of the given list. */
  get prompt(): P {
    return this.spec.prompt as P
  }

  /** The option `model`; `null` if the backend chooses the model. */
  get model(): string | null {
    return this.spec.model
  }

  /** The given sampling options, without defaults. */
  get sampling(): SamplingOptions {
    return this.spec.sampling
  }

  /** The answer; `undefined` until the task is DONE. */
  get response(): (P extends string ? string : string[]) | undefined {
    return this.value
  }

  /**
   * Why the answer ended: `length` if it was cut at `maxTokens`. An array for an array of prompts.
   * `undefined` until the task is DONE, and for an answer from an earlier run.
   */
  get finishReason(): (P extends string ? FinishReason : readonly FinishReason[]) | undefined {
    const reasons = this.finishReasons
    const found = typeof this.spec.prompt === 'string' ? reasons?.[0] : reasons
    return found as (P extends string ? FinishReason : readonly FinishReason[]) | undefined
  }
}

/** Validates the options. Does not check whether `backend` exists, because routing does. */
export function checkPromptOptions(options: AIOptions<string | readonly string[]>): {
  readonly task: TaskFields
  readonly spec: PromptSpec
} {
  expectTaskOptions('AITask', options, [...taskOptionNames, 'prompt', 'model', ...samplingNames])
  const task = checkTaskOptions(options)
  const model = options.model === undefined ? null : expectString('model', options.model)
  const spec: PromptSpec = Object.freeze({
    kind: 'prompt',
    executable: model ?? '',
    priority: task.priority,
    timeoutSeconds: task.timeoutSeconds,
    resources: defaultResources,
    workDir: null,
    prompt: expectPrompt(options.prompt),
    model,
    sampling: resolveSampling(options),
  })
  return { task, spec }
}

function expectPrompt(prompt: unknown): string | readonly string[] {
  if (typeof prompt === 'string') return prompt
  if (!Array.isArray(prompt)) throw invalid('prompt', 'a string or an array of strings', prompt)
  const wrong = prompt.findIndex((one) => typeof one !== 'string')
  if (wrong !== -1) throw invalid(`prompt[${wrong}]`, 'a string', prompt[wrong])
  return Object.freeze([...(prompt as string[])])
}

function resolveSampling(options: SamplingOptions): SamplingOptions {
  const checks: { readonly [K in keyof SamplingOptions]-?: (value: unknown) => unknown } = {
    systemPrompt: (value) => expectString('systemPrompt', value),
    temperature: (value) => expectNumber('temperature', value, { min: 0, max: 2 }),
    maxTokens: (value) => expectInteger('maxTokens', value, { min: 1 }),
    topP: (value) => expectNumber('topP', value, { above: 0, max: 1 }),
    topK: (value) => expectInteger('topK', value, { min: 0 }),
    stop: expectStop,
    seed: (value) => expectInteger('seed', value),
    responseFormat: copyFormat,
  }
  const resolved: Record<string, unknown> = {}
  for (const [name, check] of Object.entries(checks)) {
    const value = options[name as keyof SamplingOptions]
    if (value !== undefined) resolved[name] = check(value)
  }
  return Object.freeze(resolved)
}

/** Copies the format, so that later changes of the caller's schema have no effect. */
function copyFormat(value: unknown): unknown {
  const format = expectObject('responseFormat', value)
  try {
    return JSON.parse(JSON.stringify(format))
  } catch (error) {
    throw invalid(
      'responseFormat',
      `an object that JSON can represent (${messageOf(error)})`,
      value,
    )
  }
}

function expectStop(value: unknown): readonly string[] {
  const stops = typeof value === 'string' ? [value] : value
  if (!Array.isArray(stops) || stops.some((one) => typeof one !== 'string' || one === '')) {
    throw invalid('stop', 'a string or an array of strings', value)
  }
  return Object.freeze([...(stops as string[])])
}
