/** The resources that a task asks for, and their validation. */

import { ValueError } from '../foundation/errors.ts'
import {
  expectInteger,
  expectKnownKeys,
  expectNumber,
  expectObject,
  expectString,
  invalid,
} from '../foundation/options.ts'

/** The resources that a task holds while it runs. Default: one core. */
export interface ResourceRequest {
  /** The number of CPU cores. Default 1. */
  readonly cores: number
  /**
   * The number of whole GPUs. `CUDA_VISIBLE_DEVICES` restricts programs and functions of
   * `defineTask` to them; native libraries that a function loads respect it only with `isolation:
   * 'process'`. A closure sees all GPUs of its process. Default 0.
   */
  readonly gpus: number
  /** The amount of memory in megabytes. Default 0: no particular amount. */
  readonly memoryMb: number
  /** The number of MPI ranks. Default 1: an ordinary task. */
  readonly ranks: number
  /** The number of ranks per node. Default: the backend decides. */
  readonly ranksPerNode?: number
  /** Labels that the node must have, with these values. Default: none. */
  readonly labels?: Readonly<Record<string, string>>
  /**
   * The expected run time, for backends that plan by time. It is not a limit; for a limit, use
   * `timeoutSeconds`. Default: unknown.
   */
  readonly seconds?: number
}

export const defaultResources: ResourceRequest = Object.freeze({
  cores: 1,
  gpus: 0,
  memoryMb: 0,
  ranks: 1,
})

const optionNames = [...Object.keys(defaultResources), 'ranksPerNode', 'labels', 'seconds']

/** Whether the request equals the default: one core and nothing else. */
export const isDefaultRequest = (request: ResourceRequest): boolean =>
  request === defaultResources ||
  (request.cores === 1 &&
    request.gpus === 0 &&
    request.memoryMb === 0 &&
    request.ranks === 1 &&
    request.ranksPerNode === undefined &&
    request.labels === undefined &&
    request.seconds === undefined)

export function resolveResources(given: Partial<ResourceRequest> | undefined): ResourceRequest {
  if (given === undefined) return defaultResources
  expectObject('resources', given)
  expectKnownKeys('a task', given, optionNames, 'resources.')
  const { cores = 1, gpus = 0, memoryMb = 0, ranks = 1, ranksPerNode, labels, seconds } = given
  if (ranksPerNode !== undefined && given.ranks === undefined) {
    const text = 'resources.ranksPerNode: `resources.ranks`, the total number of ranks, is missing'
    throw new ValueError(text, { field: 'resources.ranksPerNode' })
  }
  return Object.freeze({
    cores: expectInteger('resources.cores', cores, { min: 1 }),
    gpus: expectInteger('resources.gpus', gpus, { min: 0 }),
    memoryMb: expectNumber('resources.memoryMb', memoryMb, { min: 0 }),
    ranks: expectInteger('resources.ranks', ranks, { min: 1 }),
    ...(ranksPerNode === undefined
      ? {}
      : { ranksPerNode: expectInteger('resources.ranksPerNode', ranksPerNode, { min: 1 }) }),
    ...toLabels(labels),
    ...(seconds === undefined
      ? {}
      : { seconds: expectNumber('resources.seconds', seconds, { above: 0 }) }),
  })
}

/** An empty object is treated like no labels. */
function toLabels(given: unknown): Pick<ResourceRequest, 'labels'> {
  if (given === undefined) return {}
  const labels = expectLabels('resources.labels', given)
  return Object.keys(labels).length === 0 ? {} : { labels }
}

export function expectLabels(field: string, given: unknown): Readonly<Record<string, string>> {
  const entries = Object.entries(expectObject(field, given)).map(([name, value]) => {
    if (name === '') throw invalid(field, 'an object without an empty name', given)
    return [name, expectString(`${field}.${name}`, value)] as const
  })
  return Object.freeze(Object.fromEntries(entries))
}
