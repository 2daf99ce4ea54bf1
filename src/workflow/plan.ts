/** What a wrapped function becomes when it is called: function, program, prompt or block. */

import type { AnyTask, Backend } from '../backends/backend.ts'
import { ValueError } from '../foundation/errors.ts'
import { expectFunction, invalid } from '../foundation/options.ts'
import { runInTask } from '../foundation/task-context.ts'
import { isThenable } from '../foundation/promises.ts'
import { type AIOptions, AITask } from '../tasks/ai-task.ts'
import {
  type AnyFunction,
  checkComputeOptions,
  type ComputeFields,
  type ExecutableOptions,
} from '../tasks/compute-options.ts'
import { ComputeTask, likeChecked } from '../tasks/compute-task.ts'
import { definitionOf } from '../tasks/define-task.ts'
import type { Task, TaskKind } from '../tasks/task.ts'
import { type ResolvedTaskOptions, resolveTaskOptions } from './task-options.ts'

/** One call whose arguments are values. */
export interface Call {
  /** The registered task; `null` when that is the one to be made. */
  readonly inNameOf: Task | null
  readonly args: readonly unknown[]
  /** What `this` is for the body. */
  readonly receiver: unknown
  /** Runs a body where the handle was made: in its scope and its block. */
  readonly enter: <T>(body: () => T) => T
}

/** Made once for each wrapped function. */
export interface Plan {
  readonly kind: TaskKind
  readonly options: ResolvedTaskOptions
  readonly body: AnyFunction
  /** What its events call `executable` until it is known what runs. */
  readonly executable: string
  /** Makes its task at once, if nothing but the arguments decides what runs. */
  readonly createTask: ((call: Call) => AnyTask) | null
  /** Its body runs outside of all backends, and what it makes ends with it. */
  readonly isBlock: boolean
  /**
   * Tells what is to run, once. A body that decides it may take its time, or throw; a promise is
   * given then. It cannot give the task itself: a task is awaited where a promise resolves to it.
   */
  prepare(call: Call, use: (work: AnyTask) => void): PromiseLike<void> | undefined
}

export function planFunction(body: AnyFunction, given: unknown): Plan {
  const options = resolve('functionTask', body, given)
  const fields = checkFunction(options, body)
  const isDefined = definitionOf(body) !== undefined
  const toTask = (call: Call): AnyTask =>
    isDefined ? toFunctionTask(fields, call) : toClosureTask(fields, call, body)
  return {
    kind: 'function',
    options,
    body,
    executable: options.name,
    createTask: options.cache === false ? toTask : null,
    isBlock: false,
    prepare(call, use) {
      use(toTask(call))
      return undefined
    },
  }
}

export function planBlock(body: AnyFunction, given: unknown): Plan {
  const options = resolve('block', body, given)
  const fields = checkFunction(options, body)
  return {
    kind: 'function',
    options,
    body,
    executable: options.name,
    createTask: null,
    isBlock: true,
    prepare(call, use) {
      use(toClosureTask(fields, call, body))
      return undefined
    },
  }
}

export function planExecutable(body: AnyFunction, given: unknown): Plan {
  const options = resolve('executableTask', body, given)
  const { task, work } = options
  void new ComputeTask({ ...task, ...work, uid: nobody, executable: 'true' })
  const toTask = (uid: string, program: unknown): AnyTask =>
    new ComputeTask({ ...toProgram(program), ...work, uid })
  const prepare: Plan['prepare'] = (call, use) =>
    decide(body, call, (uid, program) => use(toTask(uid, program)))
  const executable = options.name
  const createTask = null
  return { kind: 'compute', options, body, executable, createTask, isBlock: false, prepare }
}

/** Without `backend` and `model`, the first backend that takes a prompt is asked. */
export function planPrompt(
  body: AnyFunction,
  given: unknown,
  backends: () => readonly Backend[],
): Plan {
  const options = resolve('promptTask', body, given)
  const { task, work } = options
  void new AITask({ model: 'any', ...task, ...work, uid: nobody, prompt: '' })
  const toTask = (uid: string, prompt: unknown): AnyTask => {
    const asked = { ...work, ...toPrompt(prompt), uid }
    if (asked.backend !== undefined || asked.model !== undefined) return new AITask(asked)
    const takes = ({ name }: Backend): AnyTask => new AITask({ ...asked, backend: name })
    const found = backends().find((backend) => backend.refuse(takes(backend).spec) === null)
    if (found !== undefined) return takes(found)
    const names = backends().map(({ name }) => name)
    throw new ValueError(`prompt: no backend runs prompts (have: ${names.join(', ')})`, {
      field: 'backend',
      hint: 'Give the engine an inference backend beside the others.',
    })
  }
  const prepare: Plan['prepare'] = (call, use) =>
    decide(body, call, (uid, prompt) => use(toTask(uid, prompt)))
  const executable = work.model ?? ''
  const createTask = null
  return { kind: 'ai', options, body, executable, createTask, isBlock: false, prepare }
}

/** The uid of a task that is made only to check options, when a function is wrapped. */
const nobody = 'nobody'

/** For every task of one function: of a registered one, and of one in another's name. */
interface FunctionFields {
  readonly registered: ComputeFields
  readonly inAnothersName: ComputeFields
}

function checkFunction({ task, work }: ResolvedTaskOptions, body: AnyFunction): FunctionFields {
  const run = body as (...args: unknown[]) => unknown
  return {
    registered: checkComputeOptions({ ...task, ...work, function: run }),
    inAnothersName: checkComputeOptions({ ...work, function: run }),
  }
}

function resolve(
  method: Parameters<typeof resolveTaskOptions>[0],
  body: AnyFunction,
  given: unknown,
): ResolvedTaskOptions {
  expectFunction('function', body)
  return resolveTaskOptions(method, body, given ?? {})
}

function toFunctionTask(fields: FunctionFields, { inNameOf, args }: Call): AnyTask {
  const { registered, inAnothersName } = fields
  return likeChecked(inNameOf === null ? registered : inAnothersName, Object.freeze(args), inNameOf)
}

function toClosureTask(
  { registered, inAnothersName }: FunctionFields,
  { inNameOf, args, receiver, enter }: Call,
  body: AnyFunction,
): AnyTask {
  const closure: AnyFunction = (...given) => enter(() => body.apply(receiver, given))
  const fields = inNameOf === null ? registered : inAnothersName
  return likeChecked(fields.withFunction(closure), Object.freeze(args), inNameOf)
}

/** Runs a body that decides what is to run, here and now. */
function decide(
  body: AnyFunction,
  { inNameOf, args, receiver, enter }: Call,
  use: (uid: string, decided: unknown) => void,
): PromiseLike<void> | undefined {
  if (inNameOf === null) throw new TypeError('a body decides only for a registered task')
  const { uid } = inNameOf
  const decided = runInTask(uid, () => enter(() => body.apply(receiver, args as never[])))
  if (isThenable(decided)) return decided.then((value) => use(uid, value))
  use(uid, decided)
  return undefined
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
