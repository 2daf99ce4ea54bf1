/** Opens the record that a session resumes, and ends the tasks that need not run again. */

import { realpathSync } from 'node:fs'
import { basename, dirname, resolve } from 'node:path'
import type { AnyTask } from '../../backends/backend.ts'
import { expectNotContinued, emptyRecordError, readSessionStart } from '../../checkpoint/chain.ts'
import { removeUnusedRecord } from '../../checkpoint/chain.ts'
import { readFailure } from '../../checkpoint/files.ts'
import { acquireLock, type CheckpointLock, lockPathOf } from '../../checkpoint/lock.ts'
import { ResultReused } from '../../events/library-events.ts'
import type { Clock } from '../../foundation/clock.ts'
import { StateError, tryRead } from '../../foundation/errors.ts'
import { parseUidNumber } from '../../foundation/ids.ts'
import { emptyAttributes } from '../../foundation/json-value.ts'
import type { Log } from '../../foundation/log.ts'
import { expectString } from '../../foundation/options.ts'
import { maskSecrets } from '../../foundation/secrets.ts'
import { definitionHash } from '../../tasks/definition-hash.ts'
import { hasEnded } from '../../tasks/lifecycle.ts'
import type { RecordParts } from '../../telemetry/options.ts'
import type { Entry } from '../entry.ts'
import type { Ledger } from '../ledger.ts'
import type { Problem } from '../routing.ts'
import { readRecord } from './read-record.ts'
import type { RecordedNodes } from './recorded-nodes.ts'
import { noInputs, type RecordedPlan, type TaskInputs } from './recorded-tasks.ts'
import { type ResolvedResumeOptions, resolveResumeOptions } from './resumption.ts'
import type { ResumedRecord, ResumeOptions } from './resumption.ts'
import { Resumption } from './resumption.ts'

interface OpenedRecord {
  readonly sessionId: string
  /** The folder of the record, to which the next file of the run is also written. */
  readonly folder: string
  /** The name of the resumed file. */
  readonly fileName: string
  readonly resumption: Resumption
  /** Held until the session closes, because only one process may continue a record. */
  readonly lock: CheckpointLock
}

export interface OpenRecordParts {
  readonly chosenId: string | null
  readonly clock: Clock
  readonly log: Log
}

export class SessionResume {
  readonly #ledger: Ledger
  #opened: OpenedRecord | null = null
  #isReading = false
  /**
   * Called once: before the first task starts, or else when the session closes, unless tasks were
   * refused.
   */
  onAccepted: (() => void) | null = null

  constructor(ledger: Ledger) {
    this.#ledger = ledger
  }

  get isActive(): boolean {
    return this.#opened !== null
  }

  /** The nodes whose agents may still hold tasks of the record. */
  get nodes(): RecordedNodes | null {
    return this.#opened?.resumption.nodes ?? null
  }

