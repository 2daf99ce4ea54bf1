/** The nodes of a Slurm job. */

import type { Clock } from '../../foundation/clock.ts'
import { BackendError } from '../../foundation/errors.ts'
import type { JsonObject } from '../../foundation/json-value.ts'
import type {
  AllocatedNode,
  Allocation,
  AllocationState,
  NodeCommand,
  RankCommand,
} from '../allocation.ts'
import { RemoteProcess } from '../remote-process.ts'
import { type JobReport, parseFields, parseNodeMemory, phaseOf } from './job-report.ts'
import { type SlurmCommands, unexpectedOutput } from './slurm-commands.ts'
import { SlurmJob } from './slurm-job.ts'

/**
 * A step with one process per node, which can use the whole node without reserving any of it. The
 * end of a process or of a node ends neither the step nor the job.
 */
const stepOptions = [
  '--overlap',
  '--ntasks-per-node=1',
  '--mem=0',
  '--mpi=none',
  '--cpu-bind=none',
  '--kill-on-bad-exit=0',
  '--no-kill',
  '--wait=0',
  '--quiet',
]

/** A step whose processes are the ranks of an MPI program. Slurm reserves nothing for it. */
const rankOptions = [
  '--overlap',
  '--mem=0',
  '--mpi=pmix',
  '--cpu-bind=none',
  '--kill-on-bad-exit=0',
  '--wait=0',
  '--quiet',
]

export class SlurmAllocation implements Allocation {
  readonly label: string
  readonly nodes: readonly AllocatedNode[]
  readonly limitSeconds: number | null
  readonly hasThisProcess: boolean
  readonly facts: JsonObject
  readonly #job: SlurmJob
  readonly #commands: SlurmCommands
  readonly #clock: Clock
  #judged: { readonly report: JobReport; readonly isPreempted: Promise<boolean> } | null = null

  /** Rejects if the job is not running. */
  static async open(
    jobId: string,
    commands: SlurmCommands,
    clock: Clock,
  ): Promise<SlurmAllocation> {
    const job = new SlurmJob(jobId, commands, clock)
    const asking = commands.ask('scontrol', 'show', 'job', '-d', jobId)
    // This rejection is handled below, unless the job is not running, which is the error to report.
    asking.catch(() => {})
    const report = await job.report()
    if (report === null || phaseOf(report) !== 'running') {
      const state = report === null ? 'not known to Slurm' : report.state
      throw new BackendError(`Slurm job ${jobId} does not run: it is ${state}`, {
        code: 'AllocationLostError',
      })
    }
    const [addresses, details] = await Promise.all([addressesOf(report, commands), asking])
    const memory = parseNodeMemory(details)
    const nodes = report.nodes.map((name) => ({
      name,
      address: addresses.get(name) ?? name,
      memoryMb: memory.get(name) ?? null,
    }))
    return new SlurmAllocation(job, report, nodes, commands, clock)
  }

  private constructor(
    job: SlurmJob,
    report: JobReport,
    nodes: readonly AllocatedNode[],
    commands: SlurmCommands,
    clock: Clock,
  ) {
    const { limitSeconds, partition, submittedAt, startsAt } = report
    this.label = `Slurm job ${job.id}`
    this.facts = {
      job_id: job.id,
      partition,
      nodes: report.nodes,
      time_limit_seconds: limitSeconds,
      ...(submittedAt === null || startsAt === null
        ? {}
        : { queue_wait_seconds: Math.max(0, startsAt - submittedAt) }),
    }
    this.nodes = nodes
    this.limitSeconds = limitSeconds
    // A shell of `salloc` has the variables of the job, but may run on none of its nodes.
    const { SLURM_JOB_ID: own, SLURMD_NODENAME: here = '' } = process.env
    this.hasThisProcess = own === job.id && report.nodes.includes(here)
    this.#job = job
    this.#commands = commands
    this.#clock = clock
  }

  async state(options?: { readonly isChanged?: boolean }): Promise<AllocationState> {
    const report = await this.#job.report(options)
    if (report === null) {
      return { endsAt: null, lost: 'Slurm has forgotten the job', isEnding: false }
    }
    const { state, reason, endsAt } = report
    const why = reason === 'None' ? state : `${state} (${reason})`
    const isCompleting = state === 'COMPLETING'
    // To a process in it, a completing job is lost: the process is killed before Slurm says why.
    const isLost = phaseOf(report) !== 'running' || (isCompleting && this.hasThisProcess)
    if (!isLost && (await this.#isPreempted(report))) {
      return { endsAt, lost: 'PREEMPTED', isEnding: false }
    }
    return { endsAt, lost: isLost ? why : null, isEnding: isCompleting && !isLost }
  }

  start(nodes: readonly AllocatedNode[], given: NodeCommand): RemoteProcess[] {
    const { command, ...streams } = given
    const count = String(nodes.length)
    const where = ['-w', nodes.map(({ name }) => name).join(','), '-N', count, '-n', count]
    const own = [`--jobid=${this.#job.id}`, ...where, ...stepOptions]
    // One step for all nodes; each process gets its node's name from Slurm.
    const named = ['sh', '-c', 'exec "$@" "$SLURMD_NODENAME"', 'sh', ...command]
    return [
      new RemoteProcess({
        command: ['srun', ...own, ...named],
        env: this.#commands.env,
        ...streams,
        clock: this.#clock,
      }),
    ]
  }

  startRanks({ nodes, command, onOutput }: RankCommand): RemoteProcess {
    const count = String(new Set(nodes).size)
    const size = ['-N', count, '-n', String(nodes.length)]
    // The nodes of the ranks, in the order of the ranks.
    const where = ['--distribution=arbitrary', '-w', nodes.join(',')]
    const own = [`--jobid=${this.#job.id}`, ...size, ...where, ...rankOptions]
    return new RemoteProcess({
      command: ['srun', ...own, ...command],
      env: this.#commands.plainEnv,
      input: '',
      clock: this.#clock,
      onOutput,
    })
  }

  async end(): Promise<void> {
    await this.#job.cancel()
  }

  /**
   * The grace time of a preemption is for the script only: when it begins, Slurm ends the steps of
   * agents and tasks.
   */
  async #isPreempted(report: JobReport): Promise<boolean> {
    if (!isShortened(report)) return false
    // Asked only once per report.
    if (this.#judged?.report !== report) {
      this.#judged = { report, isPreempted: this.#job.isPreempted() }
    }
    return this.#judged.isPreempted
  }
}

/** Whether the job ends earlier than its time limit. */
const isShortened = ({ startsAt, endsAt, limitSeconds }: JobReport): boolean =>
  startsAt !== null && endsAt !== null && endsAt < startsAt + (limitSeconds ?? Infinity)

/** The addresses of the nodes by name, as the controller knows them. */
async function addressesOf(
  { nodes }: JobReport,
  commands: SlurmCommands,
): Promise<ReadonlyMap<string, string>> {
  const args = ['show', 'node', nodes.join(',')]
  const output = await commands.ask('scontrol', ...args)
  const found = output.split(/\n(?=NodeName=)/).map(parseFields)
  const addresses = new Map(
    found.map((fields) => [fields.get('NodeName') ?? '', fields.get('NodeAddr') ?? '']),
  )
  if (nodes.every((name) => Boolean(addresses.get(name)))) return addresses
  throw unexpectedOutput(`scontrol ${args.join(' ')}`, output)
}
