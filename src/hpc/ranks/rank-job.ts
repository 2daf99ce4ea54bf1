/**
 * One rank of an MPI program, as a job for the agent of its node, and the scripts that connect a
 * process to its rank: an agent runs the process, and a step of the scheduler supplies the rank.
 * One FIFO passes the variables. Another FIFO is closed to report the exit.
 */

import { randomBytes } from 'node:crypto'
import type { Job, TaskReport } from '../../backends/backend.ts'
import { TaggedJob } from '../../backends/job-tag.ts'
import { definedFields } from '../../foundation/options.ts'
import { defaultResources } from '../../tasks/resources.ts'
import type { ProgramSpec } from '../../tasks/spec.ts'

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

/** Unlike other temporary folders, /tmp is shared by all steps of a job on a node. */
const folder = '/tmp'

/** Returns an unguessable path for the FIFOs of a task. */
export const newRendezvous = (): string =>
  `${folder}/tutti-ranks-${randomBytes(12).toString('hex')}`

/** Checks who owns the FIFOs, because another user may have created them. */
const checkFifos = `for one in "$f.env" "$f.end"; do
  [ -p "$one" ] && [ -O "$one" ] || { echo "$one is not our FIFO" >&2; exit 125; }
done`

/** Variables that a rank takes from its task and not from the step. */
const ownVariables = [
  'PATH PWD OLDPWD HOME USER LOGNAME SHELL SHLVL TMPDIR LANG LD_LIBRARY_PATH HOSTNAME _',
  'CUDA_VISIBLE_DEVICES GPU_DEVICE_ORDINAL ROCR_VISIBLE_DEVICES HIP_VISIBLE_DEVICES',
  'ZE_AFFINITY_MASK f one waited',
].join(' ')

/** The line that the step prints for each rank that has started. */
export const rankStartedLine = 'rank begun'

/** The step's script. Waits at most ten minutes for the agent, which is usually there first. */
const stepScript = `f=$1.\${SLURM_PROCID-$OMPI_COMM_WORLD_RANK}
waited=0
until [ -e "$f.end" ]; do
  [ "$waited" -lt 12000 ] || exit 125
  waited=$((waited + 1))
  sleep 0.05
done
${checkFifos}
exec 8> "$f.env"
set -- "$f"
unset ${ownVariables}
export -p >&8
exec 8>&-
echo '${rankStartedLine}'
read -r end < "$1.end"
exit 0`

const rankScript = `f=$1
shift
case $1 in */*) [ -x "$1" ] || [ ! -e "$1" ] || { echo "$1: not executable" >&2; exit 126; } ;; esac
command -v -- "$1" > /dev/null 2>&1 || { echo "$1: not found" >&2; exit 127; }
trap 'rm -f "$f.env" "$f.end"; exit 143' TERM
mkfifo -m 600 "$f.env" "$f.end" || exit 125
${checkFifos}
variables=$(cat "$f.env") || exit 125
exec 9> "$f.end"
rm -f "$f.env" "$f.end"
trap - TERM
eval "$variables"
unset variables f one
exec "$@"`

/** The command of the step, which runs once per rank. */
export const toStepCommand = (rendezvous: string): readonly string[] => [
  '/bin/sh',
  '-c',
  stepScript,
  'sh',
  rendezvous,
]

/** The arguments of the agent's shell, which the rank's program then replaces. */
const toRankArguments = (
  rendezvous: string,
  rank: number,
  words: readonly string[],
): readonly string[] => ['-c', rankScript, 'sh', `${rendezvous}.${rank}`, ...words]
