/** The option `allocations`: the Slurm jobs that the HPC backend may request itself. */

import { allocationLabel } from '../../cluster/protocol/placement/job-group.ts'
import { ValueError } from '../../foundation/errors.ts'
import {
  definedFields,
  expectInteger,
  expectKnownKeys,
  expectNumber,
  expectObject,
  expectString,
  invalid,
} from '../../foundation/options.ts'
import type { JsonObject } from '../../foundation/json-value.ts'
import { expectLabels } from '../../tasks/resources.ts'
import {
  type BatchRequest,
  expectExtraOption,
  expectLine,
  matchesOption,
} from '../launch/batch-job.ts'

/** Allocations of one kind, which the backend requests when tasks wait. */
export interface AllocationsOptions {
  /** The number of whole nodes of each allocation. Default 1. */
  readonly nodes?: number
  /** The minimum number of allocations, which are kept even if no task waits. Default 0. */
  readonly min?: number
  /** The maximum number of concurrent allocations. */
  readonly max: number
  /** The maximum number of allocations that wait in Slurm's queue. Default 1. */
  readonly backlog?: number
  /** An allocation that has been idle for this long is released. Default 60. */
  readonly idleSeconds?: number
  /** The time limit of each allocation. Default: the time limit of the partition. */
  readonly timeSeconds?: number
  /** The maximum number of allocations that are requested in the whole run. Default: no limit. */
  readonly maxTotal?: number
  /** Labels of the nodes, in addition to `partition` and `allocation` (the job's id). */
  readonly labels?: Readonly<Record<string, string>>
  readonly gpusPerNode?: number
  /** The same as `sbatch --partition`. */
  readonly partition?: string
  readonly account?: string
  readonly qos?: string
  readonly constraint?: string
  /** Further options of `sbatch`, such as `--reservation=x`. */
  readonly sbatch?: readonly string[]
}

export type ResolvedAllocations = ReturnType<typeof resolveKind>

const textKeys = ['partition', 'account', 'qos', 'constraint'] as const
const countKeys = ['nodes', 'min', 'max', 'backlog', 'maxTotal', 'gpusPerNode'] as const
const otherKeys = ['idleSeconds', 'timeSeconds', 'labels', 'sbatch'] as const
const keys = [...textKeys, ...countKeys, ...otherKeys]
/** Options of `sbatch` for which `AllocationsOptions` has fields. */
const fieldOptions = [...textKeys, 'nodes', 'time', 'gpus-per-node']
const fieldLetters = 'pAqCNt'
/** One year, which is within the range of Slurm. */
const maxLimitSeconds = 366 * 86_400

/** Validates the option `allocations`. Each allocation must last at least twice `graceSeconds`. */
export function resolveAllocations(given: unknown, graceSeconds: number): ResolvedAllocations[] {
  if (!Array.isArray(given)) return [resolveKind('allocations', given, graceSeconds)]
  if (given.length === 0) throw invalid('allocations', 'at least one kind of allocation', given)
  return given.map((one, at) => resolveKind(`allocations[${at}]`, one, graceSeconds))
}

