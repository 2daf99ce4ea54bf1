/** Finds the dependencies of calls, waits for them, and dispatches calls that are ready. */

import type { Entry, Target, UndispatchedOutcome, Work } from '../core/entry.ts'
import { alreadySubmitted, toTaskError } from '../core/routing.ts'
import type { Dispatch, SessionCore } from '../core/session-core.ts'
import { ResultReused, TaskResolved } from '../events/library-events.ts'
import { StateError } from '../foundation/errors.ts'
import { parseUidNumber, newUuid } from '../foundation/ids.ts'
import { expectId } from '../foundation/options.ts'
import { isThenable } from '../foundation/promises.ts'
import { BudgetedQueue, TurnBudget } from '../runtime/turn-budget.ts'
import { digestOf, joinPrefixed } from '../tasks/content-text.ts'
import { hasEnded } from '../tasks/lifecycle.ts'
import type { Outcome } from '../tasks/task-record.ts'
import { findHandles, areImmutable, substituteHandles } from './arguments.ts'
import { cycleError, foreignHandleError, toDependencyFailure } from './dependency-errors.ts'
import { Graph } from './graph.ts'
import { type CallSite, EngineHandle, type HandleOwner, Run } from './handle.ts'
import { hashCall, Memo, memoKey, usesOnlyCaptured } from './memo/memo.ts'
import type { Plan } from './plan.ts'
import {
  BlockPath,
  toCancelReason,
  type EnterContext,
  type RunContext,
  type RunContexts,
} from './run-context.ts'
import type { Scopes } from './run-context.ts'
import { type CallLabelOptions, type CallLabels, toCallLabels } from './task-options.ts'

export interface DispatcherParts {
  readonly core: SessionCore
  readonly contexts: RunContexts
  readonly scopes: Scopes
  readonly blocks: Target
}

const shutdownReason = 'workflow engine shut down'
const emptyList: readonly never[] = Object.freeze([])

export class Dispatcher implements HandleOwner {
  readonly memo: Memo<Run>
  readonly #parts: DispatcherParts
  readonly #graph = new Graph<Run>()
  readonly #ready: BudgetedQueue<Run>
  #isClosed = false

  constructor(parts: DispatcherParts) {
    this.#parts = parts
    const budget = new TurnBudget(parts.core.clock)
    this.#ready = new BudgetedQueue(budget, (runs) => this.#advance(runs))
    this.memo = new Memo<Run>(
      {
        isOpen: ({ handle }) => !hasEnded(handle.state),
        run: (run) => this.#ready.add(run),
        reuse: (run, value, key, source) => this.#reuse(run, value, { key, source }),
        fail: (run, error) => this.#end(run, { kind: 'fail', error }),
      },
      parts.core.log,
    )
  }

  get id(): string {
    return this.#parts.core.id
  }

