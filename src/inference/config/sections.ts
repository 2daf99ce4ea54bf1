/** The sections `hardware`, `llm`, `input_batching` and `dynamic_workers`, with their defaults. */

import {
  boolean,
  type Field,
  integer,
  listOf,
  number,
  oneOf,
  type Reader,
  readSection,
  text,
} from './fields.ts'
import { sharedRanges } from './overrides.ts'
import type {
  BatchingConfig,
  DynamicWorkersConfig,
  HardwareConfig,
  InferenceOverrides,
  LlmConfig,
} from './inference-config.ts'
import type { MapNode } from './tree.ts'

const shared = (name: keyof typeof sharedRanges): Reader<number> =>
  integer(sharedRanges[name].min, sharedRanges[name].max)

const workers = integer(1, 65_536)
const seconds = number({ min: 0, max: 86_400 })

const hardwareSpec = {
  num_nodes: shared('numNodes'),
  num_gpus: shared('numGpus'),
  node_offset: shared('offset'),
  num_inf_workers: workers,
  queue_limit: integer(1, 10_000_000),
}

export function readHardware(
  node: MapNode,
  field: Field,
  overrides: InferenceOverrides,
  tpSize: number,
): HardwareConfig {
  const { values } = readSection(hardwareSpec, node, field)
  const numNodes = overrides.numNodes ?? values.num_nodes ?? 1
  const numGpus = overrides.numGpus ?? values.num_gpus ?? 1
  return {
    numNodes,
    numGpus,
    nodeOffset: overrides.offset ?? values.node_offset ?? 0,
    numInfWorkers: values.num_inf_workers ?? Math.max(1, numNodes * Math.floor(numGpus / tpSize)),
    queueLimit: values.queue_limit ?? 10_000,
  }
}

const llmSpec = {
  dtype: oneOf('bfloat16', 'float16', 'float32', 'half', 'float', 'auto'),
  max_tokens: integer(1, 10_000_000),
  max_model_len: integer(1, 10_000_000),
  temperature: number({ min: 0, max: 2 }),
  top_p: number({ above: 0, max: 1 }),
  top_k: integer(0, 1_000_000),
  repetition_penalty: number({ above: 0, max: 10 }),
  seed: integer(0, 2 ** 32 - 1),
  stop: listOf(text({ maxLength: 1024 }), 64),
  ignore_eos: boolean,
  system_prompt: listOf(text({ maxLength: 1_000_000 })),
  gpu_memory_utilization: number({ above: 0, max: 1 }),
}

export function readLlm(node: MapNode, field: Field): LlmConfig {
  const { values, placeOf } = readSection(llmSpec, node, field)
  const maxModelLen = values.max_model_len ?? 8192
  const { max_tokens: maxTokens = Math.min(100, maxModelLen) } = values
  if (maxTokens > maxModelLen) {
    const problem = `expected at most max_model_len (${maxModelLen}), got ${maxTokens}`
    field.problems.add(placeOf('max_tokens'), `${field.path}.max_tokens: ${problem}`)
  }
  return {
    dtype: values.dtype ?? 'bfloat16',
    maxTokens,
    maxModelLen,
    temperature: values.temperature ?? 0.5,
    topP: values.top_p ?? 0.95,
    topK: values.top_k ?? 50,
    repetitionPenalty: values.repetition_penalty ?? 1.1,
    seed: values.seed ?? null,
    stop: values.stop ?? [],
    ignoreEos: values.ignore_eos ?? false,
    systemPrompt: values.system_prompt ?? [],
    gpuMemoryUtilization: values.gpu_memory_utilization ?? 0.95,
  }
}

const batchingSpec = {
  toggle_on: boolean,
  max_batch_size: shared('maxBatchSize'),
  max_batch_wait_ms: shared('maxBatchWaitMs'),
  type: oneOf('adaptive', 'fixed'),
}

export function readBatching(
  node: MapNode,
  field: Field,
  overrides: InferenceOverrides,
): BatchingConfig {
  const { values } = readSection(batchingSpec, node, field)
  return {
    isOn: values.toggle_on ?? true,
    maxBatchSize: overrides.maxBatchSize ?? values.max_batch_size ?? 1024,
    maxBatchWaitMs: overrides.maxBatchWaitMs ?? values.max_batch_wait_ms ?? 500,
    type: values.type ?? 'adaptive',
  }
}

const dynamicSpec = {
  toggle_on: boolean,
  min_workers: workers,
  max_workers: workers,
  target_ongoing_requests: number({ above: 0, max: 1_000_000 }),
  spin_up_seconds: seconds,
  spin_down_seconds: seconds,
}

/** `slots` is what one worker takes at a time. */
export function readDynamicWorkers(
  node: MapNode,
  field: Field,
  { numInfWorkers }: HardwareConfig,
  slots: number,
): DynamicWorkersConfig {
  const { values, placeOf } = readSection(dynamicSpec, node, field)
  const minWorkers = values.min_workers ?? 1
  const maxWorkers = values.max_workers ?? Math.max(numInfWorkers, minWorkers)
  if (maxWorkers < minWorkers) {
    const problem = `expected at least min_workers (${minWorkers}), got ${maxWorkers}`
    field.problems.add(placeOf('max_workers'), `${field.path}.max_workers: ${problem}`)
  }
  return {
    isOn: values.toggle_on ?? false,
    minWorkers,
    maxWorkers,
    targetOngoingRequests: values.target_ongoing_requests ?? slots,
    spinUpSeconds: values.spin_up_seconds ?? 3,
    spinDownSeconds: values.spin_down_seconds ?? 300,
  }
}
