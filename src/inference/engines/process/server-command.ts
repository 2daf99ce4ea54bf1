/** Determines the command line, the environment and the GPUs of a worker's server. */

import { ValueError } from '../../../foundation/errors.ts'
import { definedFields, didYouMean, invalid } from '../../../foundation/options.ts'
import { registerSecret } from '../../../foundation/secrets.ts'
import { type Environment, inheritedEnvironment } from '../../../runtime/server/guarded-server.ts'
import type { ServerRequest } from '../../../runtime/server/node-servers.ts'
import type { CommonConfig } from '../../config/config-sections.ts'
import {
  addFormatIssue,
  addIssue,
  createTextSchema,
  type Environment as Variables,
  integer,
  numberAbove,
  section,
} from '../../schema/config-fields.ts'
import { annotate, z } from '../../schema/schema.ts'
import { withMaskedValues } from '../../schema/secret.ts'
import { concurrencySchema, pathsSchema } from '../openai/server-fields.ts'

const placeholderNames = [
  'model',
  'port',
  'host',
  'tp_size',
  'worker',
  'node',
  'dtype',
  'max_model_len',
  'gpu_memory_utilization',
] as const

type PlaceholderName = (typeof placeholderNames)[number]

const placeholderPattern = /\{([A-Za-z_]\w*)\}/g

const placeholders: readonly string[] = placeholderNames.map((one) => `{${one}}`)

const isPlaceholderName = (name: string): name is PlaceholderName =>
  (placeholderNames as readonly string[]).includes(name)

function findUnknownPlaceholder(
  argument: string,
): { readonly message: string; readonly got: string } | undefined {
  for (const [got, name = ''] of argument.matchAll(placeholderPattern)) {
    if (isPlaceholderName(name)) continue
    const known = `${didYouMean(name, placeholderNames)} (known: ${placeholders.join(', ')})`
    return { message: `unknown placeholder ${got}${known}`, got }
  }
  return undefined
}

export function processSection(env: Variables) {
  const text = createTextSchema(env)
  const variableName = annotate(z.string().regex(/^(?!__proto__$)[A-Za-z_]\w*$/), {
    expected: 'the name of a variable',
  })
  return section({
    kind: z.literal('process').describe('Starts an OpenAI-compatible server for each worker.'),
    command: commandSchema(env).describe(
      `Program and arguments, without a shell: ${placeholders.join(' ')}.`,
    ),
    env: annotate(z.record(variableName, variableSchema(env)), {
      expected: 'keys and values',
      isPrivate: true,
    })
      .optional()
      .transform((own) => withMaskedValues(own ?? {}))
      .describe('Variables added to the server’s environment.'),
    start_timeout_seconds: numberAbove(0, 86_400)
      .default(600)
      .describe('How long the server may take until it is healthy.'),
    health_path: text({ pattern: /^\/\S*$/, expected: 'a path that begins with /' })
      .default('/health')
      .describe('Path that answers with status 200 when the server is ready.'),
    max_concurrency: concurrencySchema(),
    cores: integer(1, 65_536)
      .default(1)
      .describe('Cores that each server has on a node of an allocation.'),
    paths: pathsSchema(env),
  }).describe('Servers that are started and supervised.')
}

/** Splits a string before variables are replaced, so that each value stays one argument. */
function commandSchema(env: Variables) {
  const argument = createTextSchema(env)({ isPrivate: true, expected: 'a program or argument' })
  const list = z.array(argument).max(1000)
  const line = z.string().transform((text) => text.split(/\s+/).filter((word) => word !== ''))
  const words = z.union([line.pipe(list), list]).transform((all, context) => {
    if (all.length === 0) addFormatIssue(context, '')
    else if (context.issues.length === 0) checkPlaceholders(all, context)
    return all
  })
  return annotate(words, {
    expected: 'a program or argument',
    format: 'a program and its arguments',
    isPrivate: true,
  })
}

/** Requires `{port}`, because the server must listen on the port that the engine uses. */
function checkPlaceholders(words: readonly string[], context: z.core.$RefinementCtx): void {
  const unknown = words.map(findUnknownPlaceholder).find((problem) => problem !== undefined)
  if (unknown !== undefined) addIssue(context, unknown.message)
  else if (!words.some((word) => word.includes('{port}'))) {
    addIssue(context, 'expected {port}, the port where the server must listen')
  }
}

/** Variables with paths and names, whose values are not masked. */
const publicNamePattern =
  /^(?:USER|LOGNAME|HOSTNAME|LANG|SHELL|PWD|HOME|TMPDIR|\w*(?:PATH|_DIR|_HOME|_ROOT))$/

/** Registers values of this process's environment as secrets: the server may print them. */
function variableSchema(env: Variables) {
  const written = z.string().transform((text) => {
    const names = [...text.matchAll(/\$\{env:(\w+)\}/g)].map(([, name = '']) => name)
    const secrets = names
      .filter((name) => !publicNamePattern.test(name))
      .map((name) => env[name] ?? '')
    const whole = text.replaceAll(/\$\{env:(\w+)\}/g, (_, name: string) => env[name] ?? '')
    if (secrets.length > 0) {
      for (const secret of [whole, ...secrets]) if (secret !== '') registerSecret(secret)
    }
    return text
  })
  const value = createTextSchema(env)({ isPrivate: true })
  return annotate(written.pipe(value), { expected: 'a non-empty text', isPrivate: true })
}

type TemplateValues = Readonly<Record<PlaceholderName, string | number>>

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

