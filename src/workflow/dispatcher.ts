/** From a call to its end: finds dependencies, waits for them, and hands over what is ready. */

import { BudgetedQueue, TurnBudget } from '../runtime/turn-budget.ts'
import { ResultReused, TaskResolved } from '../events/library-events.ts'
import type { AnyTask } from '../backends/backend.ts'
import type { Clock } from '../foundation/clock.ts'
import { StateError } from '../foundation/errors.ts'
import type { Log } from '../foundation/log.ts'
import type { HeldEnd } from '../core/entry.ts'
import type { Place } from '../core/dispatch-batch.ts'
import type { HandOver, Registrar } from '../core/deferred-submission.ts'
import { hasEnded } from '../tasks/lifecycle.ts'
import type { Outcome } from '../tasks/task.ts'
import { findHandles, isFlat, substitute } from './arguments.ts'
import { DraftTask } from './draft-task.ts'
import { Bodies, reasonOf } from './run-context.ts'
import { cycleError, foreignHandleError, toDependencyFailure } from './dependency-errors.ts'
import { Graph } from './graph.ts'
import { Draft, EngineHandle, type HandleOwner, Run } from './handle.ts'
import { Memo } from './memo.ts'
import { memoKey } from './memo-key.ts'
import type { Plan } from './plan.ts'
import type { Scopes } from './scopes.ts'

export interface DispatcherParts {
  /** The engine's id. */
  readonly id: string
  readonly clock: Clock
  readonly log: Log
  readonly registrar: Registrar
  readonly scopes: Scopes
  /** Where the bodies of blocks run. */
  readonly blocks: Place
}

const shutDown = 'workflow engine shut down'
const none: readonly never[] = Object.freeze([])

export class Dispatcher implements HandleOwner {
  readonly id: string
  readonly memo: Memo<Run>
  readonly bodies = new Bodies((child, reason) => void this.cancel(child.handle, reason))
  readonly #parts: DispatcherParts
  readonly #graph = new Graph<Run>()
  readonly #ready: BudgetedQueue<Run>
  #isClosed = false

  constructor(parts: DispatcherParts) {
    this.id = parts.id
    this.#parts = parts
    this.#ready = new BudgetedQueue(new TurnBudget(parts.clock), (runs) => this.#advance(runs))
    this.memo = new Memo<Run>(
      {
        isOpen: ({ handle }) => !hasEnded(handle.state),
        run: (run) => this.#ready.add(run),
        reuse: (run, value, key, source) => this.#reuse(run, value, { key, source }),
        fail: (run, error) => this.#end(run, { kind: 'fail', error }),
      },
      parts.log,
    )
  }

