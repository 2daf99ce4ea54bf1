/** Decides for each task of a resumed run whether it runs or ends as recorded. */

import type { AnyTask, AttemptFacts } from '../../backends/backend.ts'
import { codeDigestOf, parseUidNumber, isMarked, removeMark } from '../../foundation/ids.ts'
import { fromErrorRecord } from '../../foundation/error-record.ts'
import type { JsonObject } from '../../foundation/json-value.ts'
import type { Log } from '../../foundation/log.ts'
import { StateError } from '../../foundation/errors.ts'
import { ExecutableFailedError } from '../../foundation/task-errors.ts'
import { countText } from '../../views/readable.ts'
import { changedParts, findCodeDigest } from '../../tasks/definition-hash.ts'
import { withCauses } from '../error-causes.ts'
import type { Entry, TaskInputs, TaskOrigin, UndispatchedOutcome } from '../entry.ts'
import { changedDefinition, type Problem } from '../routing.ts'
import type { EarlierRecord } from './read-record.ts'
import { type TaskSignature, noInputs, type RecordedState } from './recorded-tasks.ts'
import type { ResolvedResumeOptions, ResumedRecord } from './resume-options.ts'

export interface RecordedOutcome {
  readonly end: UndispatchedOutcome
  readonly uid: string
}

type RunReason = 'new' | 'failed' | 'canceled' | 'unfinished' | 'changed' | 'not kept'

export interface TaskToRun {
  readonly uid: string
  readonly name: string
  readonly reason: RunReason
}

const maxListed = 20
const noChanges: readonly never[] = []

export class Resumption implements Disposable {
  readonly summary: ResumedRecord
  readonly #record: EarlierRecord
  readonly #options: ResolvedResumeOptions
  readonly #log: Log
  #unreadable = 0
  #hasRefused = false
  /** By code digest: the uid of the first task whose recorded outcome was used in this run. */
  readonly #reusedCode = new Map<string, string>()

  constructor(record: EarlierRecord, options: ResolvedResumeOptions, log: Log) {
    this.#record = record
    this.#options = options
    this.#log = log
    const { summary, notKnown } = summarize(record)
    this.summary = summary
    const notKept = this.summary.notKept - notKnown
    if (notKept > 0) {
      const text = `${countText(notKept, 'task is', 'tasks are')} DONE in the record, but without `
      log.warn('ResultsNotKept', `${text}a kept result; ${runAgain(notKept)}`)
    }
    if (notKnown > 0) {
      const text = `${countText(notKnown, 'task is', 'tasks are')} DONE in the record, but cannot `
      const why = `be identified without a \`uid\`; ${runAgain(notKnown)}`
      log.warn('TasksNotKnown', `${text}${why}`)
    }
    // This run counts as the next file of the chain.
    record.tasks.beginFile()
  }

