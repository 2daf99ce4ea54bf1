/** How the server of one worker is started: its command line, environment and GPUs. */

import { ValueError } from '../../../foundation/errors.ts'
import { invalid } from '../../../foundation/options.ts'
import { type Environment, inheritedEnvironment } from '../../../runtime/server/environment.ts'
import {
  findUnknownPlaceholder,
  isPlaceholderName,
  placeholderForm,
  type PlaceholderName,
  placeholders,
} from '../../config/command-placeholders.ts'

export interface TemplateValues extends Readonly<Record<PlaceholderName, string | number>> {
  readonly model: string
  readonly port: number
  readonly host: string
  readonly tp_size: number
  readonly worker: number
  readonly node: number
  readonly dtype: string
  readonly max_model_len: number
  readonly gpu_memory_utilization: number
}

/** Throws for an empty command and for an unknown placeholder. */
export function checkTemplate(command: readonly string[]): void {
  if (command[0] === undefined || command[0] === '') {
    throw invalid('command', 'a program and its arguments', command)
  }
  for (const [at, argument] of command.entries()) {
    const problem = findUnknownPlaceholder(argument)
    if (problem === undefined) continue
    const expected = `one of ${placeholders.join(', ')}`
    const { message, got } = problem
    throw new ValueError(`command[${at}]: ${message}`, { field: `command[${at}]`, expected, got })
  }
}

/** Fills a checked template. Placeholders in values are not replaced, and no shell is involved. */
export function fillTemplate(command: readonly string[], values: TemplateValues): string[] {
  return command.map((argument) =>
    argument.replace(placeholderForm, (place, name: string) =>
      isPlaceholderName(name) ? String(values[name]) : place,
    ),
  )
}

export interface ChildEnvironmentOptions {
  /** Variables of the configuration, which override inherited ones. */
  readonly env: Environment
  readonly hubToken: string | null
  readonly node: number
  readonly gpus: string | null
}

/** The environment of one worker's server on this machine. */
export function childEnvironment(
  own: Environment,
  options: ChildEnvironmentOptions,
): Record<string, string> {
  const { gpus } = options
  return {
    ...inheritedEnvironment(own),
    ...addedEnvironment(options),
    ...(gpus === null ? {} : { CUDA_VISIBLE_DEVICES: gpus }),
  }
}

/** Variables that a server gets in addition to inherited ones, on every machine. */
function addedEnvironment({
  env,
  hubToken,
  node,
}: Omit<ChildEnvironmentOptions, 'gpus'>): Record<string, string> {
  const configured = Object.entries(env).flatMap(([name, value]) =>
    value === undefined ? [] : [[name, value] as const],
  )
  return {
    ...(hubToken === null ? {} : { HF_TOKEN: hubToken }),
    ...Object.fromEntries(configured),
    TUTTI_NODE: String(node),
  }
}

/** The variables in which vLLM, llama.cpp and `tutti serve` expect the key of their clients. */
const keyVariables = ['VLLM_API_KEY', 'LLAMA_API_KEY', 'TUTTI_API_KEY']

/**
 * The variables that a server on another node gets in addition to those it inherits there. Other
 * machines reach its address, so it gets a key: the configured one, or else `newKey`.
 */
export function remoteEnvironment(
  options: Omit<ChildEnvironmentOptions, 'gpus'>,
  newKey: string,
): { readonly env: Record<string, string>; readonly apiKey: string } {
  // Left out, because the agent of the node knows which GPUs are reserved.
  const { CUDA_VISIBLE_DEVICES: _, ...configured } = options.env
  const own = keyVariables.map((name) => configured[name]).find((key) => key !== undefined)
  const apiKey = own ?? newKey
  const keys = Object.fromEntries(keyVariables.map((name) => [name, apiKey]))
  return { env: { ...keys, ...addedEnvironment({ ...options, env: configured }) }, apiKey }
}

export interface SliceOptions {
  /** The index of the worker, from 0. */
  readonly index: number
  /** The number of GPUs of one worker. */
  readonly tpSize: number
  /** The number of GPUs of one node; 0 for none. */
  readonly numGpus: number
  readonly nodeOffset: number
  /** The `CUDA_VISIBLE_DEVICES` of this process or the configuration: the GPUs to divide. */
  readonly visible: string | undefined
}

export interface WorkerSlice {
  readonly node: number
  /** The value of `CUDA_VISIBLE_DEVICES`; `null` leaves the variable as it is. */
  readonly gpus: string | null
}

/** How many workers one node gets. */
export function workersPerNode({
  tpSize,
  numGpus,
}: Pick<SliceOptions, 'tpSize' | 'numGpus'>): number {
  if (numGpus > 0 && tpSize > numGpus) {
    throw new ValueError(`a worker of ${tpSize} GPUs does not fit into a node of ${numGpus}`, {
      field: 'tp_size',
      expected: `at most num_gpus, which is ${numGpus}`,
      got: tpSize,
    })
  }
  return Math.max(1, Math.floor(numGpus / tpSize))
}

/** Workers fill one node before the next; without GPUs each node has one worker. */
export function sliceOf(options: SliceOptions): WorkerSlice {
  const { index, tpSize, numGpus, nodeOffset } = options
  const perNode = workersPerNode(options)
  const node = nodeOffset + Math.floor(index / perNode)
  if (numGpus === 0) return { node, gpus: null }
  const available = gpusOf(options)
  const first = (index % perNode) * tpSize
  return { node, gpus: available.slice(first, first + tpSize).join(',') }
}

function gpusOf({ visible, numGpus }: SliceOptions): readonly (string | number)[] {
  if (visible === undefined) return Array.from({ length: numGpus }, (_, at) => at)
  const ids = visible.split(',').flatMap((id) => (id.trim() === '' ? [] : [id.trim()]))
  if (ids.length >= numGpus) return ids
  throw new ValueError(`CUDA_VISIBLE_DEVICES shows ${ids.length} GPUs of ${numGpus}`, {
    field: 'num_gpus',
    expected: `at most ${ids.length}`,
    got: numGpus,
  })
}

/** The address at which this machine reaches a server that listens on `host`. */
export function toOrigin(host: string, port: number): string {
  const reachable = host === '0.0.0.0' ? '127.0.0.1' : host === '::' ? '::1' : host
  return `http://${reachable.includes(':') ? `[${reachable}]` : reachable}:${port}`
}
