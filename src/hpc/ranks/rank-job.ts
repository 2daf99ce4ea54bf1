/** One rank of an MPI program, as a job for the agent of its node. */

import type { Job, TaskReport } from '../../backends/backend.ts'
import { TaggedJob } from '../../backends/job-tag.ts'
import { definedFields } from '../../foundation/options.ts'
import { defaultResources } from '../../tasks/resources.ts'
import type { ProgramSpec } from '../../tasks/spec.ts'
import { toRankArguments } from './rank-scripts.ts'

/** The task to which a rank belongs. */
export interface RankOwner {
  readonly job: Job
  readonly spec: ProgramSpec
  /** Called with the agent's reports about a rank. */
  take(rank: RankJob, report: TaskReport): void
}

export class RankJob extends TaggedJob implements Job {
  readonly sessionId: string
  readonly uid: string
  readonly attempt = 1
  readonly spec: ProgramSpec
  readonly rank: number
  readonly task: RankOwner

  constructor(task: RankOwner, rank: number, meetingPoint: string) {
    super()
    const { job, spec } = task
    this.task = task
    this.rank = rank
    this.sessionId = job.sessionId
    // Unique, because `meetingPoint` has a random part that is new for each start.
    this.uid = `${job.uid}#${meetingPoint.slice(-24)}.${rank}`
    this.spec = toRankSpec(spec, rank, meetingPoint)
  }
}

/** Removes the time limit, which the task enforces, because it begins later than this job. */
function toRankSpec(spec: ProgramSpec, rank: number, meetingPoint: string): ProgramSpec {
  const { executable, shell, resources } = spec
  const words = shell ? ['/bin/sh', '-c', executable, 'sh'] : [executable]
  const { cores, gpus, memoryMb, labels, seconds } = resources
  return {
    ...spec,
    executable: '/bin/sh',
    arguments: toRankArguments(meetingPoint, rank, [...words, ...spec.arguments]),
    shell: false,
    stdin: rank === 0 ? spec.stdin : null,
    captureStdio: ownFiles(spec.captureStdio, rank),
    timeoutSeconds: null,
    killBackground: true,
    resources: {
      ...defaultResources,
      ...definedFields({ cores, gpus, memoryMb, labels, seconds }),
    },
  }
}

/** Replaces `%r` by the rank. */
function ownFiles(files: ProgramSpec['captureStdio'], rank: number): ProgramSpec['captureStdio'] {
  if (files === null) return null
  const entries = Object.entries(files).map(([name, file]) => [
    name,
    file?.replaceAll('%r', String(rank)),
  ])
  return Object.fromEntries(entries) as ProgramSpec['captureStdio']
}
