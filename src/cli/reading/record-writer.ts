/** Determines whether the process that writes a record is alive, also in a Slurm job elsewhere. */

import { isBeingWritten, lockPathOf, type HolderJob, remoteJobOf } from '../../checkpoint/lock.ts'
import { systemClock } from '../../foundation/clock.ts'
import type { RecordWriterStates } from '../../record/record-views.ts'

/** The job of a lock holder on another host, if Slurm reports that the job has ended. */
export async function endedJobOf(lock: string): Promise<HolderJob | null> {
  const job = remoteJobOf(lock)
  if (job === null) return null
  const { hasJobEnded } = await import('../../hpc/slurm/slurm-job.ts')
  const { SlurmCommands } = await import('../../hpc/slurm/slurm-commands.ts')
  return (await hasJobEnded(job, new SlurmCommands(), systemClock)) ? job : null
}

/** How long a response from Slurm is reused. */
const freshMs = 10_000

/** Caches responses for readers that ask repeatedly. */
export class RecordWriters implements RecordWriterStates {
  readonly #answers = new Map<string, { readonly isAlive: boolean; readonly askedMs: number }>()

  /** Never rejects. A process on another host counts as alive unless its job has ended. */
  async isWriting(folder: string, sessionId: string): Promise<boolean> {
    if (!isBeingWritten(folder, sessionId)) return false
    const lock = lockPathOf(folder, sessionId)
    const known = this.#answers.get(lock)
    const askedMs = systemClock.monotonicMs()
    if (known !== undefined && askedMs - known.askedMs < freshMs) return known.isAlive
    const isAlive = (await endedJobOf(lock).catch(() => null)) === null
    this.#answers.set(lock, { isAlive, askedMs })
    return isAlive
  }
}
