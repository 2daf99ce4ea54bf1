/** The session's side of a resume: the record that it continues, and how recorded tasks end. */

import { realpathSync } from 'node:fs'
import { basename, dirname, resolve } from 'node:path'
import type { AnyTask } from '../../backends/backend.ts'
import { expectNotContinued, noFirstLine, readSessionStart } from '../../checkpoint/chain.ts'
import { removeUnused } from '../../checkpoint/chain.ts'
import { readFailure } from '../../checkpoint/files.ts'
import { acquireLock, type CheckpointLock, lockPathOf } from '../../checkpoint/lock.ts'
import { ResultReused } from '../../events/library-events.ts'
import type { Clock } from '../../foundation/clock.ts'
import { StateError } from '../../foundation/errors.ts'
import { generatedNumber } from '../../foundation/ids.ts'
import { emptyAttributes } from '../../foundation/json-value.ts'
import type { Log } from '../../foundation/log.ts'
import { expectString } from '../../foundation/options.ts'
import { maskSecrets } from '../../foundation/secrets.ts'
import { definitionHash } from '../../tasks/definition-hash.ts'
import { hasEnded } from '../../tasks/lifecycle.ts'
import type { RecordParts } from '../../telemetry/options.ts'
import type { RecordedRun } from '../admission.ts'
import type { Entry, TaskInputs } from '../entry.ts'
import type { Ledger } from '../ledger.ts'
import type { Problem } from '../routing.ts'
import { readRecord } from './read-record.ts'
import { noInputs } from './recorded-tasks.ts'
import { type ResolvedResumeOptions, resolveResumeOptions } from './resume-options.ts'
import type { ResumedRecord, ResumeOptions } from './resume-options.ts'
import { Resumption } from './resumption.ts'

interface OpenedRecord {
  readonly sessionId: string
  /** The folder for the next file of the run, and the name of the previous one. */
  readonly folder: string
  readonly fileName: string
  readonly resumption: Resumption
  /** Held from now on, because only one process may continue a record. */
  readonly lock: CheckpointLock
}

export interface OpenRecordParts {
  /** The id that the caller chose for the session, if any. */
  readonly ownId: string | null
  readonly clock: Clock
  readonly log: Log
}

/** What creators of deferred tasks need to know about a resume. */
export type ResumedTasks = Pick<
  SessionResume,
  'isActive' | 'problemOfCall' | 'refusalOf' | 'firstPlaceOf' | 'endAsRecorded'
>

export class SessionResume implements RecordedRun {
  readonly #ledger: Ledger
  #opened: OpenedRecord | null = null
  #isReading = false
  /** Called once, before the first task starts, but not if the first submission is refused. */
  onAccepted: (() => void) | null = null

  constructor(ledger: Ledger) {
    this.#ledger = ledger
  }

  get isActive(): boolean {
    return this.#opened !== null
  }