/** `field` is the name of this entry in error messages, such as `allocations[1]`. */
function resolveKind(field: string, given: unknown, graceSeconds: number) {
  const options = expectObject(field, given) as Partial<AllocationsOptions>
  expectKnownKeys('HpcBackend', options, keys, `${field}.`)
  const count = (key: (typeof countKeys)[number], fallback: number | undefined, min: number) =>
    expectInteger(`${field}.${key}`, withDefault(options[key], fallback), { min })
  const max = count('max', undefined, 1)
  const min = count('min', 0, 0)
  if (min > max) throw invalid(`${field}.min`, `at most max (${max})`, min)
  const maxTotal = options.maxTotal === undefined ? Infinity : count('maxTotal', undefined, 1)
  if (min > maxTotal) throw invalid(`${field}.min`, `at most maxTotal (${maxTotal})`, min)
  const nodes = count('nodes', 1, 1)
  const timeSeconds = resolveTime(`${field}.timeSeconds`, options.timeSeconds, graceSeconds)
  return {
    field,
    nodes,
    min,
    max,
    backlog: count('backlog', 1, 1),
    idleSeconds: expectNumber(`${field}.idleSeconds`, withDefault(options.idleSeconds, 60), {
      min: 0,
    }),
    timeSeconds,
    maxTotal,
    labels: resolveLabels(`${field}.labels`, withDefault(options.labels, {})),
    request: {
      nodes,
      ...(options.gpusPerNode === undefined ? {} : { gpusPerNode: count('gpusPerNode', 0, 0) }),
      ...(timeSeconds === null ? {} : { time: String(timeSeconds / 60) }),
      ...resolveTexts(field, options),
      more: resolveExtraOptions(`${field}.sbatch`, withDefault(options.sbatch, [])),
    } satisfies BatchRequest as BatchRequest,
  }
}

/** Unlike `??`, keeps `null`, which the validation then rejects. */
const withDefault = <T>(given: T | undefined, fallback: T): T =>
  given === undefined ? fallback : given

/** Rounds up to whole minutes, the unit of Slurm's limits. */
function resolveTime(field: string, given: unknown, graceSeconds: number): number | null {
  if (given === undefined) return null
  const seconds = expectNumber(field, given, { above: 0, max: maxLimitSeconds })
  const min = 2 * graceSeconds
  if (seconds >= min) return Math.ceil(seconds / 60) * 60
  throw invalid(field, `at least twice graceSeconds (${min})`, seconds)
}

function resolveTexts(
  field: string,
  options: Partial<AllocationsOptions>,
): Pick<BatchRequest, (typeof textKeys)[number]> {
  const given = textKeys.filter((key) => options[key] !== undefined)
  return Object.fromEntries(
    given.map((key) => {
      const name = `${field}.${key}`
      return [key, expectLine(name, expectString(name, options[key]))]
    }),
  )
}

/** Throws for options that have their own fields, because the plan would ignore them here. */
function resolveExtraOptions(field: string, given: unknown): readonly string[] {
  if (!Array.isArray(given)) throw invalid(field, 'a list of options of sbatch', given)
  return given.map((one, at) => {
    const name = `${field}[${at}]`
    const option = expectString(name, one)
    if (!/^-[^-]|^--./.test(option)) {
      throw invalid(name, 'an option, with its value after =', option)
    }
    expectExtraOption(option, name)
    if (!matchesOption(option, fieldOptions, fieldLetters)) return option
    const text = `${name}: ${option} is not for sbatch: allocations have a field for it`
    throw new ValueError(text, { field: name, got: option, expected: 'another option' })
  })
}

/** Describes the allocations in the SessionStarted event, without unset fields. */
export function toAllocationFacts(options: ResolvedAllocations): JsonObject {
  const { nodes, min, max, backlog, idleSeconds, timeSeconds, maxTotal, labels } = options
  const { gpusPerNode, more, partition, account, qos, constraint } = options.request
  return {
    nodes,
    min,
    max,
    backlog,
    idle_seconds: idleSeconds,
    ...(timeSeconds === null ? {} : { time_seconds: timeSeconds }),
    ...(maxTotal === Infinity ? {} : { max_total: maxTotal }),
    ...definedFields({ gpus_per_node: gpusPerNode, partition, account, qos, constraint }),
    labels,
    sbatch: more,
  }
}

function resolveLabels(field: string, given: unknown): Readonly<Record<string, string>> {
  const labels = expectLabels(field, given)
  for (const name of ['partition', allocationLabel]) {
    if (labels[name] === undefined) continue
    const at = `${field}.${name}`
    const text = `${at}: nodes already have this label, with the value that Slurm reports`
    throw new ValueError(text, { field: at, got: labels[name] })
  }
  return labels
}
