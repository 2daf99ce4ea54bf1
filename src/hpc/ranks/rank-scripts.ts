/**
 * The scripts that connect a process to its rank. An agent runs the process on cores and GPUs of
 * the node; a step of the scheduler supplies the rank and the address of the MPI runtime. On each
 * node the two communicate by a pair of FIFOs: one passes the variables, and closing the other one
 * tells the step that the rank has exited.
 */

import { randomBytes } from 'node:crypto'

/** Shared by all steps of a job on a node, unlike other temporary folders. */
const folder = '/tmp'

/** The path of a task's FIFOs, which cannot be guessed. */
export const newRendezvous = (): string =>
  `${folder}/tutti-ranks-${randomBytes(12).toString('hex')}`

/** Checks the owner of the FIFOs, because another user may have created them. */
const checkFifos = `for one in "$f.env" "$f.end"; do
  [ -p "$one" ] && [ -O "$one" ] || { echo "$one is not our FIFO" >&2; exit 125; }
done`

/** Variables that a rank takes from its task instead of the step. */
const ownVariables = [
  'PATH PWD OLDPWD HOME USER LOGNAME SHELL SHLVL TMPDIR LANG LD_LIBRARY_PATH HOSTNAME _',
  'CUDA_VISIBLE_DEVICES GPU_DEVICE_ORDINAL ROCR_VISIBLE_DEVICES HIP_VISIBLE_DEVICES',
  'ZE_AFFINITY_MASK f one waited',
].join(' ')

/** Printed by the step for each rank that has begun. */
export const begunLine = 'rank begun'

/** The agent is almost always first. The step stops waiting for it after ten minutes. */
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
echo '${begunLine}'
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

/** Runs in the step, once per rank. */
export const toStepCommand = (meetingPoint: string): readonly string[] => [
  '/bin/sh',
  '-c',
  stepScript,
  'sh',
  meetingPoint,
]

/** Runs at the agent, and is replaced by the rank's program. */
export const toRankArguments = (
  meetingPoint: string,
  rank: number,
  words: readonly string[],
): readonly string[] => ['-c', rankScript, 'sh', `${meetingPoint}.${rank}`, ...words]
