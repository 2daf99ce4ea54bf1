/** Decides for each task of a resumed run whether it runs or ends as recorded. */

import type { AnyTask, AttemptFacts } from '../../backends/backend.ts'
import { codePartOf, generatedNumber, isMarked, unmarked } from '../../foundation/ids.ts'
import { fromErrorRecord } from '../../foundation/error-record.ts'
import type { JsonObject } from '../../foundation/json-value.ts'
import type { Log } from '../../foundation/log.ts'
import { StateError } from '../../foundation/errors.ts'
import { ExecutableFailedError } from '../../foundation/task-errors.ts'
import { countText } from '../../views/readable.ts'
import { changedParts, markedCodeOf } from '../../tasks/definition-hash.ts'
import { withCauses } from '../error-causes.ts'
import type { Entry, TaskInputs, TaskOrigin, UndispatchedEnd } from '../entry.ts'
import { changedDefinition, type Problem } from '../routing.ts'
import type { EarlierRecord } from './read-record.ts'
import { type Named, noInputs, type RecordedState } from './recorded-tasks.ts'
import type { ResolvedResumeOptions, ResumedRecord } from './resume-options.ts'

/** The recorded outcome of a task that does not run again, and the task's uid in the record. */
export interface RecordedEnd {
  readonly end: UndispatchedEnd
  readonly uid: string
}

/** Why a task runs: `new` to the record, its recorded state, or why its value is not used. */
type RunReason = 'new' | 'failed' | 'canceled' | 'unfinished' | 'changed' | 'not kept'

/** A task that a resume would run. */
export interface TaskToRun {
  readonly uid: string
  readonly name: string
  readonly reason: RunReason
}

const maxListed = 20
const none: readonly never[] = []

export class Resumption implements Disposable {
  readonly summary: ResumedRecord
  readonly #record: EarlierRecord
  readonly #options: ResolvedResumeOptions
  readonly #log: Log
  /** The number of stored values that could not be read. */
  #unreadable = 0
  #hasRefused = false
  /** By code digest: the uid of the first recorded task whose outcome was used in this run. */
  readonly #given = new Map<string, string>()

  constructor(record: EarlierRecord, options: ResolvedResumeOptions, log: Log) {
    this.#record = record
    this.#options = options
    this.#log = log
    this.summary = summarize(record)
    const notKnown = countNotKnown(record)
    const notKept = this.summary.notKept - notKnown
    if (notKept > 0) {
      const text = `${countText(notKept, 'task is', 'tasks are')} DONE in the record, but without `
      log.warn('ResultsNotKept', `${text}a kept result; they run again`)
    }
    if (notKnown > 0) {
      const text = `${countText(notKnown, 'task is', 'tasks are')} DONE in the record, but cannot `
      const why = 'be distinguished from equal ones; give them a `uid`, else they run again'
      log.warn('TasksNotKnown', `${text}${why}`)
    }
    // This run counts as the next file of the chain.
    record.tasks.beginFile()
  }

