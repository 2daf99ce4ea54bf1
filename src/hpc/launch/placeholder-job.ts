/**
 * A job that only holds nodes for a script on this machine. It ends with this process: a step on
 * its first node reads heartbeats of this process, and keeps a directory (the mark) while they
 * come.
 */

import { randomBytes } from 'node:crypto'
import { createServer, type Server } from 'node:net'
import type { Clock } from '../../foundation/clock.ts'
import { BackendError, messageOf } from '../../foundation/errors.ts'
import { boundedWait } from '../../foundation/promises.ts'
import { poll } from '../../runtime/retry.ts'
import type { AllocatedNode, Allocation } from '../allocation.ts'
import { quoteForShell } from '../quote.ts'
import type { RemoteProcess } from '../remote-process.ts'
import { addressSharedWith } from '../shared-address.ts'
import { phaseOf } from '../slurm/job-report.ts'
import { SlurmAllocation } from '../slurm/slurm-allocation.ts'
import { isSilence, type SlurmCommands } from '../slurm/slurm-commands.ts'
import { SlurmJob } from '../slurm/slurm-job.ts'
import { cancelJobsOf } from './folder-jobs.ts'
import { isRefusal, lostError } from './job-end.ts'
import type { LaunchFolder } from './launch-folder.ts'
import { showWaiting } from './run-watch.ts'
import { submitBatch } from './submit-batch.ts'

export interface PlaceholderJobOptions {
  /** The options of sbatch. */
  readonly batch: readonly string[]
  readonly folder: LaunchFolder
  readonly commands: SlurmCommands
  readonly clock: Clock
  /** How long to search for the job if `sbatch` got no answer; 0 leaves that to the caller. */
  readonly withdrawMs?: number
  /** Slurm has accepted the job. */
  readonly onSubmitted?: (jobId: string) => void
  readonly onStatus: (line: string | null) => void
  /** Aborts the wait and cancels the job. */
  readonly signal: AbortSignal
}

const pollMs = 100
const beatMs = 10_000
/** How long the first step may take to start. */
const keeperMs = 30_000
/** How long Slurm may take to report the final state of a job that is ending. */
const maxEndMs = 5000
/** The job ends after this long without a heartbeat. */
export const lifeMinutes = 2

export class PlaceholderJob {
  readonly jobId: string
  readonly allocation: Allocation
  readonly #job: SlurmJob
  readonly #clock: Clock
  readonly #keeper: RemoteProcess
  #cancelBeat: () => void = () => {}

  /** Resolves when the job runs, or with `null` if aborted first. If it rejects, no job is left. */
  static async open(options: PlaceholderJobOptions): Promise<PlaceholderJob | null> {
    const { batch, folder, commands, clock, onSubmitted } = options
    const mark = `/tmp/tutti-held-${randomBytes(12).toString('hex')}`
    folder.write('script', toHoldScript(mark, folder))
    const submitting = submitBatch(commands, batch, folder, options)
    const jobId = await submitting.catch((error: unknown) => {
      folder.remove()
      throw error
    })
    const job = new SlurmJob(jobId, commands, clock)
    try {
      onSubmitted?.(jobId)
      // The launcher reads these facts and cancels the job if this process is killed.
      folder.write('facts', JSON.stringify({ method: 'slurm', jobId }))
      if (await isStarted(job, options)) {
        const allocation = await SlurmAllocation.open(jobId, commands, clock)
        const starting = startKeeper(allocation, mark, clock)
        const keeper = await starting.catch(async (error: unknown) => {
          throw (await whyLost(job, clock)) ?? error
        })
        return new PlaceholderJob(job, allocation, keeper, clock)
      }
    } catch (error) {
      await job.cancel()
      if (isRefusal(error)) folder.remove()
      throw error
    }
    await job.cancel()
    return null
  }

  private constructor(job: SlurmJob, allocation: Allocation, keeper: RemoteProcess, clock: Clock) {
    this.jobId = job.id
    this.allocation = allocation
    this.#job = job
    this.#clock = clock
    this.#keeper = keeper
    this.#beat()
  }

  /**
   * Throws `AllocationLostError` if the job has ended without `close`. If the scheduler does not
   * answer, the job is assumed to run.
   */
  async expectHeld(): Promise<void> {
    const report = await this.#job.report({ isChanged: true }).catch(unlessSilent)
    if (report === undefined) return
    if (report === null || phaseOf(report) !== 'running') throw lostError(this.jobId, report)
  }

  /** Releases the nodes. */
  async close(): Promise<void> {
    this.#cancelBeat()
    await this.#keeper.close()
    // If the scheduler does not answer, the job ends by itself soon, because heartbeats stop.
    await this.#job.cancel().catch(unlessSilent)
  }

  #beat(): void {
    this.#keeper.write('\n')
    this.#cancelBeat = this.#clock.after(beatMs, () => this.#beat(), { background: true })
  }
}

/**
 * Cancels the allocations that a script requested and left behind, for instance because it was
 * killed. Rejects if the scheduler does not answer; running ones then end by themselves.
 */
