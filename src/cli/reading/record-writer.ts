/**
 * Determines whether the process that writes a record is alive, even in a Slurm job on another
 * host.
 */

import { isBeingWritten, lockPathOf, type HolderJob, readRemoteJob } from '../../checkpoint/lock.ts'
import { systemClock } from '../../foundation/clock.ts'
import type { RecordWriterStates } from '../../record/record-views.ts'

/** Returns the Slurm job of the lock's holder if the job ran on another host and has ended. */
export async function findEndedJob(lock: string): Promise<HolderJob | null> {
  const job = readRemoteJob(lock)
  if (job === null) return null
  const { hasJobEnded } = await import('../../hpc/slurm/slurm-job.ts')
  const { SlurmCommands } = await import('../../hpc/slurm/slurm-commands.ts')
  return (await hasJobEnded(job, new SlurmCommands(), systemClock)) ? job : null
}

/** Responses from Slurm are reused for this time. */
const cacheMs = 10_000

export class RecordWriters implements RecordWriterStates {
  readonly #responses = new Map<string, { readonly isAlive: boolean; readonly askedMs: number }>()

  /** Never rejects. A process on another host counts as alive unless its job has ended. */
  async isWriting(folder: string, sessionId: string): Promise<boolean> {
    if (!isBeingWritten(folder, sessionId)) return false
    const lock = lockPathOf(folder, sessionId)
    const known = this.#responses.get(lock)
    const askedMs = systemClock.monotonicMs()
    if (known !== undefined && askedMs - known.askedMs < cacheMs) return known.isAlive
    const isAlive = (await findEndedJob(lock).catch(() => null)) === null
    this.#responses.set(lock, { isAlive, askedMs })
    return isAlive
  }
}
