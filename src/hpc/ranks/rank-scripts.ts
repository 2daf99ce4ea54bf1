/**
 * The scripts that connect a process to its rank: an agent runs the process, and a step of the
 * scheduler supplies the rank. One FIFO passes the variables. Another FIFO is closed to report the
 * exit.
 */

import { randomBytes } from 'node:crypto'

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
export const toRankArguments = (
  rendezvous: string,
  rank: number,
  words: readonly string[],
): readonly string[] => ['-c', rankScript, 'sh', `${rendezvous}.${rank}`, ...words]
