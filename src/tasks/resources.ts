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
  /** CPU cores. Default 1. */
  readonly cores: number
  /**
   * Whole GPUs. Programs and functions of `defineTask` are restricted to them by
   * `CUDA_VISIBLE_DEVICES`; native libraries that a function loads respect it only with
   * `isolation: 'process'`. A closure sees all GPUs of its process. Default 0.
   */
  readonly gpus: number
  /** Memory in megabytes. Default 0: no particular amount. */
  readonly memoryMb: number
  /** MPI ranks. Default 1: an ordinary task. */
  readonly ranks: number
  /** The number of ranks per node. Default: the backend decides. */
  readonly ranksPerNode?: number
  /** Labels that the node must have, with these values. Default: none. */
  readonly labels?: Readonly<Record<string, string>>
  /**
   * The expected run time, for backends that plan by time. Not a limit: use `timeoutSeconds` for
   * that. Default: unknown.
   */
  readonly seconds?: number
}

export const defaultResources: ResourceRequest = Object.freeze({
  cores: 1,
  gpus: 0,
  memoryMb: 0,
  ranks: 1,
})

const known = [...Object.keys(defaultResources), 'ranksPerNode', 'labels', 'seconds']

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
  expectKnownKeys('a task', given, known, 'resources.')
  const { cores = 1, gpus = 0, memoryMb = 0, ranks = 1, ranksPerNode, labels, seconds } = given
  if (ranksPerNode !== undefined && given.ranks === undefined) {
    const text = 'resources.ranksPerNode: `resources.ranks` is missing, the number of all ranks'
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

/** Treats an empty object like no labels. */
function toLabels(given: unknown): Pick<ResourceRequest, 'labels'> {
  if (given === undefined) return {}
  const labels = expectLabels('resources.labels', given)
  return Object.keys(labels).length === 0 ? {} : { labels }
}

/** Validates the labels of a node or of a request. */
export function expectLabels(field: string, given: unknown): Readonly<Record<string, string>> {
  const entries = Object.entries(expectObject(field, given)).map(([name, value]) => {
    if (name === '') throw invalid(field, 'an object without an empty name', given)
    return [name, expectString(`${field}.${name}`, value)] as const
  })
  return Object.freeze(Object.fromEntries(entries))
}
