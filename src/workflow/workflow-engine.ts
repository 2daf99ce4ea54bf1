/** The workflow engine, which runs dynamic graphs of functions, programs and prompts. */

import { hostname } from 'node:os'
import { dirname, join } from 'node:path'
import type { Backend, Connection, Refusal } from '../backends/backend.ts'
import { ClosureRuns } from '../backends/closure-runs.ts'
import { Attempt, type Work } from '../core/entry.ts'
import type { ResumedRecord, ResumeOptions } from '../core/resume/resumption.ts'
import { SessionCore } from '../core/session-core.ts'
import {
  type CloseOptions,
  expectBackend,
  findCloseProblem,
  resolveSessionOptions,
  sessionOptionNames,
  type SessionOptions,
  type SessionTelemetryOptions,
} from '../core/session-options.ts'
import { messageOf, ValueError } from '../foundation/errors.ts'
import { blockBackend } from '../foundation/ids.ts'
import {
  expectFunction,
  expectKnownKeys,
  expectObject,
  expectString,
} from '../foundation/options.ts'
import { isThenable } from '../foundation/promises.ts'
import { once } from '../foundation/service.ts'
import { TurnBudget } from '../runtime/turn-budget.ts'
import type { SamplingOptions } from '../tasks/ai-task.ts'
import type { AnyFunction } from '../tasks/define-task.ts'
import type { ExecutableResult } from '../tasks/compute-task.ts'
import type { TelemetryManager } from '../telemetry/manager.ts'
import { Dispatcher } from './dispatcher.ts'
import { EngineHandle } from './handle.ts'
import { type Plan, planBlock, planExecutable, planFunction, planPrompt } from './plan.ts'
import { RunContexts, Scopes } from './run-context.ts'
import type { Handle, TaskFunction } from './task-function.ts'
import {
  type BlockOptions,
  type CallLabelOptions,
  type ExecutableTaskOptions,
  type FunctionTaskOptions,
  type ProgramCall,
  type PromptTaskOptions,
  resolveLabelOptions,
} from './task-options.ts'

/** The backends and the cache folder of a workflow engine, and all options of a session. */
export interface WorkflowEngineOptions extends SessionOptions {
  /** One backend or several. By default, a task runs on the first one that accepts it. */
  readonly backend: Backend | readonly Backend[]
  /** The folder for results of tasks with `cache`. Default: beside the checkpoint. */
  readonly cacheDir?: string
}

/** One prompt, or several that are answered together. */
export type Prompt = string | readonly string[]
/** The prompts that the body of a prompt task returns, optionally with options. */
export type PromptCall =
  | Prompt
  | ({ readonly prompt: Prompt } & Pick<
      PromptTaskOptions,
      'model' | 'backend' | keyof SamplingOptions
    >)
/** The result of a prompt task: one answer, or a list of answers for a list of prompts. */
export type PromptResult<R> = R extends readonly string[] | { readonly prompt: readonly string[] }
  ? string[]
  : string

interface WrapFunction {
  <A extends readonly unknown[], R>(
    body: (...args: A) => R,
    options?: FunctionTaskOptions<A>,
  ): TaskFunction<A, Awaited<R>, FunctionTaskOptions<A>>
  <M extends (...args: never[]) => PromiseLike<unknown>>(
    method: M,
    context: ClassMethodDecoratorContext,
  ): M
}

/**
 * Runs workflows of wrapped functions. A wrapped function returns a handle immediately; handles
 * among its arguments are dependencies.
 *
 * @example
 * const backend = await ConcurrentBackend.create()
 * await using flow = await WorkflowEngine.create({ backend })
 * const double = flow.functionTask((x: number) => x * 2)
 * const add = flow.functionTask((a: number, b: number) => a + b)
 * console.log(await add(double(1), double(2))) // 6
 */