  expectOpen(): void {
    if (!this.#isClosed) return
    throw new StateError('the workflow engine is shut down', {
      code: 'WorkflowShutDownError',
      hint: 'Create a new workflow engine.',
    })
  }

  /** Opens the task of a call immediately. An invalid call does not throw, but its task fails. */
  call(
    plan: Plan,
    receiver: unknown,
    args: readonly unknown[],
    labelOptions: CallLabelOptions | null,
  ): EngineHandle {
    this.expectOpen()
    const context = this.#parts.contexts.current
    const site = { context, receiver, args }
    let dependencies: readonly EngineHandle[] = emptyList
    let problem: unknown = null
    try {
      dependencies = findHandles(args)
      this.#expectOwnHandles(dependencies)
    } catch (error) {
      problem = error
    }
    const created = this.#createHandle(plan, site, labelOptions, dependencies)
    problem ??= created.problem ?? null
    const run = new Run(created.handle, site)
    // Objects are read later, because they may change or receive handles after the call.
    if (problem === null && dependencies.length === 0 && areImmutable(args)) run.values = args
    if (run.values === null) run.createdMs = this.#parts.core.clock.monotonicMs()
    run.dependencyCount = dependencies.length
    const refusal = this.#openTask(run, dependencies)
    problem ??= refusal
    const { block } = context
    if (problem !== null) this.#end(run, { kind: 'fail', error: problem })
    // The body of a failed attempt cannot be stopped, but the tasks that it creates can.
    else if (block?.isFailed) this.#end(run, { kind: 'cancel', reason: toCancelReason(block) })
    else if (this.#canDecide(run, dependencies) && this.#endAsRecorded(run, dependencies))
      return run.handle
    else if (dependencies.length === 0) this.#ready.add(run)
    else this.#waitFor(run, dependencies)
    return run.handle
  }

  /**
   * A call with an invalid uid or name becomes a failed task with a generated uid. The same applies
   * to a changed call whose uid is DONE in the record, so that a later resume still finds the
   * recorded value.
   */
  #createHandle(
    plan: Plan,
    site: CallSite,
    labelOptions: CallLabelOptions | null,
    dependencies: readonly EngineHandle[],
  ): { readonly handle: EngineHandle; readonly problem?: unknown } {
    if (labelOptions === null) return { handle: this.#claim(new EngineHandle(plan, this)) }
    const { uidSuffix } = site.context
    const hash = (): string | null => this.#hashOf(plan, site, dependencies)
    try {
      const labels = toCallLabels(labelOptions, site.args)
      const handle = this.#createLabeled(plan, labels, hash)
      if (labels.uid === null || uidSuffix === '') return { handle: this.#claim(handle) }
      if (this.#parts.core.claim(handle)) return { handle }
      const uid = expectId('uid', `${labels.uid}${uidSuffix}`)
      return { handle: this.#claim(this.#createLabeled(plan, { ...labels, uid }, hash)) }
    } catch (problem) {
      return { handle: this.#claim(new EngineHandle(plan, this)), problem }
    }
  }

  #claim(handle: EngineHandle): EngineHandle {
    if (this.#parts.core.claim(handle)) return handle
    throw toTaskError(alreadySubmitted(handle))
  }

  #createLabeled(plan: Plan, labels: CallLabels, hash: () => string | null): EngineHandle {
    const { resumed } = this.#parts.core
    const problem = resumed.findCallProblem(labels.uid ?? '', plan.executable, hash)
    if (problem !== null) throw toTaskError(problem)
    return new EngineHandle(plan, this, labels)
  }

  /**
   * Whether `#endAsRecorded` can already decide about the call. It cannot while arguments may
   * change or a dependency is undecided. Without a resumed record, there is nothing to decide.
   */
  #canDecide({ args }: Run, dependencies: readonly EngineHandle[]): boolean {
    if (!this.#parts.core.resumed.isActive) return false
    return areImmutable(args) && dependencies.every(({ isFromRecord }) => isFromRecord !== null)
  }

  /**
   * Ends the call as recorded if possible, and returns whether it has ended. A call runs again if a
   * dependency does. The inputs of a body also count as inputs of the calls in it.
   */
  #endAsRecorded(run: Run, dependencies: readonly EngineHandle[]): boolean {
    const { entry, handle, context } = run
    const mayEnd = !entry.hasChanged && dependencies.every(({ isFromRecord }) => isFromRecord)
    handle.isFromRecord = this.#parts.core.resumed.endAsRecorded(entry, mayEnd)
    if (handle.isFromRecord) return true
    const { inputs: enclosing } = context
    const isKnown = handle.definitionHash !== null || usesOnlyCaptured(handle.plan, run)
    const areKept = mayEnd && isKnown && enclosing !== null
    handle.inputs = areKept ? [...dependencies.map(({ recorded }) => recorded), ...enclosing] : null
    return false
  }

  cancel(handle: EngineHandle, reason: string): boolean {
    return this.#parts.core.cancel(handle, reason)
  }

  ended(run: Run, outcome: Outcome): void {
    const { handle, context } = run
    handle.run = null
    context.block?.children.delete(handle)
    if (outcome.state === 'DONE') {
      for (const next of this.#graph.complete(run)) this.#ready.add(next)
    } else {
      for (const { node, dependency } of this.#graph.failDependents(run)) {
        node.failedDependency = dependency.handle
        this.#ready.add(node)
      }
    }
    this.memo.ended(run, outcome)
    if (run.scope !== null) this.#parts.scopes.leave(run.scope)
  }

  close(): void {
    this.#isClosed = true
  }

  #openTask(run: Run, dependencies: readonly EngineHandle[]): unknown {
    const { handle, context } = run
    const { core, scopes } = this.#parts
    handle.run = run
    context.block?.children.add(handle)
    if (context.scope !== null) run.scope = scopes.addUse(context.scope)
    const entry = core.defer(handle, {
      executable: handle.plan.executable,
      dependencies:
        dependencies.length === 0 ? emptyList : Object.freeze(dependencies.map(({ uid }) => uid)),
      workflowId: context.scope?.id ?? null,
      name: handle.label,
      definitionHash: () => this.#computeHash(run, dependencies),
      inputs: () => ({
        dependencies: dependencies.map(({ recorded }) => recorded),
        enclosing: context.inputs,
      }),
      expected: { work: handle.plan.expected, target: this.#targetOf(handle) },
      owner: run,
    })
    run.entry = entry
    handle.recorded = entry.reuse === 'nothing' ? null : entry.recorded
    return core.resumed.findRefusal(entry)
  }

  /**
   * Computes the hash of a call, or `handle.place` if the call cannot be compared. Equal calls in
   * different bodies have different hashes.
   */
  #computeHash(run: Run, dependencies: readonly EngineHandle[]): string | null {
    const { handle, context } = run
    const { plan } = handle
    handle.definitionHash = this.#hashOf(plan, run, dependencies)
    if (handle.definitionHash !== null) return handle.definitionHash
    const { place } = context
    const key = joinPrefixed([
      plan.isBlock ? 'block' : plan.kind,
      plan.options.name,
      String(plan.body),
    ])
    handle.place = `${digestOf(joinPrefixed([key, place.text]))}#${place.nextNumber(key)}`
    return null
  }

  #hashOf(
    plan: Plan,
    { receiver, args, context }: CallSite,
    dependencies: readonly EngineHandle[],
  ) {
    const { text: place } = context.place
    return hashCall(plan, { receiver, args, dependencies, place, owner: this })
  }

  #waitFor(run: Run, dependencies: readonly EngineHandle[]): void {
    const failed = dependencies.find(({ state }) => state === 'FAILED' || state === 'CANCELED')
    run.failedDependency = failed ?? null
    const open = dependencies.flatMap((dependency) => dependency.run ?? [])
    if (failed !== undefined || open.length === 0) return this.#ready.add(run)
    // An abort signal may already have ended the task.
    if (!hasEnded(run.handle.state)) this.#graph.add(run, open)
  }

  #advance(runs: readonly Run[]): void {
    const items: Dispatch[] = []
    for (const run of runs) {
      if (hasEnded(run.handle.state)) continue
      if (this.#isClosed) this.#end(run, { kind: 'cancel', reason: shutdownReason })
      else if (run.failedDependency !== null) {
        this.#end(run, toDependencyFailure(run.handle, run.failedDependency))
      } else if (run.work === null) this.#tryToPrepare(run)
      const { entry, work } = run
      if (work === null || hasEnded(run.handle.state)) continue
      items.push({ entry, work, target: this.#targetOf(run.handle) })
    }
    if (items.length > 0) this.#parts.core.dispatch(items)
  }

  /** Returns the runner of blocks for a block; `null` if routing chooses the backend. */
  #targetOf({ plan }: EngineHandle): Target | null {
    return plan.isBlock ? this.#parts.blocks : null
  }

  #tryToPrepare(run: Run): void {
    const { plan } = run.handle
    try {
      run.values ??= this.#resolveArguments(run)
      if (run.values === null || this.#endRecordedLate(run)) return
      if (plan.options.cache === false || run.mustRun) return this.#prepare(run, run.values)
      run.mustRun = true
      this.memo.lookUp(run, memoKey(plan, run.values, run.receiver))
    } catch (error) {
      this.#end(run, { kind: 'fail', error })
    }
  }

  /**
   * Decides whether a call ends as recorded, if `#canDecide` returned `false` earlier. Returns
   * whether the call has ended.
   */
  #endRecordedLate(run: Run): boolean {
    if (!this.#parts.core.resumed.isActive || run.handle.isFromRecord !== null) return false
    return this.#endAsRecorded(run, findHandles(run.args))
  }

  /** Returns the arguments with values instead of handles; `null` if the run has to wait again. */
  #resolveArguments(run: Run): readonly unknown[] | null {
    const { args, dependencyCount: dependencies, createdMs } = run
    const { core } = this.#parts
    const handles = findHandles(args)
    this.#expectOwnHandles(handles)
    const lateHandles = handles.filter(({ state }) => state !== 'DONE')
    if (lateHandles.length > 0) {
      run.dependencyCount += lateHandles.length
      this.#waitForLate(run, lateHandles)
      return null
    }
    if (run.handle.definitionHash !== null) {
      run.entry.hasChanged = this.#haveArgsChanged(run, run.entry, handles)
    }
    const values = handles.length === 0 ? args : substituteHandles(args)
    if (dependencies === 0) return values
    const wait_seconds = (core.clock.monotonicMs() - createdMs) / 1000
    core.emit(TaskResolved, { ...eventFieldsOf(run), dependencies, wait_seconds })
    return values
  }

  hasChanged(run: Run): boolean {
    try {
      return this.#haveArgsChanged(run, run.entry, findHandles(run.args))
    } catch {
      // Arguments that can no longer be compared count as changed.
      return true
    }
  }

  /** Whether the arguments have changed since the call. A different handle counts as a change. */
  #haveArgsChanged(run: Run, { dependencies }: Entry, handles: readonly EngineHandle[]): boolean {
    if (areImmutable(run.args)) return false
    const areSame =
      handles.length === dependencies.length &&
      handles.every(({ uid }, at) => uid === dependencies[at])
    return !areSame || this.#hashOf(run.handle.plan, run, handles) !== run.handle.definitionHash
  }

  /** Waits for handles that were added to the arguments after the call. Throws for a cycle. */
  #waitForLate(run: Run, late: readonly EngineHandle[]): void {
    for (const { run: other } of late) {
      const path = other === null ? null : this.#graph.findPath(other, run)
      if (path !== null) throw cycleError([run, ...path].map((one) => one.handle))
    }
    this.#waitFor(run, late)
  }