  /**
   * Returns a problem if the task is DONE in the record with another definition, or else `null`.
   */
  findProblem(uid: string, executable: string, hash: () => string | null): Problem | null {
    if (this.#options.changed !== 'refuse') return null
    const row = this.#record.tasks.findNamed(uid)
    if (row === 0 || this.#record.tasks.stateOf(row) !== 'done') return null
    const changed = this.#findChanges(row, hash())
    if (changed.length === 0) return null
    this.#hasRefused = true
    return changedDefinition(uid, executable, changed)
  }

  get hasRefused(): boolean {
    return this.#hasRefused
  }

  /**
   * Returns the row of a task, the negative row if the task has to run, or 0 for a new task. Must
   * be called once per task, in the order in which the program creates tasks.
   */
  plan(uid: string, call: TaskSignature, inputs: TaskInputs = noInputs): number {
    const { tasks } = this.#record
    const row = tasks.match(uid, call.hash, inputs)
    if (row === 0) return -tasks.matchUnfinished(uid, { ...call, ...inputs }, this.#isUnfinished)
    return this.#endsAsRecorded(row, call.hash) ? row : -row
  }

  findRunReason(planned: number): RunReason | null {
    if (planned > 0) return null
    const { tasks } = this.#record
    const state = tasks.stateOf(-planned)
    if (state === null) return 'new'
    if (state !== 'done') return state === 'open' ? 'unfinished' : state
    return tasks.hasValue(-planned) && tasks.isIdentifiable(-planned) ? 'changed' : 'not kept'
  }

  uidOf(planned: number): string | null {
    return planned === 0 ? null : this.#record.tasks.uidOf(Math.abs(planned))
  }

  /** The tasks that would run if the program created exactly the tasks of the record. */
  previewRecord(): TaskToRun[] {
    const { tasks } = this.#record
    const found: TaskToRun[] = []
    for (let row = 1; row <= tasks.size; row++) {
      if (tasks.stateOf(row) === null) continue
      const isEnded = tasks.isIdentifiable(row) && this.#endsAsRecorded(row, tasks.doneHashOf(row))
      const reason = this.findRunReason(isEnded ? row : -row)
      if (reason !== null) found.push({ uid: tasks.uidOf(row), name: tasks.nameOf(row), reason })
    }
    return found
  }

  /**
   * Whether a recorded task is unfinished. With `keepFailed`, FAILED tasks count as finished, so
   * that they do not run with a changed definition.
   */
  readonly #isUnfinished = (row: number): boolean => {
    const { tasks, failures } = this.#record
    const state = tasks.stateOf(row)
    return state !== null && state !== 'done' && !failures.has(row)
  }

  prepare(task: AnyTask, owner: object): void {
    const code = findCodeDigest(task, owner)
    if (isAmbiguousCode(task.uid, code)) this.#record.tasks.setAmbiguous(code)
  }

  /**
   * Returns an error if an earlier task of this run, whose function has the same source, was given
   * a recorded value: the two functions may have captured different variables.
   */
  findRefusal(uid: string, hash: string | null, name: string): StateError | null {
    if (!isAmbiguousCode(uid, hash)) return null
    this.#record.tasks.setAmbiguous(hash)
    const given = this.#reusedCode.get(codeDigestOf(hash))
    if (given === undefined) return null
    this.#hasRefused = true
    return ambiguousFunctionError(name, given)
  }

  get file(): number {
    return this.#record.tasks.file
  }

  originOf(planned: number): TaskOrigin | null {
    return this.#record.tasks.originOf(Math.abs(planned))
  }

  /** The recorded row of a planned task; 0 if the task is new or its definition may differ. */
  rowOf(planned: number): number {
    const row = Math.abs(planned)
    return this.#record.tasks.isChanged(row) ? 0 : row
  }

  definitionOrigin(row: number): string | null {
    return this.#record.tasks.definitionOrigin(row)
  }

  /** Returns `planned` if the task may use the recorded result or attempt; otherwise 0. */
  usablePlan(planned: number): number {
    return this.#record.tasks.isSameTask(Math.abs(planned)) ? planned : 0
  }

  /**
   * Returns the recorded outcome of a task; `null` if the task has to run. Its attempts then
   * continue the recorded numbers.
   */
  end(entry: Entry): RecordedOutcome | null {
    const { planned } = entry
    const row = Math.abs(planned)
    const end = planned > 0 ? this.#readOutcome(row, entry.task.uid) : null
    if (end === null) this.#numberAttempts(entry, row)
    else this.#noteReuse(entry, row)
    return end === null ? null : { end, uid: this.#record.tasks.uidOf(row) }
  }

  reportMissingTasks(): void {
    const { tasks } = this.#record
    const uids: string[] = []
    let count = 0
    for (let row = 1; row <= tasks.size; row++) {
      const isLeft = tasks.stateOf(row) !== null && !tasks.isMatched(row)
      if (isLeft && tasks.isIdentifiable(row) && ++count <= maxListed) uids.push(tasks.uidOf(row))
    }
    // No warning after a refusal, because refused tasks were created again but never looked up.
    if (count > 0 && !this.#hasRefused) {
      const rest = count > uids.length ? ' …' : ''
      const were = countText(count, 'task of the record was', 'tasks of the record were')
      const text = `${were} not created again and did not run`
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

  #noteReuse({ task, definitionHash: hash }: Entry, row: number): void {
    if (hash === null || parseUidNumber(task.uid) === null) return
    const code = codeDigestOf(hash)
    if (!this.#reusedCode.has(code)) this.#reusedCode.set(code, this.#record.tasks.uidOf(row))
  }

  #endsAsRecorded(row: number, hash: string | null): boolean {
    const { tasks, failures } = this.#record
    const state = tasks.stateOf(row)
    if (state === 'failed') return staysFailed(failures.get(row))
    if (state !== 'done' || !tasks.hasValue(row)) return false
    return this.#options.changed === 'keep' || this.#findChanges(row, hash).length === 0
  }

  #readOutcome(row: number, uid: string): UndispatchedOutcome | null {
    const { tasks, failures, results } = this.#record
    const facts = tasks.stateOf(row) === 'failed' ? failures.get(row) : undefined
    if (facts !== undefined)
      return { kind: 'fail', error: restoreError(uid, facts), facts: readFacts(facts) }
    const location = tasks.valueOf(row)
    if (location === null) return null
    const kept = results[location.file]?.read(location) ?? null
    if (kept === null) this.#unreadable++
    return kept === null ? null : { kind: 'reuse', value: kept.value, isRecorded: true }
  }

  /**
   * Returns the parts of the definition that differ from the definition that computed the value.
   * Empty if either definition cannot be compared. If an earlier resume kept the value for this
   * definition, the task is not refused again, but `rerun` still runs it.
   */
  #findChanges(row: number, hash: string | null): readonly string[] {
    const { tasks } = this.#record
    const made = tasks.valueHashOf(row)
    if (made === null || hash === null || made === hash) return noChanges
    const changed = changedParts(made, hash)
    const wasKept = tasks.doneHashOf(row) === removeMark(hash)
    return wasKept && this.#options.changed === 'refuse' ? noChanges : changed
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
const isAmbiguousCode = (uid: string, code: string | null): code is string =>
  code !== null && isMarked(code) && parseUidNumber(uid) !== null

const ambiguousFunctionError = (name: string, given: string): StateError => {
  const text = `function "${name}" got the recorded value of ${given}`
  return new StateError(`${text}, and now another function with the same source is called`, {
    code: 'AmbiguousFunctionError',
    hint:
      'They may have captured different variables: the next resume runs all of them again. To ' +
      'keep their values, give the tasks a `uid`, or pass what differs as arguments.',
  })
}

/**
 * Whether a failed task stays failed. A task that failed because of a dependency does not: if the
 * dependency stays failed, the task fails again, with an error that names tasks of this run.
 */
const staysFailed = (facts: JsonObject | undefined): boolean =>
  facts !== undefined && facts['error_type'] !== 'DependencyFailedError'

/** `notKnown` counts DONE tasks that have neither a chosen `uid` nor a comparable definition. */
function summarize({ sessionId, files, tasks }: EarlierRecord): {
  readonly summary: ResumedRecord
  readonly notKnown: number
} {
  const counts: Record<RecordedState, number> = { open: 0, done: 0, failed: 0, canceled: 0 }
  let [notKept, notKnown, unnamed] = [0, 0, 0]
  for (let row = 1; row <= tasks.size; row++) {
    const state = tasks.stateOf(row)
    if (state === null) continue
    counts[state]++
    if (state !== 'done') continue
    if (!tasks.isIdentifiable(row)) notKnown++
    if (!tasks.hasValue(row) || !tasks.isIdentifiable(row)) notKept++
    else if (parseUidNumber(tasks.uidOf(row)) !== null) unnamed++
  }
  const { open: unfinished, ...ended } = counts
  const counted = { ...ended, unfinished, notKept, unnamed }
  return { summary: Object.freeze({ sessionId, files, ...counted }), notKnown }
}

function restoreError(uid: string, facts: JsonObject): unknown {
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
    // Keeps the stack of the failure instead of the stack of this call.
    error.stack = stack || `${type}: ${message}`
    return error
  }
  const record = { isError: true as const, type, name: type, message, stack, fields: {} }
  return fromErrorRecord(withCauses(record, facts['tutti.error_causes']))
}

const runAgain = (count: number): string => (count === 1 ? 'it runs again' : 'they run again')

function readFacts(recorded: JsonObject): AttemptFacts {
  const { exit_code: exitCode, signal, stdout_tail: stdoutTail, stderr_tail: stderrTail } = recorded
  return {
    ...(typeof exitCode === 'number' ? { exitCode } : {}),
    ...(typeof signal === 'string' ? { signal } : {}),
    ...(typeof stdoutTail === 'string' ? { stdoutTail } : {}),
    ...(typeof stderrTail === 'string' ? { stderrTail } : {}),
  }
}