export class WorkflowEngine implements AsyncDisposable {
  readonly #core: SessionCore
  readonly #contexts = new RunContexts()
  readonly #dispatcher: Dispatcher
  readonly #scopes: Scopes
  readonly #blocks: Connection
  readonly #hasCacheDir: boolean
  readonly #shutDown = once(async (options: CloseOptions): Promise<void> => {
    this.#dispatcher.close()
    await this.#blocks.release('workflow engine shut down')
    await this.#core.close(options)
    await this.#dispatcher.memo.flush()
  })

  /**
   * Wraps a function. A function from `defineTask` runs on workers, a closure in this process. Also
   * works as a decorator of asynchronous methods, and when called without `this`.
   */
  readonly functionTask = ((body: AnyFunction, second: object = {}) => {
    const options = expectObject('options', second)
    const toPlan = (given: object): Plan => {
      const plan = planFunction(body, given)
      this.#expectRunnable(plan.expected)
      return plan
    }
    return this.#wrap(toPlan, isMethodContext(options) ? {} : options)
  }) as WrapFunction

  /** Creates an engine. `shutdown()` also closes its backends, unless `keepBackends` is set. */
  static async create(options: WorkflowEngineOptions): Promise<WorkflowEngine> {
    const known = ['backend', 'cacheDir', ...sessionOptionNames]
    expectKnownKeys('WorkflowEngine', expectObject('options', options), known)
    return new WorkflowEngine(options)
  }

  private constructor({ backend, cacheDir, ...options }: WorkflowEngineOptions) {
    const backends: Backend[] = Array.isArray(backend)
      ? backend.map((one: unknown, at) => expectBackend(`backend[${at}]`, one))
      : [expectBackend('backend', backend)]
    const core = new SessionCore(resolveSessionOptions(options))
    for (const one of backends) core.addBackend(one)
    this.#core = core
    this.#scopes = new Scopes(core)
    this.#blocks = createBlockRunner(core, this.#contexts)
    this.#dispatcher = new Dispatcher({
      core,
      contexts: this.#contexts,
      scopes: this.#scopes,
      blocks: { backend: { name: blockBackend }, connection: this.#blocks },
    })
    this.#hasCacheDir = cacheDir !== undefined
    if (cacheDir !== undefined) this.#dispatcher.memo.setFolder(expectString('cacheDir', cacheDir))
  }

  /** The id of the engine in events and files. */
  get id(): string {
    return this.#core.id
  }

  /** Wraps a body that receives values and returns the program to run, without a shell. */
  executableTask<A extends readonly unknown[]>(
    body: (...args: A) => ProgramCall | PromiseLike<ProgramCall>,
    options: ExecutableTaskOptions<A> = {},
  ): TaskFunction<A, ExecutableResult, ExecutableTaskOptions<A>> {
    expectNoDecorator('executableTask', 'the program to run', options)
    return this.#wrap((given) => planExecutable(body, given), options) as never
  }

  /**
   * Wraps a body that receives values and returns one prompt or a list. The result is one answer or
   * a list of answers.
   */
  promptTask<A extends readonly unknown[], R extends PromptCall>(
    body: (...args: A) => R | PromiseLike<R>,
    options: PromptTaskOptions<A> = {},
  ): TaskFunction<A, PromptResult<R>, PromptTaskOptions<A>> {
    expectNoDecorator('promptTask', 'the prompts', options)
    return this.#wrap((given) => planPrompt(body, given), options) as never
  }

  /**
   * Wraps a body that creates and awaits tasks. The body occupies no slot of a backend. If it does
   * not succeed, the tasks that it created are canceled.
   */
  block<A extends readonly unknown[], R>(
    body: (...args: A) => R,
    options: BlockOptions<A> = {},
  ): TaskFunction<A, Awaited<R>, BlockOptions<A>> {
    expectNoDecorator('block', 'a value, and calls tasks', options)
    return this.#wrap((given) => planBlock(body, given), options) as never
  }

  /**
   * Runs the callback as the workflow `id` and returns its result. Tasks created inside carry the
   * id, and their spans are children of the workflow's span, which ends when the callback and all
   * these tasks have ended.
   */
  scope<T>(id: string, callback: () => T): T {
    this.#dispatcher.expectOpen()
    expectString('id', id)
    expectFunction('callback', callback)
    const context = this.#contexts.current
    const scope = this.#scopes.enter(id, context.scope)
    let result: T
    try {
      result = this.#contexts.runIn({ ...context, scope }, callback)
    } catch (error) {
      this.#scopes.leave(scope, messageOf(error))
      throw error
    }
    if (!isThenable(result)) {
      this.#scopes.leave(scope)
      return result
    }
    // A lazy thenable starts here, so it must run inside the scope as well.
    const thenable: PromiseLike<unknown> = result
    const ended = this.#contexts.runIn({ ...context, scope }, () => Promise.resolve(thenable))
    const left = ended.then(
      () => this.#scopes.leave(scope),
      (error: unknown) => this.#scopes.leave(scope, messageOf(error)),
    )
    return (result instanceof EngineHandle ? result : left.then(() => ended)) as T
  }

  /**
   * Like `Session.resume`. A call without a `uid` is identified by its function, arguments and
   * dependencies, and by its number among equal calls. A call that is DONE in the record ends
   * immediately with the recorded result.
   */
  async resume(file: string, options: ResumeOptions = {}): Promise<ResumedRecord> {
    return this.#core.resume(file, options)
  }

  /**
   * Like `Session.startTelemetry`. Without `cacheDir`, the results of tasks with `cache` are stored
   * beside the checkpoint.
   */
  async startTelemetry(options: SessionTelemetryOptions = {}): Promise<TelemetryManager> {
    const telemetry = await this.#core.startTelemetry(options)
    const { checkpointFile } = telemetry
    if (checkpointFile !== null && !this.#hasCacheDir) {
      this.#dispatcher.memo.setFolder(join(dirname(checkpointFile), 'results'))
    }
    return telemetry
  }

  /**
   * Cancels all open tasks, closes the backends unless `keepBackends` is set, then stops telemetry.
   * Idempotent: returns the same promise each time.
   */
  shutdown(options: CloseOptions = {}): Promise<void> {
    const problem = findCloseProblem('shutdown', options)
    if (problem !== null) return Promise.reject(problem)
    return this.#shutDown(options)
  }

  /** For `await using`: calls `shutdown()`. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.shutdown()
  }

  /** Throws for a closure that no backend can run. All other problems are reported by the calls. */
  #expectRunnable({ spec, backend }: Work): void {
    if (spec.kind !== 'closure') return
    const backends = this.#core.backends.filter(({ name }) => backend === null || name === backend)
    const refusals = backends.map((one) => findRefusal(one, spec))
    const [first] = refusals
    if (first?.field !== 'function' || refusals.some((one) => one?.field !== 'function')) return
    throw new ValueError(`function: ${first.message}`, { field: 'function', got: spec.executable })
  }

  /** `overrides` takes precedence over the `uid` and `name` of the options. */
  #wrap(
    toPlan: (options: object) => Plan,
    options: object,
    overrides: CallLabelOptions = {},
  ): unknown {
    const dispatcher = this.#dispatcher
    const plan = toPlan(options)
    const merged = { ...plan.options.labelOptions, ...overrides }
    const labelOptions = Object.keys(merged).length === 0 ? null : merged
    const wrapped = function (this: unknown, ...args: unknown[]): Handle<unknown> {
      return dispatcher.call(plan, this, args, labelOptions)
    }
    const withOptions = (given: unknown): unknown => {
      const { uid, name, ...others } = expectObject('options', given)
      const further = resolveLabelOptions({ uid, name })
      return this.#wrap(toPlan, { ...options, ...others }, { ...overrides, ...further })
    }
    Object.defineProperty(wrapped, 'name', { value: plan.options.name })
    return Object.assign(wrapped, { with: withOptions })
  }
}

