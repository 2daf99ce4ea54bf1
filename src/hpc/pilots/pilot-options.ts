/** The option `allocations` of the HPC backend: which jobs of Slurm it may ask for by itself. */

import { allocationLabel } from '../../cluster/driver/placement/job-group.ts'
import { ValueError } from '../../foundation/errors.ts'
import {
  expectInteger,
  expectKnownKeys,
  expectNumber,
  expectObject,
  expectString,
  invalid,
} from '../../foundation/options.ts'
import type { JsonObject } from '../../foundation/json-value.ts'
import { expectLabels } from '../../tasks/resources.ts'
import { type BatchRequest, expectFurther, expectLine, isOneOf } from '../launch/batch-job.ts'

/** Allocations that are asked for in the same way, by waiting work. */
export interface AllocationsOptions {
  /** Whole nodes of each allocation. Default 1. */
  readonly nodes?: number
  /** How many there are at least, also without work. Default 0. */
  readonly min?: number
  /** How many there are at most at the same time. */
  readonly max: number
  /** How many of them wait in the queue of Slurm at most. Default 1. */
  readonly backlog?: number
  /** One that has run nothing for that long is given back. Default 60. */
  readonly idleSeconds?: number
  /** The time limit of each. Default: that of the partition. */
  readonly timeSeconds?: number
  /** How many are asked for at most, over the whole run. Default: no limit. */
  readonly maxTotal?: number
  /** Its nodes have them, and `partition` and `allocation` (the job's id). */
  readonly labels?: Readonly<Record<string, string>>
  readonly gpusPerNode?: number
  /** As `sbatch` has them. */
  readonly partition?: string
  readonly account?: string
  readonly qos?: string
  readonly constraint?: string
  /** Further options of `sbatch`, such as `--reservation=x`. */
  readonly sbatch?: readonly string[]
}

/** With everything that was not given. */
export interface ResolvedAllocations {
  /** Its name among the options of the backend. */
  readonly field: string
  readonly nodes: number
  readonly min: number
  readonly max: number
  readonly backlog: number
  readonly idleSeconds: number
  /** Whole minutes. */
  readonly timeSeconds: number | null
  readonly maxTotal: number
  readonly labels: Readonly<Record<string, string>>
  readonly request: BatchRequest
}

const textKeys = ['partition', 'account', 'qos', 'constraint'] as const
const countKeys = ['nodes', 'min', 'max', 'backlog', 'maxTotal', 'gpusPerNode'] as const
const otherKeys = ['idleSeconds', 'timeSeconds', 'labels', 'sbatch'] as const
const keys = [...textKeys, ...countKeys, ...otherKeys]
/** What of `sbatch` there are fields for. */
const namesOfFields = [...textKeys, 'nodes', 'time', 'gpus-per-node']
const lettersOfFields = 'pAqCNt'
/** A year: more than any limit, and less than what Slurm can count. */
const longestLimit = 366 * 86_400

/** `graceSeconds` of the backend: tasks need time for their end. */
export function resolveAllocations(given: unknown, graceSeconds: number): ResolvedAllocations[] {
  if (!Array.isArray(given)) return [resolveOne('allocations', given, graceSeconds)]
  if (given.length === 0) throw invalid('allocations', 'at least one kind of allocation', given)
  return given.map((one, at) => resolveOne(`allocations[${at}]`, one, graceSeconds))
}

function resolveOne(field: string, given: unknown, graceSeconds: number): ResolvedAllocations {
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
      more: resolveMore(`${field}.sbatch`, withDefault(options.sbatch, [])),
    },
  }
}

/** `null` is a mistake. */
const withDefault = <T>(given: T | undefined, fallback: T): T =>
  given === undefined ? fallback : given

/** Minutes, as Slurm counts and grants them. */
function resolveTime(field: string, given: unknown, graceSeconds: number): number | null {
  if (given === undefined) return null
  const seconds = expectNumber(field, given, { above: 0, max: longestLimit })
  const least = 2 * graceSeconds
  if (seconds >= least) return Math.ceil(seconds / 60) * 60
  throw invalid(field, `at least twice graceSeconds (${least})`, seconds)
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

/** The plan would not know of what these ask for. */
function resolveMore(field: string, given: unknown): readonly string[] {
  if (!Array.isArray(given)) throw invalid(field, 'a list of options of sbatch', given)
  return given.map((one, at) => {
    const name = `${field}[${at}]`
    const option = expectString(name, one)
    if (!/^-[^-]|^--./.test(option)) {
      throw invalid(name, 'an option, with its value after =', option)
    }
    expectFurther(option, name)
    if (!isOneOf(option, namesOfFields, lettersOfFields)) return option
    const text = `${name}: ${option} is not for sbatch: allocations have a field for it`
    throw new ValueError(text, { field: name, got: option, expected: 'another option' })
  })
}

/** What may be asked for, for SessionStarted; what was not given is left out. */
export function toAllocationFacts(options: ResolvedAllocations): JsonObject {
  const { nodes, min, max, backlog, idleSeconds, timeSeconds, maxTotal, labels } = options
  const { gpusPerNode, more, ...request } = options.request
  const texts = textKeys.flatMap((key) => (request[key] === undefined ? [] : [[key, request[key]]]))
  return {
    nodes,
    min,
    max,
    backlog,
    idle_seconds: idleSeconds,
    ...(timeSeconds === null ? {} : { time_seconds: timeSeconds }),
    ...(maxTotal === Infinity ? {} : { max_total: maxTotal }),
    ...(gpusPerNode === undefined ? {} : { gpus_per_node: gpusPerNode }),
    ...(Object.fromEntries(texts) as JsonObject),
    labels,
    sbatch: more,
  }
}

/** Labels that nodes get anyway. */
function resolveLabels(field: string, given: unknown): Readonly<Record<string, string>> {
  const labels = expectLabels(field, given)
  for (const name of ['partition', allocationLabel]) {
    if (labels[name] === undefined) continue
    throw new ValueError(`${field}.${name}: nodes have this label anyway, with what Slurm says`, {
      field: `${field}.${name}`,
      got: labels[name],
    })
  }
  return labels
}
