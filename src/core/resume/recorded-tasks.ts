/**
 * The tasks of an earlier run, from all files of its record; each resume adds a file. A uid that
 * the caller chose identifies the task. A task with a generated uid is identified by
 * `definition_hash`, its dependencies and its number among equal tasks. A later file may create
 * equal tasks in another order, so each task in it names the task that it continues.
 */

import type { ValueLocation } from '../../checkpoint/results-reader.ts'
import { codeDigestOf, parseUidNumber, inputDigestOf } from '../../foundation/ids.ts'
import { isMarked, removeMark } from '../../foundation/ids.ts'

/** The name of a task, and its hash; `null` if the definition cannot be compared. */
export interface TaskSignature {
  readonly name: string
  readonly hash: string | null
}

/** A task in an earlier file of the run: its uid there, and how many files ago that was. */
export interface TaskOrigin {
  readonly uid: string
  readonly filesBack: number
}

/** The recorded tasks whose values a task receives; `null` for one that is not in the record. */
export interface TaskInputs {
  readonly dependencies: readonly (RecordedTask | null)[]
  /** The inputs of the enclosing blocks; `null` if one of these blocks has to run again. */
  readonly enclosing: readonly (RecordedTask | null)[] | null
}

export const noInputs: TaskInputs = Object.freeze({ dependencies: [], enclosing: [] })

/** How a task of the record ended; `open` if it has not ended. */
export type RecordedState = 'open' | 'done' | 'failed' | 'canceled'

/** The contents of a TaskCreated event. */
interface CreatedTask extends TaskSignature {
  readonly origin: TaskOrigin | null
  /** The uids of the dependencies in the same file. */
  readonly dependencies: readonly string[]
}

/** One task of the run. The files of a run are numbered from 1. Only `RecordedTasks` changes it. */
export class RecordedTask {
  readonly number: number
  /** The uid in the latest file that contains the task. */
  uid: string
  name = ''
  hash: string | null = null
  /** Equal tasks have the same key; `null` for a chosen uid or without a hash. */
  readonly equalKey: string | null
  state: RecordedState = 'open'
  /** Whether a task with a changed definition has replaced this one. */
  isReplaced = false
  /** The number of recorded attempts. May be 0 although the task has run. */
  attempts = 0
  createdFile = 0
  attemptFile = 0
  doneFile = 0
  /** The hash of the task when its value was computed. */
  valueHash: string | null = null
  /** The hash of the task when it was last DONE. */
  doneHash: string | null = null
  value: ValueLocation | null = null
  /** The file that has the value; 0 if the value was not stored. */
  valueFile = 0
  /** For a generated uid: the uid under which the task was first created. */
  originUid = ''
  /** For a generated uid: the file in which the task was first created; otherwise 0. */
  originFile = 0
  /** For a generated uid: file and uid where this definition first appeared; otherwise `null`. */
  definedAt: string | null = null
  /**
   * How a task of the new run relates to this one. `same`: the same task with the same input
   * values. `outdated`: the same task, but with newer input values. `changed`: a task that
   * continues this one, but may differ. Only `same` tasks use recorded results.
   */
  match: 'same' | 'outdated' | 'changed' | null = null

  constructor(number: number, uid: string, equalKey: string | null) {
    this.number = number
    this.uid = uid
    this.equalKey = equalKey
  }

  /** The attempts that are known to have begun. At least 1, because a start may be missing. */
  get begunAttempts(): number {
    return Math.max(1, this.attempts)
  }
}

/** The recorded task that a task of the new run is or continues, and what the new task gets. */
export interface RecordedPlan {
  readonly task: RecordedTask | null
  readonly reuse: 'outcome' | 'running attempt' | 'nothing'
}

/** Tasks with the same hash that depend on the same tasks, in order of creation. */
interface EqualTasks {
  readonly tasks: RecordedTask[]
  /** The index of the first task that was not matched with a task of the new run. */
  next: number
}

export class RecordedTasks {
  readonly #all: RecordedTask[] = []
  /** By uid: the last task that had this uid, over all files. */
  readonly #byUid = new Map<string, RecordedTask>()
  /** Tasks with generated uids by file and uid of their first creation. */
  readonly #byOrigin = new Map<string, RecordedTask>()
  readonly #equal = new Map<string, EqualTasks>()
  /** Code digests that several functions of one file share. */
  readonly #ambiguousCodes = new Set<string>()
  /** Unfinished tasks by name and input, in reverse order for `pop`; filled on first use. */
  #unfinished: Map<string, RecordedTask[]> | null = null
  #file = 0

  /** All tasks except replaced ones, in order of creation. */
  get all(): readonly RecordedTask[] {
    return this.#all.filter(({ isReplaced }) => !isReplaced)
  }

  /** The number of the current file, from 1. */
  get file(): number {
    return this.#file
  }