/**
 * Runs the bodies of blocks in this process. Their number is not limited, because a block that
 * waits for its tasks must not occupy a slot that they need.
 */
function createBlockRunner(core: SessionCore, contexts: RunContexts): Connection {
  const { clock } = core
  const listener = core.createListener(blockBackend)
  const nodeId = hostname()
  const runs = new ClosureRuns<null>({
    nodeId,
    workerId: `${nodeId}/${blockBackend}/main`,
    clock,
    budget: new TurnBudget(clock),
    jobNoun: 'block',
    closureOf: (job) => Attempt.findClosure(job),
    report: (job, report) => {
      if (report.kind !== 'start') contexts.endAttempt(job.uid, report.kind === 'complete')
      listener.report(job, report)
    },
    notice: (notice) => listener.notice(notice),
    onResultDropped: () => listener.notice({ kind: 'late-result' }),
  })
  return {
    submit: (jobs) => {
      for (const job of jobs) runs.add(job, null)
    },
    cancel: (job, reason) => runs.cancel(job, reason),
    release: async (reason) => runs.cancelAll(reason),
  }
}

/**
 * Returns why the backend does not accept the work; `null` if it does, or if `refuse` throws. In
 * the latter case, the call fails later.
 */
function findRefusal(backend: Backend, spec: Work['spec']): Refusal | null {
  try {
    return backend.refuse(spec)
  } catch {
    return null
  }
}

const isMethodContext = (given: object): boolean => 'kind' in given && given.kind === 'method'

/** Must be called before `this` is used, because decorators are called without it. */
function expectNoDecorator(method: string, returned: string, options: object): void {
  if (!isMethodContext(expectObject('options', options))) return
  const text = `${method}: is no decorator; it wraps a function that returns ${returned}`
  throw new ValueError(text, {
    field: 'options',
    hint: `Write \`const task = flow.${method}((…) => …)\`; flow.functionTask is a decorator.`,
  })
}