/** Replaces the placeholders of a valid template. Placeholders within values are not replaced. */
export function fillTemplate(command: readonly string[], values: TemplateValues): string[] {
  return command.map((argument) =>
    argument.replace(placeholderPattern, (place, name: string) =>
      isPlaceholderName(name) ? String(values[name]) : place,
    ),
  )
}

interface ChildEnvironmentOptions {
  readonly env: Environment
  readonly hubToken: string | null
  readonly node: number
  readonly gpus: string | null
}

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

function addedEnvironment({
  env,
  hubToken,
  node,
}: Omit<ChildEnvironmentOptions, 'gpus'>): Record<string, string> {
  return {
    ...(hubToken === null ? {} : { HF_TOKEN: hubToken }),
    ...definedFields(env),
    TUTTI_NODE: String(node),
  }
}

/** The variables from which vLLM, llama.cpp and `tutti serve` read the API key. */
const apiKeyVariables = ['VLLM_API_KEY', 'LLAMA_API_KEY', 'TUTTI_API_KEY']

/** Other machines can reach the server, so it gets the configured key, or else `newKey`. */
export function remoteEnvironment(
  options: Omit<ChildEnvironmentOptions, 'gpus'>,
  newKey: string,
): { readonly env: Record<string, string>; readonly apiKey: string } {
  // The agent on the node sets this variable to the reserved GPUs.
  const { CUDA_VISIBLE_DEVICES: _, ...configured } = options.env
  const configuredKey = apiKeyVariables
    .map((name) => configured[name])
    .find((key) => key !== undefined)
  const apiKey = configuredKey ?? newKey
  const keys = Object.fromEntries(apiKeyVariables.map((name) => [name, apiKey]))
  return { env: { ...keys, ...addedEnvironment({ ...options, env: configured }) }, apiKey }
}

interface PlacementOptions {
  readonly index: number
  readonly tpSize: number
  readonly numGpus: number
  readonly nodeOffset: number
  /** The GPUs to distribute: `CUDA_VISIBLE_DEVICES` of this process or of the configuration. */
  readonly visible: string | undefined
}

export interface WorkerPlacement {
  readonly node: number
  /** The value of `CUDA_VISIBLE_DEVICES`; `null` if the variable must not be changed. */
  readonly gpus: string | null
}

function workersPerNode({ tpSize, numGpus }: Pick<PlacementOptions, 'tpSize' | 'numGpus'>): number {
  if (numGpus > 0 && tpSize > numGpus) {
    throw new ValueError(`a worker of ${tpSize} GPUs does not fit into a node of ${numGpus}`, {
      field: 'tp_size',
      expected: `at most num_gpus, which is ${numGpus}`,
      got: tpSize,
    })
  }
  return Math.max(1, Math.floor(numGpus / tpSize))
}

/** Workers fill one node before the next. Without GPUs, each node has one worker. */
export function placeWorker(options: PlacementOptions): WorkerPlacement {
  const { index, tpSize, numGpus, nodeOffset } = options
  const perNode = workersPerNode(options)
  const node = nodeOffset + Math.floor(index / perNode)
  if (numGpus === 0) return { node, gpus: null }
  const available = listGpus(options)
  const first = (index % perNode) * tpSize
  return { node, gpus: available.slice(first, first + tpSize).join(',') }
}

function listGpus({ visible, numGpus }: PlacementOptions): readonly (string | number)[] {
  if (visible === undefined) return Array.from({ length: numGpus }, (_, at) => at)
  const ids = visible.split(',').flatMap((id) => (id.trim() === '' ? [] : [id.trim()]))
  if (ids.length >= numGpus) return ids
  throw new ValueError(`CUDA_VISIBLE_DEVICES shows ${ids.length} GPUs of ${numGpus}`, {
    field: 'num_gpus',
    expected: `at most ${ids.length}`,
    got: numGpus,
  })
}

/** A server on all interfaces is reached through the loopback address. */
export function toOrigin(host: string, port: number): string {
  const reachable = host === '0.0.0.0' ? '127.0.0.1' : host === '::' ? '::1' : host
  return `http://${reachable.includes(':') ? `[${reachable}]` : reachable}:${port}`
}

/** Returns the reservation for all workers, including workers that start only under load. */
export function toServerRequest(
  service: string,
  { tpSize, hardware, dynamicWorkers }: CommonConfig,
  coresPerWorker: number,
): ServerRequest {
  const { numNodes, numGpus, nodeOffset, numInfWorkers } = hardware
  const perNode = workersPerNode({ tpSize, numGpus })
  const workers = dynamicWorkers.isOn ? dynamicWorkers.maxWorkers : numInfWorkers
  if (workers > numNodes * perNode) {
    const field = dynamicWorkers.isOn ? 'dynamic_workers.max_workers' : 'hardware.num_inf_workers'
    const max = numNodes * perNode
    throw new ValueError(
      `${field}: there is room for ${max} of ${workers} workers: ${perNode} on each node`,
      {
        field,
        expected: `at most ${max}`,
        got: workers,
        hint: 'Raise hardware.num_nodes or hardware.num_gpus.',
      },
    )
  }
  const nodes = Array.from({ length: numNodes }, (_, at) => {
    const count = Math.max(0, Math.min(perNode, workers - at * perNode))
    return { cores: count * coresPerWorker, gpus: numGpus === 0 ? 0 : count * tpSize }
  })
  return { service, nodeOffset, nodes }
}