  /** Reads and locks a record. Calls `useId` with its session id before the session can be used. */
  async open(
    file: string,
    options: ResumeOptions,
    parts: OpenRecordParts & { readonly useId: (id: string) => Promise<void> },
  ): Promise<ResumedRecord> {
    this.expectNotReading()
    if (this.#opened !== null) throw new StateError('the session already resumes a record')
    this.#isReading = true
    try {
      const resolved = resolveResumeOptions(options)
      this.#opened = await openRecord(expectString('file', file), resolved, parts)
      await parts.useId(this.#opened.sessionId)
      return this.#opened.resumption.summary
    } catch (error) {
      this.#release()
      throw error
    } finally {
      this.#isReading = false
    }
  }

  expectNotReading(): void {
    if (!this.#isReading) return
    throw new StateError('resume() has not finished', {
      hint: 'Write `await session.resume(file)`.',
    })
  }

  findProblem(task: AnyTask): Problem | null {
    const { uid, spec } = task
    return this.findCallProblem(uid, spec.executable, () => definitionHash(task, this.#ledger))
  }

  /** Like `findProblem`. Calls `hash` only for a uid that is DONE in the record. */
  findCallProblem(uid: string, executable: string, hash: () => string | null): Problem | null {
    return this.#opened?.resumption.findProblem(uid, executable, hash) ?? null
  }

  accepted(): void {
    const { onAccepted } = this
    this.onAccepted = null
    onAccepted?.()
  }

  /**
   * Called for all tasks of a submission before `plan`, to detect functions with the same source.
   */
  prepare(task: AnyTask): void {
    this.#opened?.resumption.prepare(task, this.#ledger)
  }

  /** Looks up a task in the record. Must be called in the order of the tasks. */
  plan(task: AnyTask): RecordedPlan | null {
    const name = maskSecrets(task.name)
    const call = { name, hash: definitionHash(task, this.#ledger) }
    return this.#opened?.resumption.plan(task.uid, call) ?? null
  }

  /** Sets a task's plan. Called before TaskCreated, which names the recorded task as the origin. */
  setPlan(entry: Entry, plan: RecordedPlan | null): void {
    if (this.#opened === null || plan === null) return
    const { task, reuse } = plan
    entry.recorded = task
    entry.reuse = reuse
    entry.origin = task === null ? null : this.#opened.resumption.originOf(task)
  }

  planEntry(entry: Entry, inputs: TaskInputs = noInputs): void {
    if (this.#opened === null) return
    const { task, label, definitionHash: hash } = entry
    // The name is masked for the comparison, because the record contains masked names.
    const name = maskSecrets(label)
    this.setPlan(entry, this.#opened.resumption.plan(task.uid, { name, hash }, inputs))
  }

  /**
   * Ends a task as recorded; returns `false` if the task has to run. `mayEnd` is `false` if a
   * dependency of the task runs again and may return another value. In this case, neither the
   * recorded value nor an attempt that is still running is used.
   */
  endAsRecorded(entry: Entry, mayEnd: boolean): boolean {
    if (!mayEnd) entry.reuse = 'nothing'
    return this.end(entry)
  }

  /**
   * Returns an error if a task with the same function source was given a recorded value, because
   * this task must not run then; otherwise `null`.
   */
  findRefusal(entry: Entry): StateError | null {
    if (this.#opened === null) return null
    const { task, definitionHash: hash, label } = entry
    return this.#opened.resumption.findRefusal(task.uid, hash, label)
  }

  /**
   * Returns an id that identifies the task in all files of the run: its chosen uid, or where the
   * task was first created.
   */
  identifyTask({ recorded, task }: Entry): string {
    if (parseUidNumber(task.uid) === null) return task.uid
    const definedAt = recorded?.match === 'changed' ? null : recorded?.definedAt
    return definedAt ?? `${this.#opened?.resumption.file ?? 1}/${task.uid}`
  }

  /** Ends a task as recorded. Returns `false` if the task has to run instead. */
  end(entry: Entry): boolean {
    const outcome = this.#opened?.resumption.readOutcome(entry) ?? null
    if (this.#opened !== null && hasEnded(entry.lifecycle.state)) return true
    if (outcome === null) return false
    this.#ledger.end(entry, outcome, () => {
      if (outcome.kind !== 'reuse') return
      const { backend, workflowId, task } = entry
      const key = entry.recorded?.uid ?? ''
      const attributes = workflowId === null ? emptyAttributes : { workflow_id: workflowId }
      const about = { backend, task_id: task.uid, attributes }
      this.#ledger.emitter.emit(ResultReused, { ...about, key, source: 'record' })
    })
    return true
  }

  /**
   * Returns the folder of the resumed record; throws if another one is given. All files of a run
   * must be in one folder, because earlier files are looked up there.
   */
  resolveFolder(given: string | undefined): { readonly checkpointPath?: string } {
    if (this.#opened === null) return {}
    const { folder } = this.#opened
    if (given === undefined || realFolder(given) === folder) return { checkpointPath: folder }
    throw new StateError(`the resumed record is in ${folder}, not in ${given}`, {
      code: 'ResumeRefusedError',
      hint: 'Omit `checkpointPath`, or use the folder of the record.',
    })
  }

  get recordParts(): Pick<RecordParts, 'resumedFrom' | 'lock'> {
    const { fileName = null, lock = null } = this.#opened ?? {}
    return { resumedFrom: fileName, lock }
  }

  /**
   * Warns about tasks that were not created again, and unlocks the resumed record. `record` is the
   * session's new record. It is removed if tasks were refused and it has no task, so that the next
   * resume starts from the same record as this one.
   */
  async close(record: string | null): Promise<void> {
    const hasRefused = this.#opened?.resumption.hasRefused ?? false
    if (!hasRefused) this.accepted()
    this.#opened?.resumption.reportMissingTasks()
    this.#release()
    if (hasRefused && record !== null) await removeUnusedRecord(record)
  }

  #release(): void {
    this.#opened?.resumption[Symbol.dispose]()
    this.#opened?.lock.release()
    this.#opened = null
  }
}

const realFolder = (path: string): string => tryRead(() => realpathSync(path)) ?? resolve(path)

/**
 * Opens and locks a record. Rejects with a `CheckpointLockedError` while another process writes or
 * continues the record, with a `CheckpointContinuedError` if it was already continued, and with a
 * `StateError` if the session has another id.
 */
async function openRecord(
  file: string,
  options: ResolvedResumeOptions,
  { chosenId, clock, log }: OpenRecordParts,
): Promise<OpenedRecord> {
  const path = realPath(file)
  const start = await readSessionStart(path)
  if (start === null) throw await emptyRecordError(path)
  const { session_id: sessionId } = start
  if (chosenId !== null && chosenId !== sessionId) {
    throw new StateError(
      `the session has the id "${chosenId}", but the record has "${sessionId}"`,
      {
        code: 'ResumeRefusedError',
        hint: 'Omit `id`, or use the id of the record.',
      },
    )
  }
  const folder = dirname(path)
  const lock = acquireLock(lockPathOf(folder, sessionId), { purpose: 'resume' })
  try {
    // Checked while the lock is held, so that no other process can continue the record in between.
    await expectNotContinued(path)
    const nextTurn = (): Promise<void> => new Promise((done) => clock.nextTurn(done))
    const record = await readRecord(path, { keepFailures: options.keepFailed, nextTurn })
    const resumption = new Resumption(record, options, log)
    return { sessionId, folder, fileName: basename(path), resumption, lock }
  } catch (error) {
    lock.release()
    throw error
  }
}

function realPath(file: string): string {
  try {
    return realpathSync(file)
  } catch (error) {
    throw readFailure('the record', file, error)
  }
}
