/** One rank of an MPI program, as a job for the agent of its node. */

import type { Job, TaskReport } from '../../backends/backend.ts'
import { TaggedJob } from '../../backends/job-tag.ts'
import { definedFields } from '../../foundation/options.ts'
import { defaultResources } from '../../tasks/resources.ts'
import type { ProgramSpec } from '../../tasks/spec.ts'
import { toRankArguments } from './rank-scripts.ts'

/** The MPI task of a rank. */
export interface RankOwner {
  readonly job: Job
  readonly spec: ProgramSpec
  onReport(rank: RankJob, report: TaskReport): void
}

export class RankJob extends TaggedJob implements Job {
  readonly sessionId: string
  readonly uid: string
  readonly attempt = 1
  readonly spec: ProgramSpec
  readonly rank: number
  readonly task: RankOwner

  constructor(task: RankOwner, rank: number, rendezvous: string) {
    super()
    const { job, spec } = task
    this.task = task
    this.rank = rank
    this.sessionId = job.sessionId
    // Unique, because each start has a new random `rendezvous`.
    this.uid = `${job.uid}#${rendezvous.slice(-24)}.${rank}`
    this.spec = toRankSpec(spec, rank, rendezvous)
  }
}

/**
 * Omits the time limit. The task enforces it, because the task's time begins after this job's
 * start.
 */
function toRankSpec(spec: ProgramSpec, rank: number, rendezvous: string): ProgramSpec {
  const { executable, shell, resources } = spec
  const words = shell ? ['/bin/sh', '-c', executable, 'sh'] : [executable]
  const { cores, gpus, memoryMb, labels, seconds } = resources
  return {
    ...spec,
    executable: '/bin/sh',
    arguments: toRankArguments(rendezvous, rank, [...words, ...spec.arguments]),
    shell: false,
    stdin: rank === 0 ? spec.stdin : null,
    captureStdio: toRankFiles(spec.captureStdio, rank),
    timeoutSeconds: null,
    killBackground: true,
    resources: {
      ...defaultResources,
      ...definedFields({ cores, gpus, memoryMb, labels, seconds }),
    },
  }
}

function toRankFiles(
  files: ProgramSpec['captureStdio'],
  rank: number,
): ProgramSpec['captureStdio'] {
  if (files === null) return null
  const entries = Object.entries(files).map(([name, file]) => [
    name,
    file?.replaceAll('%r', String(rank)),
  ])
  return Object.fromEntries(entries) as ProgramSpec['captureStdio']
}
