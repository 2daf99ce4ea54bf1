/** The workflow engine: dynamic graphs of functions, programs and prompts on any backends. */

import { join } from 'node:path'
import type { Backend } from '../backends/backend.ts'
import { systemClock } from '../foundation/clock.ts'
import { messageOf } from '../foundation/errors.ts'
import { processLog } from '../foundation/log.ts'
import {
  expectFunction,
  expectKnownKeys,
  expectObject,
  expectString,
} from '../foundation/options.ts'
import { isThenable } from '../foundation/promises.ts'
import {
  type CloseOptions,
  expectBackend,
  findCloseProblem,
  type SessionOptions,
  type SessionTelemetryOptions,
} from '../session/session-options.ts'
import { registrarOf, Session } from '../session/session.ts'
import type { SamplingOptions } from '../tasks/ai-task.ts'
import type { AnyFunction } from '../tasks/compute-options.ts'
import type { ExecutableResult } from '../tasks/compute-task.ts'
import { blockBackend, BlockRunner } from './block-runner.ts'
import { Dispatcher } from './dispatcher.ts'
import { EngineHandle, type Handle, Run, type TaskFunction } from './handle.ts'
import { type Plan, planBlock, planExecutable, planFunction, planPrompt } from './plan.ts'
import { Scopes } from './scopes.ts'
import type {
  BlockOptions,
  ExecutableTaskOptions,
  FunctionTaskOptions,
  ProgramCall,
  PromptTaskOptions,
} from './task-options.ts'

/** What an engine is made from: its backends, and the options of the session that it opens. */
export interface WorkflowEngineOptions extends SessionOptions {
  /** One backend or several; the first that can run a task is its default. */
  readonly backend: Backend | readonly Backend[]
  /** Where results of tasks with `cache` are kept. Default: beside the checkpoint. */
  readonly cacheDir?: string
}

type Prompt = string | readonly string[]
type PromptCall =
  | Prompt
  | ({ readonly prompt: Prompt } & Pick<
      PromptTaskOptions,
      'model' | 'backend' | keyof SamplingOptions
    >)
type Answer<R> = R extends readonly string[] | { readonly prompt: readonly string[] }
  ? string[]
  : string

interface WrapFunction {
  <A extends readonly unknown[], R>(
    body: (...args: A) => R,
    options?: FunctionTaskOptions<A>,
  ): TaskFunction<A, Awaited<R>>
  <M extends (...args: never[]) => PromiseLike<unknown>>(
    method: M,
    context: ClassMethodDecoratorContext,
  ): M
}

/** Wrapped functions return at once with a handle; handles among the arguments are dependencies. */
export class WorkflowEngine implements AsyncDisposable {
  readonly #session: Session
  readonly #dispatcher: Dispatcher
  readonly #scopes: Scopes
  readonly #blocks: BlockRunner
  readonly #hasOwnFolder: boolean
  #closing: Promise<void> | null = null

  /**
   * Wraps a function: one of `defineTask` runs on workers, a closure in this process. Also a
   * decorator of asynchronous methods, so it needs no `this`.
   */
  readonly functionTask = ((body: AnyFunction, second: object = {}) => {
    const options = expectObject('options', second)
    return this.#wrap(planFunction(body, isMethodContext(options) ? {} : options))
  }) as WrapFunction

  /** Ready at once. The engine owns its backends, unless it is shut down with `keepBackends`. */
  static async create(options: WorkflowEngineOptions): Promise<WorkflowEngine> {
    const known = ['backend', 'cacheDir', 'id', 'workDir', 'clock', 'log']
    expectKnownKeys('WorkflowEngine', expectObject('options', options), known)
    return new WorkflowEngine(options)
  }