  expectOpen(): void {
    if (!this.#isClosed) return
    throw new StateError('the workflow engine is shut down', {
      code: 'WorkflowShutDownError',
      hint: 'Make a new one.',
    })
  }

  /** Registers the call at once; whatever is wrong with it fails its handle alone. */
  call(plan: Plan, receiver: unknown, args: readonly unknown[]): EngineHandle {
    this.expectOpen()
    let found: readonly EngineHandle[] = none
    let problem: unknown = null
    try {
      found = findHandles(args)
      this.#expectOwn(found)
    } catch (error) {
      problem = error
    }
    const { context } = this.bodies
    const isFit = problem === null && found.length === 0 && isFlat(args)
    const create = isFit ? plan.createTask : null
    const enter = this.bodies.enterIn(context)
    const plain = create?.({ inNameOf: null, args, receiver, enter }) ?? null
    const task = plain ?? new DraftTask(plan.kind, plan.options.draft)
    const work = plain ?? this.#draft(receiver, args, found.length)
    const run = new Run(new EngineHandle(plan, this, task), context, work)
    this.#register(run, found)
    const { block } = context
    if (problem !== null) this.#end(run, { kind: 'fail', error: problem })
    // A body that nobody waits for any more cannot be stopped, but what it makes can.
    else if (block?.isOver) this.#end(run, { kind: 'cancel', reason: reasonOf(block) })
    else if (found.length === 0) this.#ready.add(run)
    else this.#await(run, found)
    return run.handle
  }

  cancel(handle: EngineHandle, reason: string): boolean {
    return this.#parts.registrar.cancel(handle.task, reason)
  }

  /** Hears of every end in the moment it happens. */
  ended(run: Run, outcome: Outcome): void {
    run.handle.run = null
    run.context.block?.children.delete(run)
    if (outcome.state === 'DONE') {
      run.handle.result = outcome.value
      for (const next of this.#graph.end(run)) this.#ready.add(next)
    } else {
      for (const { node, via } of this.#graph.failDependents(run)) {
        node.doomedBy = via.handle
        this.#ready.add(node)
      }
    }
    this.memo.ended(run, outcome)
    if (run.scope !== null) this.#parts.scopes.leave(run.scope)
  }

  /** From now on nothing is taken or handed over. */
  close(): void {
    this.#isClosed = true
  }

  #draft(receiver: unknown, args: readonly unknown[], dependencies: number): Draft {
    return new Draft(receiver, args, { atMs: this.#parts.clock.monotonicMs(), dependencies })
  }

  #register(run: Run, dependencies: readonly EngineHandle[]): void {
    const { handle, context } = run
    const { registrar, scopes } = this.#parts
    handle.run = run
    context.block?.children.add(run)
    if (context.scope !== null) run.scope = scopes.use(context.scope)
    run.entry = registrar.register(handle.task, {
      executable: handle.plan.executable,
      dependencies:
        dependencies.length === 0 ? none : Object.freeze(dependencies.map(({ uid }) => uid)),
      workflowId: context.scope?.id ?? null,
      owner: run,
    })
  }

  /** Waits for what has not ended; one that did not end well decides at once. */
  #await(run: Run, dependencies: readonly EngineHandle[]): void {
    const bad = dependencies.find(({ state }) => state === 'FAILED' || state === 'CANCELED')
    run.doomedBy = bad ?? null
    const missing = dependencies.flatMap((dependency) => dependency.run ?? [])
    if (bad !== undefined || missing.length === 0) return this.#ready.add(run)
    // Its signal may have ended it.
    if (!hasEnded(run.handle.state)) this.#graph.add(run, missing)
  }

  /** Takes every ready or doomed run a step further, and hands over what can run, all at once. */
  #advance(runs: readonly Run[]): void {
    const items: HandOver[] = []
    for (const run of runs) {
      if (hasEnded(run.handle.state)) continue
      if (this.#isClosed) this.#end(run, { kind: 'cancel', reason: shutDown })
      else if (run.doomedBy !== null) this.#end(run, toDependencyFailure(run.handle, run.doomedBy))
      else if (run.work instanceof Draft) this.#tryToPrepare(run, run.work)
      const { entry, work } = run
      if (work instanceof Draft || entry === null || hasEnded(run.handle.state)) continue
      items.push({ entry, work, seat: run.handle.plan.isBlock ? this.#parts.blocks : null })
    }
    if (items.length > 0) this.#parts.registrar.handOver(items)
  }

  #tryToPrepare(run: Run, draft: Draft): void {
    const { plan } = run.handle
    try {
      draft.values ??= this.#resolve(run, draft)
      if (draft.values === null) return
      if (plan.options.cache === false || draft.mustRun) return this.#prepare(run, draft)
      draft.mustRun = true
      this.memo.ask(run, memoKey(plan, draft.values))
    } catch (error) {
      this.#end(run, { kind: 'fail', error })
    }
  }

  /** Puts values in the places of handles; `null` when it has to wait once more. */
  #resolve(run: Run, draft: Draft): readonly unknown[] | null {
    const handles = findHandles(draft.args)
    this.#expectOwn(handles)
    const late = handles.filter(({ state }) => state !== 'DONE')
    if (late.length > 0) {
      draft.dependencyCount += late.length
      this.#awaitLate(run, late)
      return null
    }
    const values = handles.length === 0 ? draft.args : substitute(draft.args)
    const { dependencyCount: dependencies, createdMs } = draft
    if (dependencies === 0) return values
    const { clock, registrar } = this.#parts
    registrar.tell(TaskResolved, {
      ...about(run),
      dependencies,
      wait_seconds: (clock.monotonicMs() - createdMs) / 1000,
    })
    return values
  }

  /** Handles that were put into the arguments after the call; they may depend on this very one. */
  #awaitLate(run: Run, late: readonly EngineHandle[]): void {
    for (const { run: other } of late) {
      const ring = other === null ? null : this.#graph.path(other, run)
      if (ring !== null) throw cycleError([run, ...ring].map((one) => one.handle))
    }
    this.#await(run, late)
  }

  #prepare(run: Run, { receiver, values }: Draft): void {
    const { plan, task: inNameOf } = run.handle
    let isLater = false
    const use = (work: AnyTask): void => {
      run.work = work
      if (isLater) this.#ready.add(run)
    }
    const enter = this.bodies.enter(run)
    const later = plan.prepare({ inNameOf, args: values ?? none, receiver, enter }, use)
    isLater = true
    later?.then(undefined, (error: unknown) => this.#end(run, { kind: 'fail', error }))
  }

  #expectOwn(handles: readonly EngineHandle[]): void {
    const foreign = handles.find(({ owner }) => owner !== this)
    if (foreign !== undefined) throw foreignHandleError(foreign, this)
  }

  #reuse(run: Run, value: unknown, from: { key: string; source: string }): void {
    this.#parts.registrar.tell(ResultReused, { ...about(run), ...from })
    this.#end(run, { kind: 'complete', value })
  }

  #end({ entry }: Run, end: HeldEnd): void {
    if (entry !== null) this.#parts.registrar.end(entry, end)
  }
}

/** The fields of an event about a task that is with no backend yet. */
function about({ handle, context }: Run) {
  const { uid: task_id } = handle
  if (context.scope === null) return { backend: '', task_id }
  return { backend: '', task_id, attributes: Object.freeze({ workflow_id: context.scope.id }) }
}