  /** Starts the next file. In it, a generated uid may belong to another task than before. */
  beginFile(): void {
    this.#file++
  }

  /**
   * Adds a created task. Must be called in the order of the file. Returns `false` if the file
   * creates a task or continues an origin twice, as only a damaged file does.
   */
  create(uid: string, { name, hash: given, origin, dependencies }: CreatedTask): boolean {
    const isNamed = parseUidNumber(uid) === null
    const hash = given !== null && isNamed ? removeMark(given) : given
    if (hash !== null && isMarked(hash)) this.setAmbiguous(hash)
    const inputs = dependencies.map((one) => this.#inThisFile(one))
    const task = isNamed
      ? (this.#byUid.get(uid) ?? this.#add(uid, null))
      : this.#findOrAddGenerated(uid, origin, hash === null ? null : toEqualKey(hash, inputs))
    const isNew = this.#inThisFile(uid) === null && task.createdFile < this.#file
    this.#numberAttempts(uid, task, hash)
    this.#byUid.set(uid, task)
    task.createdFile = this.#file
    task.uid = uid
    task.name = name
    // Keeps the old string if both are equal, so that the memory of the new one can be freed.
    if (task.hash !== hash) task.hash = hash
    if (task.state !== 'done') task.state = 'open'
    return isNew
  }

  /**
   * Adds an attempt that may have begun. A task that an earlier file completed is unfinished again.
   */
  addAttempt(uid: string, attempt: number): void {
    const task = this.#inThisFile(uid)
    if (task === null) return
    if (attempt > task.attempts) this.#setAttempts(task, attempt)
    if (task.state === 'done' && task.doneFile !== this.#file) task.state = 'open'
  }

  /**
   * Sets how a task ended. A cancellation does not change a done task. A newly computed value
   * replaces an earlier one. Returns `null` for an unknown uid.
   */
  end(uid: string, state: Exclude<RecordedState, 'open'>, isReused: boolean): RecordedTask | null {
    const task = this.#inThisFile(uid)
    if (task === null) return null
    if (state === 'done') {
      // A value reused from the record keeps its hash. A value from a cache gets the current hash.
      if (!isReused || task.state !== 'done') task.valueHash = task.hash
      task.doneFile = this.#file
      task.doneHash = task.hash
      if (!isReused) task.valueFile = 0
    } else if (state === 'canceled' && task.state === 'done') return task
    task.state = state
    return task
  }

  storeLocation(uid: string, location: ValueLocation): void {
    const task = this.#inThisFile(uid)
    if (task?.doneFile !== this.#file) return
    task.value = location
    task.valueFile = this.#file
  }

  /** Returns the task that has a chosen uid; `null` if there is none, or for a generated uid. */
  findNamed(uid: string): RecordedTask | null {
    return parseUidNumber(uid) === null ? this.findUid(uid) : null
  }

  /**
   * Returns the last recorded task with this uid. A new task with the same uid may be another task.
   */
  findUid(uid: string): RecordedTask | null {
    return this.#byUid.get(uid) ?? null
  }

  /** Finds the recorded task of a task of the new run, and marks it as matched. */
  match(uid: string, hash: string | null, inputs: TaskInputs): RecordedTask | null {
    if (parseUidNumber(uid) !== null) {
      const equal = this.#takeEqual(hash, inputs)
      if (equal !== null) equal.match = 'same'
      return equal
    }
    const named = this.findUid(uid)
    // A chosen uid identifies a task, even if the values of its inputs are newer than its result.
    if (named !== null) named.match = isOutdated(named, inputs) ? 'outdated' : 'same'
    return named
  }

  /**
   * Finds the unfinished task that a task of the new run continues if its definition has changed or
   * cannot be compared. Matches by name, input and order. Calls `isUnfinished` once per task.
   */
  matchUnfinished(
    uid: string,
    { name, hash, dependencies }: TaskSignature & TaskInputs,
    isUnfinished: (task: RecordedTask) => boolean,
  ): RecordedTask | null {
    if (parseUidNumber(uid) === null) return null
    this.#unfinished ??= Map.groupBy(
      this.all.filter((one) => one.originFile > 0 && isUnfinished(one)).toReversed(),
      (one) => toUnfinishedKey(one),
    )
    const tasks = this.#unfinished.get(toUnfinishedKey({ name, hash }))
    for (let task = tasks?.pop(); task !== undefined; task = tasks?.pop()) {
      if (task.match !== null) continue
      const isSameCode = hash !== null && task.hash === hash
      const isEqual = isSameCode && task.equalKey === toEqualKey(hash, dependencies)
      // Tasks with the same hash but different recorded dependencies are different tasks.
      if (isSameCode && !isEqual && !dependencies.includes(null)) continue
      task.match = isEqual && !this.#isAmbiguous(hash) ? 'outdated' : 'changed'
      return task
    }
    return null
  }

  /** The origin of a new task that continues the recorded one; `null` for a chosen uid. */
  originOf({ originUid: uid, originFile }: RecordedTask): TaskOrigin | null {
    return originFile === 0 ? null : { uid, filesBack: this.#file - originFile }
  }

  isIdentifiable({ hash, uid }: RecordedTask): boolean {
    return (hash !== null && !this.#isAmbiguous(hash)) || parseUidNumber(uid) === null
  }

  setAmbiguous(hash: string): void {
    this.#ambiguousCodes.add(codeDigestOf(hash))
  }

  #isAmbiguous(hash: string): boolean {
    return this.#ambiguousCodes.size > 0 && this.#ambiguousCodes.has(codeDigestOf(hash))
  }

  /** The task that the current file created with this uid. */
  #inThisFile(uid: string): RecordedTask | null {
    const task = this.findUid(uid)
    return task?.uid === uid && task.createdFile === this.#file ? task : null
  }

  #add(uid: string, equalKey: string | null): RecordedTask {
    const task = new RecordedTask(this.#all.length + 1, uid, equalKey)
    this.#all.push(task)
    return task
  }

  /**
   * Returns the task that continues `origin`, or a new task. If the definition has changed, a new
   * task replaces the old one, because the new one belongs to another group of equal tasks.
   */
  #findOrAddGenerated(
    uid: string,
    origin: TaskOrigin | null,
    equalKey: string | null,
  ): RecordedTask {
    const originUid = origin?.uid ?? uid
    const originFile = this.#file - (origin?.filesBack ?? 0)
    const originKey = `${originFile}/${originUid}`
    const known = origin === null ? undefined : this.#byOrigin.get(originKey)
    if (known?.equalKey === equalKey) return known
    const task = this.#add(uid, equalKey)
    task.originUid = originUid
    task.originFile = originFile
    task.definedAt = known === undefined ? originKey : `${this.#file}/${uid}`
    this.#byOrigin.set(originKey, task)
    if (known !== undefined) {
      known.isReplaced = true
      task.createdFile = known.createdFile
    }
    if (equalKey === null) return task
    const equal = this.#equal.get(equalKey)
    if (equal === undefined) this.#equal.set(equalKey, { tasks: [task], next: 0 })
    else equal.tasks.push(task)
    return task
  }

  /**
   * Numbers attempts as the session that wrote this file did. An unfinished task with the same
   * definition keeps its number, because its attempt may still run. Any other task with a known uid
   * gets a number above the earlier attempts of that uid, even if it never starts.
   */
  #numberAttempts(uid: string, task: RecordedTask, hash: string | null): void {
    const earlierTask = this.findUid(uid)
    if (earlierTask === null) return this.#setAttempts(task, task.attempts)
    if (earlierTask === task && task.hash === hash && task.state === 'open') return
    this.#setAttempts(task, Math.max(task.attempts, earlierTask.begunAttempts + 1))
  }

  #setAttempts(task: RecordedTask, attempts: number): void {
    task.attempts = attempts
    task.attemptFile = this.#file
  }

