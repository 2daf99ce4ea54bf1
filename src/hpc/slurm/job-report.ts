/** Parses what `squeue` and `scontrol` print about jobs and nodes, in all versions. Pure. */

import { parseTimeLimit } from './time-limit.ts'
import { ValueError } from '../../foundation/errors.ts'

/** Fields that every version of `squeue` has. The list of nodes may be empty, so it is last. */
export const jobFormat = '%i|%T|%r|%V|%S|%e|%l|%P|%N'

export interface JobReport {
  readonly id: string
  /** Slurm's name of the state, such as `RUNNING`. */
  readonly state: string
  /** Why it waits or has failed; `None` if there is no reason. */
  readonly reason: string
  /** Seconds since the epoch; `null` while unknown. */
  readonly submittedAt: number | null
  /** The time of its start; for a waiting job, of its expected start. */
  readonly startsAt: number | null
  /** When its time limit ends it. */
  readonly endsAt: number | null
  /** `null` without a limit. */
  readonly limitSeconds: number | null
  readonly partition: string
  readonly nodes: readonly string[]
}

/** Parses a line of `squeue -h -o FORMAT`, printed with `TZ=UTC`; `null` for any other text. */
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

/** `null` for `N/A`, `Unknown` and `None`. */
function parseTime(text: string): number | null {
  if (!/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d$/.test(text)) return null
  return Date.parse(`${text}Z`) / 1000
}

const waiting = new Set(['PENDING', 'CONFIGURING', 'REQUEUED', 'REQUEUE_HOLD', 'REQUEUE_FED'])
const running = new Set(['RUNNING', 'COMPLETING', 'SUSPENDED', 'STOPPED', 'SIGNALING', 'RESIZING'])

/** An unknown state counts as ended. */
export function phaseOf({ state }: JobReport): 'waiting' | 'running' | 'ended' {
  if (waiting.has(state)) return 'waiting'
  return running.has(state) ? 'running' : 'ended'
}

/**
 * Reasons for which a job waits forever: it asks for what its partition, account or quality of
 * service never allows. For too many nodes, Slurm says `PartitionNodeLimit` or `PartitionConfig`.
 */
const endless = [
  /^Partition(?:NodeLimit|TimeLimit|Config)$/,
  /^(?:BadConstraints|DependencyNeverSatisfied|AccountNotAllowed|QOSNotAllowed)$/,
  /^(?:InvalidAccount|InvalidQOS|QOSMin\w+)$/,
  /Per(?:Job|Node)(?:Limit)?$/,
]

export const neverStarts = (report: JobReport): boolean =>
  phaseOf(report) === 'waiting' && endless.some((one) => one.test(report.reason))

/**
 * Parses the `Name=value` pairs of `scontrol show job` and `scontrol show node`. The first line of
 * a job ends with the job's name, which may contain anything and is therefore cut off. If a field
 * occurs more than once, its first value is used.
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

/**
 * Memory in megabytes by node, from `scontrol show job --details`. Nodes are missing if Slurm does
 * not manage memory.
 */
export function parseNodeMemory(text: string): ReadonlyMap<string, number> {
  const lines = text.matchAll(/^\s*Nodes=(\S+)\s.*?\bMem=(\d+)/gm)
  return new Map(
    Array.from(lines).flatMap(([, nodes = '', memory]) =>
      Number(memory) > 0 ? parseHostList(nodes).map((name) => [name, Number(memory)] as const) : [],
    ),
  )
}

/** Parses `scontrol show config`, which pads names; `null` if it has no cluster name. */
export const parseClusterName = (text: string): string | null =>
  /^ClusterName\s*=\s*(\S+)\s*$/m.exec(text)?.[1] ?? null

/** Whether `srun` was refused a step because its job has ended. */
export const isJobOver = (output: string): boolean =>
  /Slurm job \d+ has expired|Invalid job id specified/i.test(output)

/**
 * Why `srun` was temporarily refused a step; `null` for any other output. After a restart of its
 * controller, Slurm 22.05 forgets what running steps share, and counts their memory as used until
 * the nodes have reported them, which takes some seconds.
 */
export const passingRefusal = (output: string): string | null =>
  /Unable to create step .*Memory required by task is not available/.test(output)
    ? 'Slurm refuses new steps for some seconds after slurmctld was started again'
    : null

/** More than any machine has: a wrong expression must not exhaust the memory. */
const maxHosts = 65_536

/**
 * Parses Slurm's host list expressions, such as `n[01-03,7],gpu4`, into names in the same order.
 * Throws a `ValueError` for other texts.
 */
export function parseHostList(text: string): string[] {
  const names = splitEntries(text).flatMap((entry) => expand(entry, text))
  if (names.length > maxHosts) throw notAHostList(text, `more than ${maxHosts} hosts`)
  return names
}

/** Splits at commas outside of brackets. */
function splitEntries(text: string): string[] {
  const entries = ['']
  let isInBrackets = false
  for (const character of text) {
    if (character === '[' || character === ']') {
      if (isInBrackets === (character === '['))
        throw notAHostList(text, 'its brackets do not match')
      isInBrackets = character === '['
    }
    if (character === ',' && !isInBrackets) entries.push('')
    else entries[entries.length - 1] += character
  }
  if (isInBrackets) throw notAHostList(text, 'its brackets do not match')
  return entries
}

/** A name may have several brackets: `rack[1-2]n[01-16]`. */
function expand(entry: string, text: string): string[] {
  const match = /^([^[]*)\[([^\]]*)\](.*)$/s.exec(entry)
  if (match === null) {
    if (!/^[\w.-]+$/.test(entry)) throw notAHostList(text, `"${entry}" is no name of a host`)
    return [entry]
  }
  const [, before = '', ranges = '', after = ''] = match
  const numbers = ranges.split(',').flatMap((range) => expandRange(range, text))
  const rest = after === '' ? [''] : expand(after, text)
  if (numbers.length * rest.length > maxHosts) {
    throw notAHostList(text, `more than ${maxHosts} hosts`)
  }
  if (!/^[\w.-]*$/.test(before)) throw notAHostList(text, `"${before}" is no name of a host`)
  return numbers.flatMap((number) => rest.map((end) => `${before}${number}${end}`))
}

/** Leading zeros are part of the name. */
function expandRange(range: string, text: string): string[] {
  const match = /^(\d{1,9})(?:-(\d{1,9}))?$/.exec(range)
  if (match === null) throw notAHostList(text, `"${range}" is no range of numbers`)
  const [, low = '', high = low] = match
  const count = Number(high) - Number(low) + 1
  if (count < 1) throw notAHostList(text, `"${range}" is no range of numbers`)
  if (count > maxHosts) throw notAHostList(text, `more than ${maxHosts} hosts`)
  return Array.from({ length: count }, (_, at) =>
    String(Number(low) + at).padStart(low.length, '0'),
  )
}

const notAHostList = (text: string, why: string): ValueError =>
  new ValueError(`a list of hosts cannot be read: ${why}: ${JSON.stringify(text)}`, {
    expected: 'a list such as n[01-03,7],gpu4',
    got: text,
  })
