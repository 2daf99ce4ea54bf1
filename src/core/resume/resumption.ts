/** Decides for each task of a resumed run, by its options, whether it runs or ends as recorded. */

import type { AnyTask, AttemptFacts } from '../../backends/backend.ts'
import { codeDigestOf, parseUidNumber, isMarked, removeMark } from '../../foundation/ids.ts'
import { fromErrorRecord } from '../../foundation/error-record.ts'
import type { JsonObject } from '../../foundation/json-value.ts'
import type { Log } from '../../foundation/log.ts'
import { StateError } from '../../foundation/errors.ts'
import { expectBoolean, expectKnownKeys, expectObject } from '../../foundation/options.ts'
import { expectOneOf } from '../../foundation/options.ts'
import { ExecutableFailedError } from '../../foundation/task-errors.ts'
import { countText } from '../../views/readable.ts'
import { changedParts, findCodeDigest } from '../../tasks/definition-hash.ts'
import { withCauses } from '../error-causes.ts'
import type { Entry, UndispatchedOutcome } from '../entry.ts'
import { changedDefinition, type Problem } from '../routing.ts'
import type { EarlierRecord } from './read-record.ts'
import type { RecordedNodes } from './recorded-nodes.ts'
import { noInputs, type RecordedPlan, type RecordedState } from './recorded-tasks.ts'
import type { RecordedTask, TaskInputs, TaskOrigin, TaskSignature } from './recorded-tasks.ts'

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
    // This run writes the next file of the record.
    record.tasks.beginFile()
  }

  /**
   * Returns a problem if the task is DONE in the record with another definition, or else `null`.
   */
  findProblem(uid: string, executable: string, hash: () => string | null): Problem | null {
    if (this.#options.changed !== 'refuse') return null
    const task = this.#record.tasks.findNamed(uid)
    if (task?.state !== 'done') return null
    const changed = this.#findChanges(task, hash())
    if (changed.length === 0) return null
    this.#hasRefused = true
    return changedDefinition(uid, executable, changed)
  }

  get hasRefused(): boolean {
    return this.#hasRefused
  }

  /**
   * Looks up a task in the record. Must be called once per task, in the order in which the program
   * creates tasks.
   */
  plan(uid: string, call: TaskSignature, inputs: TaskInputs = noInputs): RecordedPlan {
    const { tasks } = this.#record
    const task = tasks.match(uid, call.hash, inputs)
    if (task === null) {
      const continued = tasks.matchUnfinished(uid, { ...call, ...inputs }, this.#isUnfinished)
      return { task: continued, reuse: 'nothing' }
    }
    if (task.match !== 'same') return { task, reuse: 'nothing' }
    return { task, reuse: this.#endsAsRecorded(task, call.hash) ? 'outcome' : 'running attempt' }
  }

  findRunReason({ task, reuse }: RecordedPlan): RunReason | null {
    return reuse === 'outcome' ? null : this.#reasonToRun(task)
  }

  /** The tasks that would run if the program created exactly the tasks of the record. */
  previewRecord(): TaskToRun[] {
    const { tasks } = this.#record
    const running = tasks.all.filter((task) => {
      return !tasks.isIdentifiable(task) || !this.#endsAsRecorded(task, task.doneHash)
    })
    return running.map((task) => {
      return { uid: task.uid, name: task.name, reason: this.#reasonToRun(task) }
    })
  }

  #reasonToRun(task: RecordedTask | null): RunReason {
    if (task === null) return 'new'
    if (task.state !== 'done') return task.state === 'open' ? 'unfinished' : task.state
    const isChanged = task.valueFile > 0 && this.#record.tasks.isIdentifiable(task)
    return isChanged ? 'changed' : 'not kept'
  }

  /**
   * Whether a recorded task is unfinished. With `keepFailed`, FAILED tasks count as finished, so
   * that they do not run with a changed definition.
   */
  readonly #isUnfinished = (task: RecordedTask): boolean =>
    task.state !== 'done' && !this.#record.failures.has(task)

  prepare(task: AnyTask, owner: object): void {
    const code = findCodeDigest(task, owner)
    if (isAmbiguousCode(task.uid, code)) this.#record.tasks.setAmbiguous(code)
  }

  /**
   * Functions with the same source may have captured different variables. Returns an error if an
   * earlier task of this run has the same source and was given a recorded value.
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

  get nodes(): RecordedNodes {
    return this.#record.nodes
  }

  originOf(task: RecordedTask): TaskOrigin | null {
    return this.#record.tasks.originOf(task)
  }

  /**
   * Returns the recorded outcome of a task; `null` if the task has to run. In that case, its
   * attempts continue the recorded numbers.
   */
  readOutcome(entry: Entry): UndispatchedOutcome | null {
    const { reuse, recorded, task } = entry
    const isReusable = reuse === 'outcome' && recorded !== null
    const outcome = isReusable ? this.#readOutcome(recorded, task.uid) : null
    if (outcome === null) this.#numberAttempts(entry)
    else this.#noteReuse(entry)
    return outcome
  }

  reportMissingTasks(): void {
    const { tasks } = this.#record
    const missing = tasks.all.filter((one) => one.match === null && tasks.isIdentifiable(one))
    const { length: count } = missing
    // No warning after a refusal, because refused tasks were created again but never looked up.
    if (count > 0 && !this.#hasRefused) {
      const uids = missing.slice(0, maxListed).map(({ uid }) => uid)
      const ellipsis = count > uids.length ? ' …' : ''
      const subject = countText(count, 'task of the record was', 'tasks of the record were')
      const text = `${subject} not created again and did not run`
      this.#log.warn('TasksNotMade', `${text}: ${uids.join(', ')}${ellipsis}`)
    }
    if (this.#unreadable > 0) {
      const text = `${this.#unreadable} kept results could not be read: their tasks ran again`
      this.#log.warn('ResultsNotRead', text)
    }
  }

  [Symbol.dispose](): void {
    for (const results of this.#record.results) results?.[Symbol.dispose]()
  }

  #noteReuse({ task, definitionHash: hash, recorded }: Entry): void {
    if (hash === null || recorded === null || parseUidNumber(task.uid) === null) return
    const code = codeDigestOf(hash)
    if (!this.#reusedCode.has(code)) this.#reusedCode.set(code, recorded.uid)
  }

  #endsAsRecorded(task: RecordedTask, hash: string | null): boolean {
    if (task.state === 'failed') return staysFailed(this.#record.failures.get(task))
    if (task.state !== 'done' || task.valueFile === 0) return false
    return this.#options.changed === 'keep' || this.#findChanges(task, hash).length === 0
  }

  #readOutcome(task: RecordedTask, uid: string): UndispatchedOutcome | null {
    const { failures, results } = this.#record
    const facts = task.state === 'failed' ? failures.get(task) : undefined
    if (facts !== undefined)
      return { kind: 'fail', error: restoreError(uid, facts), facts: readFacts(facts) }
    const { value, valueFile } = task
    if (value === null || valueFile === 0) return null
    const stored = results[valueFile - 1]?.read(value) ?? null
    if (stored === null) this.#unreadable++
    return stored === null ? null : { kind: 'reuse', value: stored.value, isRecorded: true }
  }

  /**
   * Returns the parts of the definition that differ from the definition that computed the value.
   * Empty if either definition cannot be compared. If an earlier resume kept the value for this
   * definition, the task is not refused again, but `rerun` still runs it.
   */
  #findChanges({ valueHash, doneHash }: RecordedTask, hash: string | null): readonly string[] {
    if (valueHash === null || hash === null || valueHash === hash) return noChanges
    const changed = changedParts(valueHash, hash)
    const wasKept = doneHash === removeMark(hash)
    return wasKept && this.#options.changed === 'refuse' ? noChanges : changed
  }

  /**
   * An attempt that may still run keeps its number, so that its backend can continue it. Any other
   * attempt gets a new number, so that it is not mistaken for an earlier attempt.
   */
  #numberAttempts(entry: Entry): void {
    const { task, recorded, reuse, definitionHash } = entry
    const earlierTask = this.#record.tasks.findUid(task.uid)
    if (earlierTask === null) return
    const { begunAttempts: attempts, hash, state } = earlierTask
    const isSame = earlierTask === recorded && reuse !== 'nothing' && hash === definitionHash
    if (isSame && state === 'open') entry.attempt = attempts
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
  for (const task of tasks.all) {
    counts[task.state]++
    if (task.state !== 'done') continue
    const isIdentifiable = tasks.isIdentifiable(task)
    if (!isIdentifiable) notKnown++
    if (task.valueFile === 0 || !isIdentifiable) notKept++
    else if (parseUidNumber(task.uid) !== null) unnamed++
  }
  const { open: unfinished, ...ended } = counts
  const taskCounts = { ...ended, unfinished, notKept, unnamed }
  return { summary: Object.freeze({ sessionId, files, ...taskCounts }), notKnown }
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

/** How a session continues a record. */
export interface ResumeOptions {
  /**
   * How to treat DONE tasks whose code, input or dependencies have changed: `refuse` (default)
   * rejects their submission, `keep` keeps their results, `rerun` runs them again. Applies only to
   * tasks with a `uid` option: without it, a changed task is a new task.
   */
  readonly changed?: 'refuse' | 'keep' | 'rerun'
  /** Whether tasks that FAILED stay FAILED instead of running again. Default `false`. */
  readonly keepFailed?: boolean
}

/** The record that a session resumes, and the number of tasks by state over all its files. */
export interface ResumedRecord {
  readonly sessionId: string
  /** The files of the run, the oldest first. */
  readonly files: readonly string[]
  readonly done: number
  readonly failed: number
  readonly canceled: number
  readonly unfinished: number
  /** The number of done tasks that run again, because their results were not kept. */
  readonly notKept: number
  /** The number of kept tasks without a `uid` option, which are identified by their definition. */
  readonly unnamed: number
}

export type ResolvedResumeOptions = Required<ResumeOptions>

export function resolveResumeOptions(given: unknown): ResolvedResumeOptions {
  const options: ResumeOptions = expectObject('options', given)
  expectKnownKeys('resume', options, ['changed', 'keepFailed'])
  const { changed = 'refuse', keepFailed = false } = options
  return {
    changed: expectOneOf('changed', changed, ['refuse', 'keep', 'rerun']),
    keepFailed: expectBoolean('keepFailed', keepFailed),
  }
}