  /** `useId` is called with the record's id before the session can be used. */
  async open(
    file: string,
    options: ResumeOptions,
    parts: OpenRecordParts & { readonly useId: (id: string) => Promise<void> },
  ): Promise<ResumedRecord> {
    this.expectNotReading()
    if (this.#opened !== null) throw new StateError('the session resumes a record already')
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

  /** Nothing may be submitted until the record has been read. */
  expectNotReading(): void {
    if (!this.#isReading) return
    throw new StateError('resume() is under way', { hint: 'Write `await session.resume(file)`.' })
  }

  problemOf(task: AnyTask): Problem | null {
    const { uid, spec } = task
    return this.problemOfCall(uid, spec.executable, () => definitionHash(task, this.#ledger))
  }

  /** Like `problemOf`; `hash` is called only for a uid that is DONE in the record. */
  problemOfCall(uid: string, executable: string, hash: () => string | null): Problem | null {
    return this.#opened?.resumption.problemOf(uid, executable, hash) ?? null
  }

  accepted(): void {
    const { onAccepted } = this
    this.onAccepted = null
    onAccepted?.()
  }

  prepare(task: AnyTask): void {
    this.#opened?.resumption.take(task, this.#ledger)
  }

  plan(task: AnyTask): number {
    if (this.#opened === null) return 0
    const name = maskSecrets(task.name)
    const call = { name, hash: definitionHash(task, this.#ledger) }
    return this.#opened.resumption.plan(task.uid, call)
  }

  /** Called before TaskCreated, which names the task of the record. */
  setPlan(entry: Entry, planned: number): void {
    if (this.#opened === null) return
    const { resumption } = this.#opened
    entry.planned = resumption.givenTo(planned)
    entry.origin = resumption.originOf(planned)
    entry.row = resumption.rowOf(planned)
  }

  /** Like `setPlan`, for a task that has not been planned yet. */
  planEntry(entry: Entry, inputs: TaskInputs = noInputs): void {
    if (this.#opened === null) return
    const { task, label, definitionHash: hash } = entry
    // As in the record.
    const name = maskSecrets(label)
    this.setPlan(entry, this.#opened.resumption.plan(task.uid, { name, hash }, inputs))
  }

  /**
   * Ends a deferred task as recorded; `false` if it has to run. `mayEnd` is `false` if it gets a
   * value from a task that runs again: that value may differ, so an attempt that still runs with
   * the earlier value is not continued either.
   */
  endAsRecorded(entry: Entry, mayEnd: boolean): boolean {
    if (!mayEnd) entry.planned = 0
    return this.end(entry)
  }

  /** Why a deferred task must not run; `null` if it may. */
  refusalOf(entry: Entry): StateError | null {
    if (this.#opened === null) return null
    const { task, definitionHash: hash, label } = entry
    return this.#opened.resumption.refusalOf(task.uid, hash, label)
  }

  /** Where the task was created first, over all files of the run. */
  firstPlaceOf({ row, task }: Entry): string {
    const { resumption } = this.#opened ?? {}
    if (generatedNumber(task.uid) === null) return task.uid
    return resumption?.placeOf(row) ?? `${resumption?.file ?? 1}/${task.uid}`
  }

  end(entry: Entry): boolean {
    if (this.#opened === null) return false
    const recorded = this.#opened.resumption.end(entry)
    if (hasEnded(entry.life.state)) return true
    if (recorded === null) return false
    const { end, uid: key } = recorded
    this.#ledger.end(entry, end, () => {
      if (end.kind !== 'reuse') return
      const { backend, workflowId, task } = entry
      const attributes = workflowId === null ? emptyAttributes : { workflow_id: workflowId }
      const about = { backend, task_id: task.uid, attributes }
      this.#ledger.emitter.emit(ResultReused, { ...about, key, source: 'record' })
    })
    return true
  }

  /** All files of a run must be in one folder, because a predecessor is looked up there. */
  folderFor(given: string | undefined): { readonly checkpointPath?: string } {
    if (this.#opened === null) return {}
    const { folder } = this.#opened
    if (given === undefined || realFolder(given) === folder) return { checkpointPath: folder }
    throw new StateError(`the resumed record is in ${folder}, not in ${given}`, {
      code: 'ResumeRefusedError',
      hint: 'Leave `checkpointPath` out, or give the folder of the record.',
    })
  }

  /** What the session's own record says about the one that it continues. */
  get recordParts(): Pick<RecordParts, 'resumedFrom' | 'lock'> {
    const { fileName = null, lock = null } = this.#opened ?? {}
    return { resumedFrom: fileName, lock }
  }

  /**
   * Warns about tasks that were not created again, and unlocks the record. `record` is the
   * session's own, which is removed if all of its tasks were refused: the next resume starts from
   * the same record as this one.
   */
  async close(record: string | null): Promise<void> {
    const hasRefused = this.#opened?.resumption.hasRefused ?? false
    if (!hasRefused) this.accepted()
    this.#opened?.resumption.reportNotMade()
    this.#release()
    if (hasRefused && record !== null) await removeUnused(record)
  }

  #release(): void {
    this.#opened?.resumption[Symbol.dispose]()
    this.#opened?.lock.release()
    this.#opened = null
  }
}

function realFolder(path: string): string {
  try {
    return realpathSync(path)
  } catch {
    return resolve(path)
  }
}

/**
 * Rejects with a `CheckpointError` whose code is `CheckpointLockedError` while another process
 * writes or continues the record, and `CheckpointContinuedError` if one has done so; with a
 * `StateError` for a session with another id.
 */
async function openRecord(
  file: string,
  options: ResolvedResumeOptions,
  { ownId, clock, log }: OpenRecordParts,
): Promise<OpenedRecord> {
  const path = realPath(file)
  const start = await readSessionStart(path)
  if (start === null) throw await noFirstLine(path)
  const { session_id: sessionId } = start
  if (ownId !== null && ownId !== sessionId) {
    throw new StateError(`the session has the id "${ownId}", and the record "${sessionId}"`, {
      code: 'ResumeRefusedError',
      hint: 'Leave `id` out, or give the id of the record.',
    })
  }
  const folder = dirname(path)
  const lock = acquireLock(lockPathOf(folder, sessionId), 'resume')
  try {
    // Checked after locking, so that no other process can continue it from now on.
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