  private constructor({ backend, cacheDir, ...options }: WorkflowEngineOptions) {
    const { clock = systemClock, log = processLog } = options
    const backends: Backend[] = Array.isArray(backend)
      ? backend.map((one: unknown, at) => expectBackend(`backend[${at}]`, one))
      : [expectBackend('backend', backend)]
    const session = new Session(backends, options)
    this.#session = session
    const registrar = registrarOf(session, (run, outcome) => {
      if (run instanceof Run) this.#dispatcher.ended(run, outcome)
    })
    this.#scopes = new Scopes({ clock, registrar })
    this.#blocks = new BlockRunner({
      clock,
      listener: registrar.listener,
      onEnd: (uid, isWell) => this.#dispatcher.bodies.endAttempt(uid, isWell),
    })
    this.#dispatcher = new Dispatcher({
      id: session.id,
      clock,
      log,
      registrar,
      scopes: this.#scopes,
      blocks: { backend: { name: blockBackend }, connection: this.#blocks },
    })
    this.#hasOwnFolder = cacheDir !== undefined
    if (cacheDir !== undefined) this.#dispatcher.memo.keepIn(expectString('cacheDir', cacheDir))
  }

  /** Names the engine in events and files. */
  get id(): string {
    return this.#session.id
  }

  /** The body gets values and says which program to run; no shell reads what it says. */
  executableTask<A extends readonly unknown[]>(
    body: (...args: A) => ProgramCall | PromiseLike<ProgramCall>,
    options: ExecutableTaskOptions<A> = {},
  ): TaskFunction<A, ExecutableResult> {
    expectObject('options', options)
    return this.#wrap(planExecutable(body, options)) as TaskFunction<A, ExecutableResult>
  }

  /** The body gets values and says what to ask; a list of prompts gives a list of answers. */
  promptTask<A extends readonly unknown[], R extends PromptCall>(
    body: (...args: A) => R | PromiseLike<R>,
    options: PromptTaskOptions<A> = {},
  ): TaskFunction<A, Answer<R>> {
    expectObject('options', options)
    const plan = planPrompt(body, options, () => this.#session.backends)
    return this.#wrap(plan) as TaskFunction<A, Answer<R>>
  }

  /**
   * Wraps a body that makes and awaits tasks. It holds no backend's place, and what it made is
   * canceled when it fails or is canceled.
   */
  block<A extends readonly unknown[], R>(
    body: (...args: A) => R,
    options: BlockOptions = {},
  ): TaskFunction<A, Awaited<R>> {
    expectObject('options', options)
    return this.#wrap(planBlock(body, options)) as TaskFunction<A, Awaited<R>>
  }

  /**
   * Runs the callback as the workflow `id` and gives its result. Tasks made inside carry the id;
   * their spans lie under its span, which ends when the callback and all of them have.
   */
  scope<T>(id: string, callback: () => T): T {
    this.#dispatcher.expectOpen()
    expectString('id', id)
    expectFunction('callback', callback)
    const { bodies } = this.#dispatcher
    const { context } = bodies
    const scope = this.#scopes.enter(id, context.scope)
    let result: T
    try {
      result = bodies.runIn({ ...context, scope }, callback)
    } catch (error) {
      this.#scopes.leave(scope, messageOf(error))
      throw error
    }
    if (!isThenable(result)) {
      this.#scopes.leave(scope)
      return result
    }
    // A lazy one begins only now, and inside.
    const inside: PromiseLike<unknown> = result
    const ended = bodies.runIn({ ...context, scope }, () => Promise.resolve(inside))
    const left = ended.then(
      () => this.#scopes.leave(scope),
      (error: unknown) => this.#scopes.leave(scope, messageOf(error)),
    )
    return (result instanceof EngineHandle ? result : left.then(() => ended)) as T
  }

  /** As on a session. Results of tasks with `cache` are kept beside the checkpoint. */
  async startTelemetry(
    options: SessionTelemetryOptions = {},
  ): ReturnType<Session['startTelemetry']> {
    const telemetry = await this.#session.startTelemetry(options)
    const { checkpointPath } = options
    if (checkpointPath !== undefined && !this.#hasOwnFolder) {
      this.#dispatcher.memo.keepIn(join(checkpointPath, 'results'))
    }
    return telemetry
  }

  /**
   * Cancels what has not ended, closes the backends (`keepBackends` leaves them to a sharer), then
   * stops telemetry. Idempotent, same promise, complete when it resolves.
   */
  shutdown(options: CloseOptions = {}): Promise<void> {
    const problem = findCloseProblem('shutdown', options)
    if (problem !== null) return Promise.reject(problem)
    this.#closing ??= this.#shutDownOnce(options)
    return this.#closing
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.shutdown()
  }

  async #shutDownOnce(options: CloseOptions): Promise<void> {
    this.#dispatcher.close()
    await this.#blocks.release('workflow engine shut down')
    await this.#session.close(options)
    await this.#dispatcher.memo.settle()
  }

  #wrap(plan: Plan): unknown {
    const dispatcher = this.#dispatcher
    const wrapped = function (this: unknown, ...args: unknown[]): Handle<unknown> {
      return dispatcher.call(plan, this, args)
    }
    Object.defineProperty(wrapped, 'name', { value: plan.options.name })
    return wrapped
  }
}

const isMethodContext = (given: object): boolean => 'kind' in given && given.kind === 'method'
