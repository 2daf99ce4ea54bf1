/** Parses what Slurm prints about jobs, nodes and partitions, and its time limits. Pure. */

import { ValueError } from '../../foundation/errors.ts'
import { invalid } from '../../foundation/options.ts'

/**
 * The fields to request from `squeue`. Every version has them. The node list may be empty, so it
 * comes last.
 */
export const jobFormat = '%i|%T|%r|%V|%S|%e|%l|%P|%N'

export interface JobReport {
  readonly id: string
  /** Slurm's name of the state, such as `RUNNING`. */
  readonly state: string
  /** Why the job waits or has failed; `None` if there is no reason. */
  readonly reason: string
  /** Seconds since the epoch; `null` while unknown. */
  readonly submittedAt: number | null
  /** When the job started, or is expected to start. */
  readonly startsAt: number | null
  readonly endsAt: number | null
  readonly limitSeconds: number | null
  readonly partition: string
  readonly nodes: readonly string[]
}

/** Parses a line that was printed with `TZ=UTC`. Returns `null` for any other text. */
export function parseJobLine(line: string): JobReport | null {
  const fields = line.trim().split('|')
  const [id = '', state = '', reason = '', submitted = '', starts = '', ends = ''] = fields
  const [, , , , , , limit = '', partition = '', nodes] = fields
  if (fields.length !== 9 || nodes === undefined) return null
  if (!/^\d+(?:[_+]\d+)?$/.test(id) || !/^[A-Z_]+$/.test(state)) return null
  try {
    return {
      id,
      state,
      reason,
      submittedAt: parseTime(submitted),
      startsAt: parseTime(starts),
      endsAt: parseTime(ends),
      limitSeconds: parseTimeLimit(limit) ?? null,
      partition,
      nodes: nodes === '' ? [] : parseHostList(nodes),
    }
  } catch {
    return null
  }
}

/** Returns seconds since the epoch; `null` for `N/A`, `Unknown` and `None`. */
function parseTime(text: string): number | null {
  if (!/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d$/.test(text)) return null
  return Date.parse(`${text}Z`) / 1000
}

const waitingStates = /^(?:PENDING|CONFIGURING|REQUEUED|REQUEUE_HOLD|REQUEUE_FED)$/
const runningStates = /^(?:RUNNING|COMPLETING|SUSPENDED|STOPPED|SIGNALING|RESIZING)$/

/** Returns the phase of a job. An unknown state counts as ended. */
export function phaseOf({ state }: JobReport): 'waiting' | 'running' | 'ended' {
  if (waitingStates.test(state)) return 'waiting'
  return runningStates.test(state) ? 'running' : 'ended'
}

/** Reasons of Slurm that mean that the job can never start. */
const neverStartsReasons = [
  /^Partition(?:NodeLimit|TimeLimit|Config)$/,
  /^(?:BadConstraints|DependencyNeverSatisfied|AccountNotAllowed|QOSNotAllowed)$/,
  /^(?:InvalidAccount|InvalidQOS|QOSMin\w+)$/,
  /Per(?:Job|Node)(?:Limit)?$/,
]

export const neverStarts = (report: JobReport): boolean =>
  phaseOf(report) === 'waiting' && neverStartsReasons.some((one) => one.test(report.reason))

/**
 * Parses `Name=value` pairs of `scontrol show`, except the job's name. If a name occurs again, its
 * first value counts.
 */
export function parseFields(text: string): ReadonlyMap<string, string> {
  const [first = '', ...lines] = text.trim().split('\n')
  const fields = new Map<string, string>()
  const head = first.replace(/\sJobName=.*$/, '')
  for (const line of [head, ...lines]) {
    for (const [, name = '', value = ''] of line.matchAll(/(?:^|\s)([\w:/]+)=(\S*)/g)) {
      if (!fields.has(name)) fields.set(name, value)
    }
  }
  return fields
}

/** The memory of each node in megabytes. Nodes without managed memory have no entry. */
export function parseNodeMemory(text: string): ReadonlyMap<string, number> {
  const lines = text.matchAll(/^\s*Nodes=(\S+)\s.*?\bMem=(\d+)/gm)
  return new Map(
    Array.from(lines).flatMap(([, nodes = '', memory]) =>
      Number(memory) > 0 ? parseHostList(nodes).map((name) => [name, Number(memory)] as const) : [],
    ),
  )
}

/** Returns the cluster's name from the output of `scontrol show config`. */
export const parseClusterName = (text: string): string | null =>
  /^ClusterName\s*=\s*(\S+)\s*$/m.exec(text)?.[1] ?? null

/** Whether Slurm refused a step because the job has ended. */
export const isJobOver = (output: string): boolean =>
  /Slurm job \d+ has expired|Invalid job id specified/i.test(output)

/**
 * Describes a refusal that ends by itself; `null` for other output. The reason is that, after a
 * restart, Slurm 22.05 counts the memory of running steps twice for some seconds.
 */
export const parseTemporaryRefusal = (output: string): string | null =>
  /Unable to create step .*Memory required by task is not available/.test(output)
    ? 'Slurm refuses new steps for some seconds after slurmctld was started again'
    : null

/** The maximum number of hosts, so that a wrong expression cannot exhaust the memory. */
const maxHosts = 65_536
const hostPattern = /^(?:[\w.-]|\[\d{1,9}(?:-\d{1,9})?(?:,\d{1,9}(?:-\d{1,9})?)*\])+$/

/** Expands Slurm's host lists, such as `n[01-03,7],gpu4`, in order. Throws for other texts. */
export function parseHostList(text: string): string[] {
  const entries = text.split(/,(?![^[]*\])/)
  if (!entries.every((entry) => hostPattern.test(entry))) throw invalidHostList(text)
  return entries.flatMap(expandHosts)
}

