/** Plans what the calls of a wrapped function run: a function, program, prompt or block. */

import type { Work } from '../core/entry.ts'
import { ValueError } from '../foundation/errors.ts'
import { expectFunction, invalid } from '../foundation/options.ts'
import { isThenable } from '../foundation/promises.ts'
import { runInTask } from '../foundation/task-context.ts'
import { type AIOptions, checkPromptOptions } from '../tasks/ai-task.ts'
import {
  toClosure,
  checkComputeOptions,
  type ExecutableOptions,
  withArgs,
} from '../tasks/compute-options.ts'
import type { AnyFunction } from '../tasks/define-task.ts'
import type { ClosureSpec } from '../tasks/spec.ts'
import type { TaskKind } from '../tasks/task.ts'
import type { EnterContext } from './run-context.ts'
import { type ResolvedTaskOptions, resolveTaskOptions } from './task-options.ts'

export interface Call {
  readonly uid: string
  readonly args: readonly unknown[]
  /** The value of `this` in the body. */
  readonly receiver: unknown
  readonly enter: EnterContext
}

export interface Plan {
  readonly kind: TaskKind
  readonly options: ResolvedTaskOptions
  readonly body: AnyFunction
  /** The `executable` in events until the work is known. */
  readonly executable: string
  /** The display name of calls. Empty for an unnamed prompt, which shows its model's name. */
  readonly label: string
  /** The assumed work, used to route a call that ends before its work is known. */
  readonly expected: Work
  /** Whether the body runs outside all backends and owns the tasks that it creates. */
  readonly isBlock: boolean
  /** Determines the work of a call. May throw; returns a promise if the body is asynchronous. */
  prepare(call: Call): Work | PromiseLike<Work>
}

export function planFunction(body: AnyFunction, given: unknown): Plan {
  const options = resolveOptions('functionTask', body, given)
  const checked = toFunctionSpec(options, body)
  const spec = checked.kind === 'function' ? checked : toClosure(checked)
  const { backend } = options.task
  const prepare: Plan['prepare'] = (call) =>
    spec.kind === 'function'
      ? { spec: withArgs(spec, call.args), backend }
      : toClosureWork(spec, call, body, backend)
  return { ...toPlanBase('function', options, body), expected: { spec, backend }, prepare }
}

export function planBlock(body: AnyFunction, given: unknown): Plan {
  const options = resolveOptions('block', body, given)
  const spec = toClosure(toFunctionSpec(options, body))
  return {
    ...toPlanBase('function', options, body),
    expected: { spec, backend: null },
    isBlock: true,
    prepare: (call) => toClosureWork(spec, call, body, null),
  }
}

export function planExecutable(body: AnyFunction, given: unknown): Plan {
  const options = resolveOptions('executableTask', body, given)
  const toWork = (program: ExecutableOptions): Work => {
    const { task, spec } = checkComputeOptions({ ...program, ...options.work })
    return { spec, backend: task.backend }
  }
  return {
    ...toPlanBase('compute', options, body),
    expected: toWork({ executable: 'true' }),
    prepare: (call) => prepareByBody(body, call, (program) => toWork(toProgram(program))),
  }
}

export function planPrompt(body: AnyFunction, given: unknown): Plan {
  const options = resolveOptions('promptTask', body, given)
  const toWork = (prompt: AIOptions<Prompt>): Work => {
    const { task, spec } = checkPromptOptions({ ...options.work, ...prompt })
    return { spec, backend: task.backend }
  }
  return {
    ...toPlanBase('ai', options, body),
    executable: options.work.model ?? '',
    label: options.isNamed ? options.name : '',
    expected: toWork({ prompt: '' }),
    prepare: (call) => prepareByBody(body, call, (prompt) => toWork(toPrompt(prompt))),
  }
}

function resolveOptions(
  method: Parameters<typeof resolveTaskOptions>[0],
  body: AnyFunction,
  given: unknown,
): ResolvedTaskOptions {
  expectFunction('function', body)
  return resolveTaskOptions(method, body, given ?? {})
}

const toPlanBase = (
  kind: TaskKind,
  options: ResolvedTaskOptions,
  body: AnyFunction,
): Omit<Plan, 'prepare' | 'expected'> => ({
  kind,
  options,
  body,
  executable: options.functionName,
  label: options.name,
  isBlock: false,
})

function toFunctionSpec({ work }: ResolvedTaskOptions, body: AnyFunction) {
  const run = body as (...args: unknown[]) => unknown
  return checkComputeOptions({ ...work, function: run }).spec
}

function toClosureWork(
  spec: ClosureSpec,
  { args, receiver, enter }: Call,
  body: AnyFunction,
  backend: string | null,
): Work {
  const closure: AnyFunction = (...given) => enter(() => body.apply(receiver, given))
  return { spec, backend, function: closure, args }
}

function prepareByBody(
  body: AnyFunction,
  { uid, args, receiver, enter }: Call,
  toWork: (returned: unknown) => Work,
): Work | PromiseLike<Work> {
  const returned = runInTask(uid, () => enter(() => body.apply(receiver, args as never[])))
  return isThenable(returned) ? returned.then(toWork) : toWork(returned)
}

function toProgram(given: unknown): ExecutableOptions {
  if (Array.isArray(given)) {
    const [executable, ...args] = given as string[]
    if (executable === undefined) throw invalid('argv', 'a program and its arguments', given)
    return { executable, arguments: args }
  }
  if (typeof given !== 'object' || given === null) {
    throw invalid('program', 'an array or { executable, arguments }', given)
  }
  if ('shell' in given) {
    throw new ValueError('`shell` is not for workflows: give the program and its arguments', {
      field: 'shell',
    })
  }
  return given as ExecutableOptions
}

type Prompt = string | readonly string[]

function toPrompt(given: unknown): AIOptions<Prompt> {
  if (typeof given === 'string' || Array.isArray(given)) return { prompt: given as Prompt }
  if (typeof given !== 'object' || given === null) {
    throw invalid('prompt', 'a string, an array of strings or { prompt }', given)
  }
  return given as AIOptions<Prompt>
}