  /** The problem if a task is DONE with another definition, or `null`. */
  problemOf(uid: string, executable: string, hash: () => string | null): Problem | null {
    if (this.#options.changed !== 'refuse') return null
    const row = this.#record.tasks.findNamed(uid)
    if (row === 0 || this.#record.tasks.stateOf(row) !== 'done') return null
    const changed = this.#changes(row, hash())
    if (changed.length === 0) return null
    this.#hasRefused = true
    return changedDefinition(uid, executable, changed)
  }

  /** Whether a submission was refused because of a changed task. */
  get hasRefused(): boolean {
    return this.#hasRefused
  }

  /**
   * Looks up a task in the record. The result is its row, negative if the task runs; 0 for a new
   * task. Must be called once per task, in the order in which the program creates tasks.
   */
  plan(uid: string, call: Named, inputs: TaskInputs = noInputs): number {
    const { tasks } = this.#record
    const row = tasks.take(uid, call.hash, inputs)
    if (row === 0) return -tasks.takeLeft(uid, { ...call, ...inputs }, this.#isLeft)
    return this.#endsAtOnce(row, call.hash) ? row : -row
  }

  /** Why a planned task runs; `null` if it ends as recorded. */
  reasonOf(planned: number): RunReason | null {
    if (planned > 0) return null
    const { tasks } = this.#record
    const state = tasks.stateOf(-planned)
    if (state === null) return 'new'
    if (state !== 'done') return state === 'open' ? 'unfinished' : state
    return tasks.hasValue(-planned) && tasks.isKnown(-planned) ? 'changed' : 'not kept'
  }

  /** The recorded uid of a planned task; `null` for a new task. */
  uidOf(planned: number): string | null {
    return planned === 0 ? null : this.#record.tasks.uidOf(Math.abs(planned))
  }

  /** The tasks that would run if the program created exactly the tasks of the record. */
  runsOfRecord(): TaskToRun[] {
    const { tasks } = this.#record
    const found: TaskToRun[] = []
    for (let row = 1; row <= tasks.size; row++) {
      if (tasks.stateOf(row) === null) continue
      const isEnded = tasks.isKnown(row) && this.#endsAtOnce(row, tasks.doneHashOf(row))
      const reason = this.reasonOf(isEnded ? row : -row)
      if (reason !== null) found.push({ uid: tasks.uidOf(row), name: tasks.nameOf(row), reason })
    }
    return found
  }

  /**
   * Whether a recorded task is unfinished. With `keepFailed`, FAILED tasks count as finished, so
   * that they do not run with a changed definition.
   */
  readonly #isLeft = (row: number): boolean => {
    const { tasks, failures } = this.#record
    const state = tasks.stateOf(row)
    return state !== null && state !== 'done' && !failures.has(row)
  }

  /** Called before a task is planned, to detect functions with the same source. */
  take(task: AnyTask, owner: object): void {
    const code = markedCodeOf(task, owner)
    if (isOneOfSeveral(task.uid, code)) this.#record.tasks.setAmbiguous(code)
  }

  /**
   * The error if a task must not run, because an earlier task of this run was given a recorded
   * value and its function has the same source. The two may have captured different variables.
   */
  refusalOf(uid: string, hash: string | null, name: string): StateError | null {
    if (!isOneOfSeveral(uid, hash)) return null
    this.#record.tasks.setAmbiguous(hash)
    const given = this.#given.get(codePartOf(hash))
    if (given === undefined) return null
    this.#hasRefused = true
    return ambiguousFunction(name, given)
  }

  /** The number of this run's own file in the chain, from 1. */
  get file(): number {
    return this.#record.tasks.file
  }

  /** The recorded task that a planned task continues; `null` if new or identified by its uid. */
  originOf(planned: number): TaskOrigin | null {
    return this.#record.tasks.originOf(Math.abs(planned))
  }

  /** The recorded row of a planned task; 0 if the task is new or its definition may differ. */
  rowOf(planned: number): number {
    const row = Math.abs(planned)
    return this.#record.tasks.isChanged(row) ? 0 : row
  }

  /** Where a recorded task first had its definition; `null` for row 0 or a chosen uid. */
  placeOf(row: number): string | null {
    return this.#record.tasks.placeOf(row)
  }

  /** The plan of a task that may use the record's result or attempt; otherwise 0. */
  givenTo(planned: number): number {
    return this.#record.tasks.isSame(Math.abs(planned)) ? planned : 0
  }

  /** The recorded outcome of a task; `null` if it runs, after numbering its attempt. */
  end(entry: Entry): RecordedEnd | null {
    const { planned } = entry
    const row = Math.abs(planned)
    const end = planned > 0 ? this.#endOf(row, entry.task.uid) : null
    if (end === null) this.#numberAttempts(entry, row)
    else this.#remember(entry, row)
    return end === null ? null : { end, uid: this.#record.tasks.uidOf(row) }
  }

  /** Warns about tasks that the program did not create again, and about unreadable values. */
  reportNotMade(): void {
    const { tasks } = this.#record
    const uids: string[] = []
    let count = 0
    for (let row = 1; row <= tasks.size; row++) {
      const isLeft = tasks.stateOf(row) !== null && !tasks.isTaken(row)
      if (isLeft && tasks.isKnown(row) && ++count <= maxListed) uids.push(tasks.uidOf(row))
    }
    // Without a warning after a refusal, because refused tasks were created but never taken.
    if (count > 0 && !this.#hasRefused) {
      const rest = count > uids.length ? ' …' : ''
      const were = countText(count, 'task of the record was', 'tasks of the record were')
      const text = `${were} not made again and did not run`
      this.#log.warn('TasksNotMade', `${text}: ${uids.join(', ')}${rest}`)
    }
    if (this.#unreadable > 0) {
      const text = `${this.#unreadable} kept results could not be read: their tasks ran again`
      this.#log.warn('ResultsNotRead', text)
    }
  }

  [Symbol.dispose](): void {
    for (const results of this.#record.results) results?.[Symbol.dispose]()
  }

  /** Remembers functions of tasks that are identified by their definition. */
  #remember({ task, definitionHash: hash }: Entry, row: number): void {
    if (hash === null || generatedNumber(task.uid) === null) return
    const code = codePartOf(hash)
    if (!this.#given.has(code)) this.#given.set(code, this.#record.tasks.uidOf(row))
  }

  #endsAtOnce(row: number, hash: string | null): boolean {
    const { tasks, failures } = this.#record
    const state = tasks.stateOf(row)
    if (state === 'failed') return staysFailed(failures.get(row))
    if (state !== 'done' || !tasks.hasValue(row)) return false
    return this.#options.changed === 'keep' || this.#changes(row, hash).length === 0
  }

  #endOf(row: number, uid: string): UndispatchedEnd | null {
    const { tasks, failures, results } = this.#record
    const facts = tasks.stateOf(row) === 'failed' ? failures.get(row) : undefined
    if (facts !== undefined)
      return { kind: 'fail', error: toError(uid, facts), facts: factsIn(facts) }
    const location = tasks.valueOf(row)
    if (location === null) return null
    const kept = results[location.file]?.read(location) ?? null
    if (kept === null) this.#unreadable++
    return kept === null ? null : { kind: 'reuse', value: kept.value, isRecorded: true }
  }

  /**
   * The parts that differ from the definition that computed the value; none if either definition
   * cannot be compared. If an earlier resume kept the value for this definition, the task is not
   * refused again; `rerun` still runs it, because another definition computed the value.
   */
  #changes(row: number, hash: string | null): readonly string[] {
    const { tasks } = this.#record
    const made = tasks.madeHashOf(row)
    if (made === null || hash === null || made === hash) return none
    const changed = changedParts(made, hash)
    const wasKept = tasks.doneHashOf(row) === unmarked(hash)
    return wasKept && this.#options.changed === 'refuse' ? none : changed
  }

  /**
   * An attempt that may still run keeps its number, so that its backend can continue it. Any other
   * attempt gets a new number, so that it is not mistaken for an earlier attempt.
   */
  #numberAttempts(entry: Entry, row: number): void {
    const { tasks } = this.#record
    const before = tasks.findUid(entry.task.uid)
    if (before === 0) return
    const isSame = before === row && tasks.hashOf(row) === entry.definitionHash
    const attempts = tasks.attemptsOf(before)
    if (isSame && tasks.stateOf(row) === 'open') entry.attempt = attempts
    else entry.attempt = entry.firstAttempt = attempts + 1
  }
}

