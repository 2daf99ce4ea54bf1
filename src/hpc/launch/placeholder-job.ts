/**
 * A job that only holds nodes for a script on this machine. A step on its first node keeps a
 * directory (the mark) while heartbeats of this process arrive. The job ends when the mark is gone.
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
import { findSharedAddress } from '../shared-address.ts'
import { phaseOf } from '../slurm/slurm-output.ts'
import { SlurmAllocation } from '../slurm/slurm-allocation.ts'
import { isNoAnswer, type SlurmCommands } from '../slurm/slurm-commands.ts'
import { SlurmJob } from '../slurm/slurm-job.ts'
import { isRefusal, reportWaiting, toLostError } from './launch.ts'
import type { LaunchFolder } from './launch-folder.ts'
import { cancelFolderJobs, submitBatch, type SubmitOptions } from './submit-batch.ts'

/** If `signal` is aborted, the wait ends and the job is canceled. */
export interface PlaceholderJobOptions extends SubmitOptions {
  readonly batch: readonly string[]
  readonly folder: LaunchFolder
  readonly commands: SlurmCommands
  readonly onSubmitted?: (jobId: string) => void
  readonly onStatus: (line: string | null) => void
}

const pollIntervalMs = 100
const heartbeatMs = 10_000
const keeperStartMs = 30_000
/** How long Slurm may take to report the final state of a job that is ending. */
const endTimeoutMs = 5000
/** The job ends if it gets no heartbeat for this long. */
export const maxSilentMinutes = 2

export class PlaceholderJob {
  readonly jobId: string
  readonly allocation: Allocation
  readonly #job: SlurmJob
  readonly #clock: Clock
  readonly #keeper: RemoteProcess
  #cancelHeartbeat: () => void = () => {}

  /** Resolves with `null` after an abort. If the promise rejects, no job is left. */
  static async open(options: PlaceholderJobOptions): Promise<PlaceholderJob | null> {
    const { batch, folder, commands, clock, onSubmitted } = options
    const mark = `/tmp/tutti-held-${randomBytes(12).toString('hex')}`
    folder.write('script', toHolderScript(mark, folder))
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
      if (await waitForStart(job, options)) {
        const allocation = await SlurmAllocation.open(jobId, commands, clock)
        const starting = startKeeper(allocation, mark, clock)
        const keeper = await starting.catch(async (error: unknown) => {
          throw (await findLossError(job, clock)) ?? error
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
    this.#sendHeartbeat()
  }

  /** Rejects with `AllocationLostError` if the job has ended. A missing answer is no error. */
  async expectRunning(): Promise<void> {
    const report = await this.#job.report({ isChanged: true }).catch(ignoreSilence)
    if (report === undefined) return
    if (report === null || phaseOf(report) !== 'running') throw toLostError(this.jobId, report)
  }

  async close(): Promise<void> {
    this.#cancelHeartbeat()
    await this.#keeper.close()
    // If the scheduler does not answer, the job ends by itself, because it gets no more heartbeats.
    await this.#job.cancel().catch(ignoreSilence)
  }

  #sendHeartbeat(): void {
    this.#keeper.write('\n')
    this.#cancelHeartbeat = this.#clock.after(heartbeatMs, () => this.#sendHeartbeat(), {
      background: true,
    })
  }
}

/**
 * Cancels the allocations that a script requested. Rejects if the scheduler does not answer. The
 * allocations then end by themselves.
 */
export async function cancelAllocations(
  launch: LaunchFolder,
  commands: SlurmCommands,
): Promise<void> {
  const known = launch.allocations().flatMap((folder) => folder.facts()?.jobId ?? [])
  await cancelFolderJobs(launch, commands, known)
}

function ignoreSilence(error: unknown): undefined {
  if (!isNoAnswer(error)) throw error
}

async function findLossError(job: SlurmJob, clock: Clock): Promise<BackendError | null> {
  const ask = async (): Promise<BackendError | null | undefined> => {
    const report = await job.report({ isChanged: true }).catch(() => undefined)
    if (report === undefined) return null
    if (report === null || phaseOf(report) !== 'running') return toLostError(job.id, report)
    // The final state of a completing job is known later.
    return report.state === 'COMPLETING' ? undefined : null
  }
  return (await poll({ delayMs: pollIntervalMs, timeoutMs: endTimeoutMs }, ask, { clock })) ?? null
}

/**
 * The batch script, which runs while the mark is refreshed. It also removes old marks of jobs whose
 * processes were all killed.
 */
function toHolderScript(mark: string, folder: LaunchFolder): string {
  return `#!/bin/sh
# Written by tutti launch --driver here: holds the nodes while the launcher lives.
trap 'rmdir ${mark} 2> /dev/null' EXIT
trap 'exit 0' TERM
find /tmp -maxdepth 1 -name 'tutti-held-*' -user "$(id -u)" -mmin +${5 * maxSilentMinutes} \\
  -exec rmdir {} + 2> /dev/null
( : > ${quoteForShell('a path', folder.file('started'))} ) 2> /dev/null
for _ in $(seq ${maxSilentMinutes * 60}); do [ -d ${mark} ] && break; sleep 1; done
while [ -n "$(find ${mark} -maxdepth 0 -mmin -${maxSilentMinutes} 2> /dev/null)" ]; do sleep 1; done
exit 0
`
}

/**
 * Polls until the job runs. Asks Slurm sooner if a file in the shared folder shows that it has
 * started.
 */
async function waitForStart(job: SlurmJob, options: PlaceholderJobOptions): Promise<boolean> {
  const { folder, clock, onStatus, signal } = options
  let wasStartSeen = false
  const ask = async (): Promise<boolean> => {
    const isChanged = folder.hasStarted && !wasStartSeen
    wasStartSeen = folder.hasStarted
    const report = await job.report({ isChanged }).catch(() => undefined)
    if (report === undefined) return false
    if (report === null || phaseOf(report) === 'ended') throw toLostError(job.id, report, folder)
    const isWaiting = phaseOf(report) === 'waiting'
    if (isWaiting) await reportWaiting(report, job, onStatus)
    else onStatus(null)
    return !isWaiting
  }
  return (await poll({ delayMs: pollIntervalMs }, ask, { clock, signal })) === true
}

/**
 * The script of the step. Creates the mark if the node can reach this machine. Cancels the job at
 * the end, because the batch script may miss a mark that existed only briefly.
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
  const address = await findSharedAddress(allocation.nodes)
  const server = await listen(address)
  const { port } = server.address() as { readonly port: number }
  const { promise: ready, resolve: onReady } = Promise.withResolvers<null>()
  let output = ''
  const reachCommand = [process.execPath, reachScript, String(port), address]
  const [keeper] = allocation.start([first], {
    command: ['sh', '-c', keeperScript, mark, ...reachCommand],
    input: '',
    onOutput(text) {
      output += text
      if (output.includes('ready')) onReady(null)
    },
  }) as [RemoteProcess]
  const end = await boundedWait(clock, keeperStartMs, Promise.race([ready, keeper.ended])).catch(
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

/** Listens on a random port, like the server of a script. */
async function listen(host: string): Promise<Server> {
  const server = createServer((socket) => socket.destroy())
  const { promise, resolve, reject } = Promise.withResolvers<void>()
  server.on('error', reject)
  server.listen(0, host, resolve)
  await promise
  return server
}
