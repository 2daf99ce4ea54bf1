/** How the server of one worker is started: its command line, environment, GPUs and port. */

import { once } from 'node:events'
import { createServer } from 'node:net'
import { ValueError } from '../../../foundation/errors.ts'
import { didYouMean, invalid } from '../../../foundation/options.ts'

export interface TemplateValues {
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

const names: readonly (keyof TemplateValues)[] = [
  'model',
  'port',
  'host',
  'tp_size',
  'worker',
  'node',
  'dtype',
  'max_model_len',
  'gpu_memory_utilization',
]
const placeholder = /\{([A-Za-z_]\w*)\}/g

/** Throws for an empty command and for an unknown placeholder. */
export function checkTemplate(command: readonly string[]): void {
  if (command[0] === undefined || command[0] === '') {
    throw invalid('command', 'a program and its arguments', command)
  }
  for (const [at, argument] of command.entries()) {
    for (const [place, name = ''] of argument.matchAll(placeholder)) {
      if (isName(name)) continue
      const known = names.map((one) => `{${one}}`).join(', ')
      throw new ValueError(
        `command[${at}]: unknown placeholder ${place}${didYouMean(name, names)} (known: ${known})`,
        { field: `command[${at}]`, expected: `one of ${known}`, got: place },
      )
    }
  }
}

/** Fills a checked template. Placeholders in values are not replaced, and no shell is involved. */
export function fillTemplate(command: readonly string[], values: TemplateValues): string[] {
  return command.map((argument) =>
    argument.replace(placeholder, (place, name: string) =>
      isName(name) ? String(values[name]) : place,
    ),
  )
}

const isName = (name: string): name is keyof TemplateValues =>
  (names as readonly string[]).includes(name)

export type Environment = Readonly<Record<string, string | undefined>>

const inherited = new Set(
  'PATH HOME USER LOGNAME LANG LANGUAGE TZ TMPDIR LD_LIBRARY_PATH XDG_CACHE_HOME'
    .concat(' HF_HOME HF_HUB_CACHE HF_HUB_OFFLINE OMP_NUM_THREADS')
    .split(' '),
)
const inheritedFamily = /^(?:CUDA|NVIDIA|NCCL|ROCR|HIP|LC)_/
/** Such as `NVIDIA_API_KEY`. */
const secretName = /KEY|TOKEN|SECRET|PASSW|CREDENTIAL/

/** The part of our environment that every child gets: no secrets. */
export function inheritedEnvironment(environment: Environment): Record<string, string> {
  const kept: Record<string, string> = {}
  for (const [name, value] of Object.entries(environment)) {
    if (value === undefined || secretName.test(name)) continue
    if (inherited.has(name) || inheritedFamily.test(name)) kept[name] = value
  }
  return kept
}

export interface ChildEnvironmentOptions {
  /** From the configuration; it overrides what is inherited. */
  readonly env: Environment
  readonly hubToken: string | null
  readonly node: number
  readonly gpus: string | null
}

/** The environment of one worker's server. */
export function childEnvironment(
  own: Environment,
  { env, hubToken, node, gpus }: ChildEnvironmentOptions,
): Record<string, string> {
  const configured = Object.entries(env).flatMap(([name, value]) =>
    value === undefined ? [] : [[name, value] as const],
  )
  return {
    ...inheritedEnvironment(own),
    ...(hubToken === null ? {} : { HF_TOKEN: hubToken }),
    ...Object.fromEntries(configured),
    ...(gpus === null ? {} : { CUDA_VISIBLE_DEVICES: gpus }),
    TUTTI_NODE: String(node),
  }
}

export interface SliceOptions {
  /** The worker, counted from 0. */
  readonly index: number
  /** GPUs of one worker. */
  readonly tpSize: number
  /** GPUs of one node; 0 for none at all. */
  readonly numGpus: number
  readonly nodeOffset: number
  /** Our own `CUDA_VISIBLE_DEVICES`: the GPUs to divide. */
  readonly visible: string | undefined
}

export interface WorkerSlice {
  readonly node: number
  /** For `CUDA_VISIBLE_DEVICES`; `null` leaves it as it is. */
  readonly gpus: string | null
}

/** Fills one node with workers before the next; without GPUs each node has one worker. */
export function sliceOf(options: SliceOptions): WorkerSlice {
  const { index, tpSize, numGpus, nodeOffset } = options
  if (numGpus > 0 && tpSize > numGpus) {
    throw new ValueError(`a worker of ${tpSize} GPUs does not fit into a node of ${numGpus}`, {
      field: 'tp_size',
      expected: `at most num_gpus, which is ${numGpus}`,
      got: tpSize,
    })
  }
  const perNode = Math.max(1, Math.floor(numGpus / tpSize))
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

/**
 * A free port. Another process may take it before the server does: then the server cannot start,
 * and its worker is restarted with another port.
 */
export async function findFreePort(host: string): Promise<number> {
  const probe = createServer()
  probe.listen(0, host)
  await once(probe, 'listening')
  const address = probe.address()
  probe.close()
  await once(probe, 'close')
  return typeof address === 'object' && address !== null ? address.port : 0
}

/** The address at which a server that listens on `host` is reached from this machine. */
export function toOrigin(host: string, port: number): string {
  const reachable = host === '0.0.0.0' ? '127.0.0.1' : host === '::' ? '::1' : host
  return `http://${reachable.includes(':') ? `[${reachable}]` : reachable}:${port}`
}
