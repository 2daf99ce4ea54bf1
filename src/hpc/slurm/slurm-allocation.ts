/** The nodes of a job of Slurm. */

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
import { type JobReport, parseFields, phaseOf } from './job-report.ts'
import { type SlurmCommands, unexpectedOutput } from './slurm-commands.ts'
import { SlurmJob } from './slurm-job.ts'

/**
 * A step for one process a node that sees all of it and holds none of it back from other steps: a
 * process that dies, or a node, ends neither the step nor the job.
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

/** A step of processes that are the ranks of an MPI program. Slurm reserves nothing for it. */
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
  readonly facts: JsonObject
  readonly #job: SlurmJob
  readonly #commands: SlurmCommands
  readonly #clock: Clock

  /** Rejects when the job does not run. */
  static async open(
    jobId: string,
    commands: SlurmCommands,
    clock: Clock,
  ): Promise<SlurmAllocation> {
    const job = new SlurmJob(jobId, commands, clock)
    const report = await job.report()
    if (report === null || phaseOf(report) !== 'running') {
      const state = report === null ? 'not known to Slurm' : report.state
      throw new BackendError(`Slurm job ${jobId} does not run: it is ${state}`, {
        code: 'AllocationLostError',
      })
    }
    const addresses = await addressesOf(report, commands)
    return new SlurmAllocation(job, report, addresses, commands, clock)
  }

  private constructor(
    job: SlurmJob,
    report: JobReport,
    addresses: ReadonlyMap<string, string>,
    commands: SlurmCommands,
    clock: Clock,
  ) {
    const { nodes, limitSeconds, partition, submittedAt, startsAt } = report
    this.label = `Slurm job ${job.id}`
    this.facts = {
      job_id: job.id,
      partition,
      nodes,
      time_limit_seconds: limitSeconds,
      ...(submittedAt === null || startsAt === null
        ? {}
        : { queue_wait_seconds: Math.max(0, startsAt - submittedAt) }),
    }
    this.nodes = nodes.map((name) => ({ name, address: addresses.get(name) ?? name }))
    this.limitSeconds = limitSeconds
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
    const lost = phaseOf(report) === 'running' ? null : why
    return { endsAt, lost, isEnding: state === 'COMPLETING' }
  }

  start(nodes: readonly AllocatedNode[], given: NodeCommand): RemoteProcess[] {
    const { command, ...streams } = given
    const count = String(nodes.length)
    const where = ['-w', nodes.map(({ name }) => name).join(','), '-N', count, '-n', count]
    const own = [`--jobid=${this.#job.id}`, ...where, ...stepOptions]
    // One step for all; each process learns from Slurm where it is.
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
    // Rank by rank, in the order of this list.
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
}

/** By name, as the controller reaches the nodes. */
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