/** Expands a name with any number of brackets, as in `rack[1-2]n[01-16]`. */
function expandHosts(entry: string): string[] {
  const [, before = '', ranges, after = ''] = /^([^[]*)\[(.*?)\](.*)$/.exec(entry) ?? []
  if (ranges === undefined) return [entry]
  const numbers = ranges.split(',').flatMap(expandRange)
  const rest = expandHosts(after)
  if (numbers.length * rest.length > maxHosts) throw invalidHostList(entry)
  return numbers.flatMap((number) => rest.map((end) => before + number + end))
}

/** Expands a range of numbers. Leading zeros are part of the name. */
function expandRange(range: string): string[] {
  const [low = '', high = low] = range.split('-')
  const length = Number(high) - Number(low) + 1
  if (length < 1 || length > maxHosts) throw invalidHostList(range)
  return Array.from({ length }, (_, at) => String(Number(low) + at).padStart(low.length, '0'))
}

const invalidHostList = (text: string): ValueError =>
  new ValueError(`a list of hosts cannot be read: ${JSON.stringify(text)}`, {
    expected: `a list such as n[01-03,7],gpu4 with at most ${maxHosts} hosts`,
    got: text,
  })

/** The notations that `sbatch --time` documents. */
const timeForms = 'M, M:S, H:M:S, D-H, D-H:M or D-H:M:S (minutes, hours, days), or UNLIMITED'

/** Slurm stores seconds in 32 bits. */
const maxLimitSeconds = 2 ** 32

/**
 * Returns seconds, `null` for no limit, `undefined` for other text. As in Slurm, parts may exceed
 * their unit, zero means no limit, and seconds are rounded up to whole minutes.
 */
export function parseTimeLimit(text: string): number | null | undefined {
  if (/^(?:unlimited|infinite|-1)$/i.test(text)) return null
  const match = /^(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?$/.exec(text)
  if (match === null) return undefined
  const [days, first = 0, second = 0, third = 0] = match.slice(1).map((part) => Number(part ?? 0))
  const hasDays = match[1] !== undefined
  const startsWithHours = hasDays || match[4] !== undefined
  const seconds = startsWithHours
    ? ((days ?? 0) * 24 + first) * 3600 + second * 60 + third
    : first * 60 + second
  if (seconds >= maxLimitSeconds) return undefined
  return seconds === 0 ? null : Math.ceil(seconds / 60) * 60
}

/** Returns seconds, or `null` for no limit. The error lists the valid notations. */
export function expectTimeLimit(field: string, text: string): number | null {
  const seconds = parseTimeLimit(text)
  if (seconds !== undefined) return seconds
  throw invalid(field, timeForms, text)
}

/** The fields to request from `sinfo`. Every version has them. */
export const nodeFormat = '%n|%o|%c|%m|%G|%f|%P|%L|%l'

export interface PartitionNode {
  readonly name: string
  readonly address: string
  readonly cores: number
  readonly memoryMb: number
  readonly gpus: number
  /** The features that `--constraint` can request. */
  readonly features: readonly string[]
  readonly partition: string
  readonly isDefault: boolean
  /** The time limit of jobs that set none; `Infinity` if there is no limit. */
  readonly defaultSeconds: number
  /** The maximum time limit of a job; `Infinity` if there is none. */
  readonly maxSeconds: number
}

/** Parses lines of `sinfo -h -N -o FORMAT`. Returns `null` if a line is malformed. */
export function parsePartitionNodes(text: string): readonly PartitionNode[] | null {
  const nodes = text
    .split('\n')
    .filter((line) => line.trim() !== '')
    .map(parseNode)
  return nodes.every((node) => node !== null) ? nodes : null
}

function parseNode(line: string): PartitionNode | null {
  const fields = line.trim().split('|')
  const [name = '', address = '', cores, memory, gres = '', features = '', partition = ''] = fields
  const maxSeconds = parseTimeLimit(fields[8] ?? '')
  // Rejects sizes that end with a plus, which stand for several different nodes.
  if (fields.length !== 9 || maxSeconds === undefined) return null
  if (!/^\d+$/.test(cores ?? '') || !/^\d+$/.test(memory ?? '')) return null
  return {
    name,
    address,
    cores: Number(cores),
    memoryMb: Number(memory),
    gpus: countGpus(gres),
    features: features === '(null)' ? [] : features.split(','),
    partition: partition.replace(/\*$/, ''),
    isDefault: partition.endsWith('*'),
    // A partition without a default (`n/a`) uses its maximum.
    defaultSeconds: parseTimeLimit(fields[7] ?? '') ?? maxSeconds ?? Infinity,
    maxSeconds: maxSeconds ?? Infinity,
  }
}

/** Counts the GPUs in texts such as `gpu:2`, `gpu:a100:4(S:0-1),gpu:v100:2` and `(null)`. */
function countGpus(gres: string): number {
  const counts = gres.matchAll(/(?:^|,)gpu(?::[^:,(]+)?:(\d+)/g)
  return Array.from(counts).reduce((sum, [, count]) => sum + Number(count), 0)
}

/**
 * Whether the node may have the features. Evaluates only conjunctions (`a&b`, `a,b`), and returns
 * `true` for other expressions.
 */
export function mayHaveFeatures({ features }: PartitionNode, constraint: string | null): boolean {
  if (constraint === null || !/^[\w.,&-]+$/.test(constraint)) return true
  return constraint.split(/[,&]/).every((one) => features.includes(one))
}
