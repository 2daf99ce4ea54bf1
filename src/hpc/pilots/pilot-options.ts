/** The option `allocations` of the HPC backend: which jobs of Slurm it may ask for by itself. */

import {
  expectInteger,
  expectKnownKeys,
  expectNumber,
  expectObject,
  expectString,
  invalid,
} from '../../foundation/options.ts'
import { expectLabels } from '../../tasks/resources.ts'
import type { BatchRequest } from '../launch/batch-job.ts'

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
  readonly timeSeconds: number | null
  readonly maxTotal: number
  readonly labels: Readonly<Record<string, string>>
  readonly request: BatchRequest
}

const textKeys = ['partition', 'account', 'qos', 'constraint'] as const
const countKeys = ['nodes', 'min', 'max', 'backlog', 'maxTotal', 'gpusPerNode'] as const
const otherKeys = ['idleSeconds', 'timeSeconds', 'labels', 'sbatch'] as const
const keys = [...textKeys, ...countKeys, ...otherKeys]

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
    expectInteger(`${field}.${key}`, options[key] ?? fallback, { min })
  const max = count('max', undefined, 1)
  const min = count('min', 0, 0)
  if (min > max) throw invalid(`${field}.min`, `at most max (${max})`, min)
  const nodes = count('nodes', 1, 1)
  const timeSeconds = resolveTime(`${field}.timeSeconds`, options.timeSeconds, graceSeconds)
  return {
    field,
    nodes,
    min,
    max,
    backlog: count('backlog', 1, 1),
    idleSeconds: expectNumber(`${field}.idleSeconds`, options.idleSeconds ?? 60, { min: 0 }),
    timeSeconds,
    maxTotal: options.maxTotal === undefined ? Infinity : count('maxTotal', undefined, 1),
    labels: expectLabels(`${field}.labels`, options.labels ?? {}),
    request: {
      nodes,
      ...(options.gpusPerNode === undefined ? {} : { gpusPerNode: count('gpusPerNode', 0, 0) }),
      ...(timeSeconds === null ? {} : { time: toMinutes(timeSeconds) }),
      ...resolveTexts(field, options),
      more: resolveMore(`${field}.sbatch`, options.sbatch ?? []),
    },
  }
}

function resolveTime(field: string, given: unknown, graceSeconds: number): number | null {
  if (given === undefined) return null
  const seconds = expectNumber(field, given, { above: 0 })
  const least = 2 * graceSeconds
  if (seconds >= least) return seconds
  throw invalid(field, `at least twice graceSeconds (${least})`, seconds)
}

/** Slurm counts minutes. */
const toMinutes = (seconds: number): string => String(Math.ceil(seconds / 60))

function resolveTexts(
  field: string,
  options: Partial<AllocationsOptions>,
): Pick<BatchRequest, (typeof textKeys)[number]> {
  const given = textKeys.filter((key) => options[key] !== undefined)
  return Object.fromEntries(
    given.map((key) => [key, expectString(`${field}.${key}`, options[key])]),
  )
}

function resolveMore(field: string, given: unknown): readonly string[] {
  if (!Array.isArray(given)) throw invalid(field, 'a list of options of sbatch', given)
  return given.map((one, at) => {
    const option = expectString(`${field}[${at}]`, one)
    if (option.startsWith('-')) return option
    throw invalid(`${field}[${at}]`, 'an option, with its value after =', option)
  })
}