export async function endAllocations(launch: LaunchFolder, commands: SlurmCommands): Promise<void> {
  const known = launch.allocations().flatMap((folder) => folder.facts()?.jobId ?? [])
  await cancelJobsOf(launch, commands, known)
}

function unlessSilent(error: unknown): undefined {
  if (!isSilence(error)) throw error
}

/** Why no step of the job can start, if the job has ended; otherwise `null`. */
async function whyLost(job: SlurmJob, clock: Clock): Promise<BackendError | null> {
  const ask = async (): Promise<BackendError | null | undefined> => {
    const report = await job.report({ isChanged: true }).catch(() => undefined)
    if (report === undefined) return null
    if (report === null || phaseOf(report) !== 'running') return lostError(job.id, report)
    // The final state of a completing job is known only a little later.
    return report.state === 'COMPLETING' ? undefined : null
  }
  return (await poll({ delayMs: pollMs, timeoutMs: maxEndMs }, ask, { clock })) ?? null
}

/**
 * The batch script. The mark is on the first node, where both the script and the step run. If all
 * processes of a job are killed, the mark stays; a later job removes it when it is old.
 */
function toHoldScript(mark: string, folder: LaunchFolder): string {
  return `#!/bin/sh
# Written by tutti launch --driver here: holds the nodes while the launcher lives.
trap 'rmdir ${mark} 2> /dev/null' EXIT
trap 'exit 0' TERM
find /tmp -maxdepth 1 -name 'tutti-held-*' -user "$(id -u)" -mmin +${5 * lifeMinutes} \\
  -exec rmdir {} + 2> /dev/null
( : > ${quoteForShell('a path', folder.file('started'))} ) 2> /dev/null
for _ in $(seq ${lifeMinutes * 60}); do [ -d ${mark} ] && break; sleep 1; done
while [ -n "$(find ${mark} -maxdepth 0 -mmin -${lifeMinutes} 2> /dev/null)" ]; do sleep 1; done
exit 0
`
}

/** Detects the start by a file if the folder is shared; otherwise from Slurm's report. */
async function isStarted(job: SlurmJob, options: PlaceholderJobOptions): Promise<boolean> {
  const { folder, clock, onStatus, signal } = options
  let isSeen = false
  const ask = async (): Promise<boolean> => {
    const isChanged = folder.hasStarted && !isSeen
    isSeen = folder.hasStarted
    const report = await job.report({ isChanged }).catch(() => undefined)
    if (report === undefined) return false
    if (report === null || phaseOf(report) === 'ended') throw lostError(job.id, report, folder)
    const isWaiting = phaseOf(report) === 'waiting'
    if (isWaiting) await showWaiting(report, job, onStatus)
    else onStatus(null)
    return !isWaiting
  }
  return (await poll({ delayMs: pollMs }, ask, { clock, signal })) === true
}

/**
 * Creates the mark if the node can reach this machine. The end of the input cancels the job,
 * because the batch script may have missed a mark that existed only briefly.
 */
const keeperScript = `trap 'rmdir "$0" 2> /dev/null' EXIT
trap 'exit 1' TERM
"$1" -e "$2" "$3" "$4" < /dev/null && mkdir "$0" || exit 1
echo ready
while read -r _; do touch "$0"; done
rmdir "$0"
scancel "$SLURM_JOB_ID"`

const reachScript = `const { connect } = require('node:net')
const [port, host] = process.argv.slice(1)
const socket = connect({ port: Number(port), host, timeout: 20000 }, () => process.exit(0))
socket.on('timeout', () => socket.destroy(new Error('no answer from ' + host)))
socket.on('error', ({ message }) => {
  console.error(message)
  process.exit(1)
})`

async function startKeeper(
  allocation: Allocation,
  mark: string,
  clock: Clock,
): Promise<RemoteProcess> {
  const [first] = allocation.nodes as [AllocatedNode, ...AllocatedNode[]]
  const address = await addressSharedWith(allocation.nodes)
  const server = await listen(address)
  const { port } = server.address() as { readonly port: number }
  const { promise: ready, resolve: onReady } = Promise.withResolvers<null>()
  let output = ''
  const reach = [process.execPath, reachScript, String(port), address]
  const [keeper] = allocation.start([first], {
    command: ['sh', '-c', keeperScript, mark, ...reach],
    input: '',
    onOutput(text) {
      output += text
      if (output.includes('ready')) onReady(null)
    },
  }) as [RemoteProcess]
  const end = await boundedWait(clock, keeperMs, Promise.race([ready, keeper.ended])).catch(
    messageOf,
  )
  server.close()
  if (end === null) return keeper
  const why = keeper.output || end
  keeper.kill()
  await keeper.close()
  throw new BackendError(`node ${first.name} and this machine do not reach each other: ${why}`, {
    code: 'NodeUnreachableError',
    hint: 'Leave out --driver here: the script then runs on the first node.',
  })
}

/** Listens on a random port, as the server of a script does. */
async function listen(host: string): Promise<Server> {
  const server = createServer((socket) => socket.destroy())
  const { promise, resolve, reject } = Promise.withResolvers<void>()
  server.on('error', reject)
  server.listen(0, host, resolve)
  await promise
  return server
}
