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
import { type JobReport, parseFields, parseNodeMemory, phaseOf } from './slurm-output.ts'
import { type SlurmCommands, unexpectedOutput } from './slurm-commands.ts'
import { SlurmJob } from './slurm-job.ts'

/** One process per node. The end of a process or a node ends neither the step nor the job. */
const stepOptions = (
  '--ntasks-per-node=1 --mpi=none --no-kill --overlap --mem=0 --cpu-bind=none ' +
  '--kill-on-bad-exit=0 --wait=0 --quiet'
).split(' ')

/** The options of an MPI step, which reserves no resources. */
const rankOptions =
  '--mpi=pmix --overlap --mem=0 --cpu-bind=none --kill-on-bad-exit=0 --wait=0 --quiet'.split(' ')

export class SlurmAllocation implements Allocation {
  readonly label: string
  readonly nodes: readonly AllocatedNode[]
  readonly limitSeconds: number | null
  readonly hasThisProcess: boolean
  readonly facts: JsonObject
  readonly #job: SlurmJob
  readonly #commands: SlurmCommands
  readonly #clock: Clock
  #preemptionCheck: { readonly report: JobReport; readonly isPreempted: Promise<boolean> } | null =
    null

  static async open(
    jobId: string,
    commands: SlurmCommands,
    clock: Clock,
  ): Promise<SlurmAllocation> {
    const job = new SlurmJob(jobId, commands, clock)
    const detailsQuery = commands.query('scontrol', 'show', 'job', '-d', jobId)
    // Prevents an unhandled rejection. If the job is not running, another error is thrown below.
    detailsQuery.catch(() => {})
    const report = await job.report()
    if (report === null || phaseOf(report) !== 'running') {
      const state = report === null ? 'not known to Slurm' : report.state
      throw new BackendError(`Slurm job ${jobId} does not run: it is ${state}`, {
        code: 'AllocationLostError',
      })
    }
    const [addresses, details] = await Promise.all([queryAddresses(report, commands), detailsQuery])
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
    // A shell of `salloc` has the job's variables too, but may run on another machine.
    const { SLURM_JOB_ID: jobId, SLURMD_NODENAME: here = '' } = process.env
    this.hasThisProcess = jobId === job.id && report.nodes.includes(here)
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
    // Slurm kills the processes of the job, including this one, before it reports the reason.
    const isLost = phaseOf(report) !== 'running' || (isCompleting && this.hasThisProcess)
    if (!isLost && (await this.#isPreempted(report))) {
      return { endsAt, lost: 'PREEMPTED', isEnding: false }
    }
    return { endsAt, lost: isLost ? why : null, isEnding: isCompleting && !isLost }
  }

  start(nodes: readonly AllocatedNode[], given: NodeCommand): RemoteProcess[] {
    const { command, ...streams } = given
    const count = String(nodes.length)
    const nodeOptions = ['-w', nodes.map(({ name }) => name).join(','), '-N', count, '-n', count]
    const stepArgs = [`--jobid=${this.#job.id}`, ...nodeOptions, ...stepOptions]
    // Slurm sets this variable to the name of the process's node.
    const nodeCommand = ['sh', '-c', 'exec "$@" "$SLURMD_NODENAME"', 'sh', ...command]
    return [
      new RemoteProcess({
        command: ['srun', ...stepArgs, ...nodeCommand],
        env: this.#commands.env,
        ...streams,
        clock: this.#clock,
      }),
    ]
  }

  startRanks({ nodes, command, onOutput }: RankCommand): RemoteProcess {
    const count = String(new Set(nodes).size)
    const size = ['-N', count, '-n', String(nodes.length)]
    const nodeOptions = ['--distribution=arbitrary', '-w', nodes.join(',')]
    const stepArgs = [`--jobid=${this.#job.id}`, ...size, ...nodeOptions, ...rankOptions]
    return new RemoteProcess({
      command: ['srun', ...stepArgs, ...command],
      env: this.#commands.minimalEnv,
      input: '',
      clock: this.#clock,
      onOutput,
    })
  }

  /**
   * Whether the job is being preempted. Asks Slurm only if the job will end before its time limit.
   * A preemption first ends the steps of the job; only the script gets grace time.
   */
  async #isPreempted(report: JobReport): Promise<boolean> {
    if (!endsEarly(report)) return false
    if (this.#preemptionCheck?.report !== report) {
      this.#preemptionCheck = { report, isPreempted: this.#job.isPreempted() }
    }
    return this.#preemptionCheck.isPreempted
  }
}

const endsEarly = ({ startsAt, endsAt, limitSeconds }: JobReport): boolean =>
  startsAt !== null && endsAt !== null && endsAt < startsAt + (limitSeconds ?? Infinity)

/** Returns the addresses that the controller uses, by node name. */
async function queryAddresses(
  { nodes }: JobReport,
  commands: SlurmCommands,
): Promise<ReadonlyMap<string, string>> {
  const args = ['show', 'node', nodes.join(',')]
  const output = await commands.query('scontrol', ...args)
  const found = output.split(/\n(?=NodeName=)/).map(parseFields)
  const addresses = new Map(
    found.map((fields) => [fields.get('NodeName') ?? '', fields.get('NodeAddr') ?? '']),
  )
  if (nodes.every((name) => Boolean(addresses.get(name)))) return addresses
  throw unexpectedOutput(`scontrol ${args.join(' ')}`, output)
}