  #prepare(run: Run, args: readonly unknown[]): void {
    const { handle, receiver } = run
    const enter = this.#createEnter(run)
    const work = handle.plan.prepare({ uid: handle.uid, args, receiver, enter })
    if (!isThenable(work)) {
      run.work = work
      return
    }
    const use = (later: Work): void => {
      // The asynchronous body may have changed the arguments in the meantime.
      run.entry.hasChanged ||= this.hasChanged(run)
      run.work = later
      this.#ready.add(run)
    }
    work.then(use, (error: unknown) => this.#end(run, { kind: 'fail', error }))
  }

  #createEnter(run: Run): EnterContext {
    const { contexts } = this.#parts
    let attempts = 0
    const next = (): RunContext => this.#createContext(run, ++attempts)
    if (!run.handle.plan.isBlock) return (body) => contexts.runIn(next(), body)
    return (body) => contexts.runAttempt(next(), run.handle, body)
  }

  isInside({ uid }: EngineHandle): boolean {
    return parseUidNumber(uid) !== null || this.#parts.contexts.current.uid === uid
  }

  #createContext({ handle, context: callContext, entry }: Run, attempt: number): RunContext {
    const { uid, definitionHash: hash, place, inputs } = handle
    const uidSuffix = `${callContext.uidSuffix}.attempt-${attempt}`
    const attemptContext = attempt === 1 ? callContext : { ...callContext, uidSuffix }
    const context = parseUidNumber(uid) === null ? { ...attemptContext, uid } : attemptContext
    const { resumed } = this.#parts.core
    const isRecorded = hash !== null || place !== ''
    if (!isRecorded) return resumed.isActive ? { ...context, inputs } : context
    const recordedText = hash === null ? place : `${hash}@${resumed.identifyTask(entry)}`
    // If the arguments changed, a unique text prevents a later run from reusing the calls in the
    // body.
    const text = entry.hasChanged ? newUuid() : recordedText
    return { ...context, inputs, place: new BlockPath(text) }
  }

  #expectOwnHandles(handles: readonly EngineHandle[]): void {
    const foreign = handles.find(({ owner }) => owner !== this)
    if (foreign !== undefined) throw foreignHandleError(foreign, this)
  }

  #reuse(run: Run, value: unknown, from: { key: string; source: string }): void {
    const { entry } = run
    const { core } = this.#parts
    core.end(entry, { kind: 'reuse', value }, () => {
      core.emit(ResultReused, { ...eventFieldsOf(run), backend: entry.backend, ...from })
    })
  }

  #end({ entry }: Run, end: UndispatchedOutcome): void {
    this.#parts.core.end(entry, end)
  }
}

/** The fields of an event about a task that has no backend yet. */
function eventFieldsOf({ handle, context }: Run) {
  const { uid: task_id } = handle
  if (context.scope === null) return { backend: '', task_id }
  return { backend: '', task_id, attributes: Object.freeze({ workflow_id: context.scope.id }) }
}