/**
 * Whether several functions share this code and the caller gave no `uid` to distinguish their
 * tasks. `code` may be a whole hash.
 */
const isOneOfSeveral = (uid: string, code: string | null): code is string =>
  code !== null && isMarked(code) && generatedNumber(uid) !== null

const ambiguousFunction = (name: string, given: string): StateError => {
  const text = `function "${name}" got the recorded value of ${given}`
  return new StateError(`${text}, and now another function with the same source is called`, {
    code: 'AmbiguousFunctionError',
    hint:
      'They may have captured different variables: the next resume runs all of them again. To ' +
      'keep their values, give the tasks a `uid`, or what differs as arguments.',
  })
}

/** The number of DONE tasks that have neither a `uid` of their own nor a comparable definition. */
function countNotKnown({ tasks }: EarlierRecord): number {
  let count = 0
  for (let row = 1; row <= tasks.size; row++) {
    if (tasks.stateOf(row) === 'done' && !tasks.isKnown(row)) count++
  }
  return count
}

/**
 * A task that failed because of a dependency is not kept: if the dependency stays failed, the task
 * fails again, with an error that names tasks of this run.
 */
const staysFailed = (facts: JsonObject | undefined): boolean =>
  facts !== undefined && facts['error_type'] !== 'DependencyFailedError'

function summarize({ sessionId, files, tasks }: EarlierRecord): ResumedRecord {
  const counts: Record<RecordedState, number> = { open: 0, done: 0, failed: 0, canceled: 0 }
  let notKept = 0
  let unnamed = 0
  for (let row = 1; row <= tasks.size; row++) {
    const state = tasks.stateOf(row)
    if (state === null) continue
    counts[state]++
    if (state !== 'done') continue
    if (!tasks.hasValue(row) || !tasks.isKnown(row)) notKept++
    else if (generatedNumber(tasks.uidOf(row)) !== null) unnamed++
  }
  const { open: unfinished, ...ended } = counts
  return Object.freeze({ sessionId, files, ...ended, unfinished, notKept, unnamed })
}

/** Restores the error of a failed task from its event, which may lack details. */
function toError(uid: string, facts: JsonObject): unknown {
  const text = (key: string): string => (typeof facts[key] === 'string' ? facts[key] : '')
  const type = text('error_type')
  const message = text('error_message')
  const stack = text('error_stack')
  if (type === 'ExecutableFailedError') {
    const { exit_code: code } = facts
    const error = new ExecutableFailedError(message, {
      uid,
      exitCode: typeof code === 'number' ? code : null,
      signal: text('signal') || null,
      stdout: text('stdout_tail'),
      stderr: text('stderr_tail'),
    })
    // The stack of the failure, not of this call.
    error.stack = stack || `${type}: ${message}`
    return error
  }
  const record = { isError: true as const, type, name: type, message, stack, fields: {} }
  return fromErrorRecord(withCauses(record, facts['tutti.error_causes']))
}

/** Reads the program's details from a recorded TaskFailed event, to repeat them on resume. */
function factsIn(recorded: JsonObject): AttemptFacts {
  const { exit_code: exitCode, signal, stdout_tail: stdoutTail, stderr_tail: stderrTail } = recorded
  return {
    ...(typeof exitCode === 'number' ? { exitCode } : {}),
    ...(typeof signal === 'string' ? { signal } : {}),
    ...(typeof stdoutTail === 'string' ? { stdoutTail } : {}),
    ...(typeof stderrTail === 'string' ? { stderrTail } : {}),
  }
}