  /** Takes the next equal task that is neither matched, replaced nor outdated. */
  #takeEqual(hash: string | null, inputs: TaskInputs): RecordedTask | null {
    if (hash === null || inputs.enclosing === null || this.#isAmbiguous(hash)) return null
    const equal = this.#equal.get(toEqualKey(hash, inputs.dependencies))
    if (equal === undefined) return null
    for (let at = equal.next; at < equal.tasks.length; at++) {
      const task = equal.tasks[at]
      if (task === undefined || task.isReplaced || task.match !== null) continue
      if (isOutdated(task, inputs)) continue
      equal.next = at + 1
      return task
    }
    return null
  }
}

/**
 * Equal tasks have the same hash and depend on the same tasks. It is not enough if they depend on
 * equal tasks, because equal tasks may have returned different values.
 */
const toEqualKey = (hash: string, dependencies: readonly (RecordedTask | null)[]): string =>
  dependencies.length === 0
    ? hash
    : `${hash}/${dependencies.map((one) => one?.number ?? 0).join(',')}`

const toUnfinishedKey = ({ name, hash }: TaskSignature): string =>
  `${inputDigestOf(hash ?? '')}/${name}`

/** Whether the task's value, or its running attempt, may be older than one of its input values. */
function isOutdated(task: RecordedTask, { dependencies, enclosing }: TaskInputs): boolean {
  if (enclosing === null) return true
  const madeInFile = task.state === 'done' ? task.valueFile : task.attemptFile
  const isLater = (one: RecordedTask | null): boolean => one !== null && one.valueFile > madeInFile
  return madeInFile > 0 && (dependencies.some(isLater) || enclosing.some(isLater))
}
