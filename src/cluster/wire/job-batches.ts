/** Encodes jobs as messages, split by size. A message contains each task definition once. */

import type { Job } from '../../backends/backend.ts'
import { isPlainValue } from '../../backends/local/functions/cloning.ts'
import { ArgumentNotSerializableError } from '../../foundation/task-errors.ts'
import type { TaskDefinition } from '../../tasks/define-task.ts'
import { defaultResources, isDefaultRequest } from '../../tasks/resources.ts'
import type { FunctionSpec, TaskSpec } from '../../tasks/spec.ts'
import { decode, encode } from './codec.ts'
import { joinUids, packIndexes, RareColumn, splitUids } from './columns.ts'
import {
  type DriverMessage,
  expectSpec,
  type Message,
  type SentJob,
  type WireFunctions,
  type WireJob,
  type WireOptions,
} from './messages.ts'
import { toPortable } from './portable.ts'

/** A job with the attempt number that agents use for it. */
export interface NumberedJob {
  readonly index: number
  readonly job: Job
  readonly wireAttempt: number
}

export interface EncodedJobs<T> {
  readonly payloads: readonly Buffer[]
  /** Jobs that are too large for a message. Their specs must be put into the object store. */
  readonly large: readonly { readonly job: T; readonly spec: Buffer }[]
  readonly unsendable: readonly { readonly job: T; readonly error: unknown }[]
}

/** The maximum size of a value in a message. Larger values go through the object store. */
const maxValueBytes = 256 * 1024
const envelopeBytes = 1024
/** The maximum number of jobs per message. With more, the first jobs would begin later. */
const maxJobs = 2000
const maxReferencesPerMessage = 5000

/** Returns the maximum size of a payload on a broker with this limit for messages. */
export const payloadLimit = (maxPayload: number): number =>
  Math.min(maxValueBytes, maxPayload - envelopeBytes)

/** Returns the URL from which agents import a module. */
export type ModuleUrls = (module: string) => string

interface EncodingOptions {
  readonly limitBytes: number
  readonly toAgentUrl: ModuleUrls
  /** By job: the arguments to send if the original ones cannot be sent. */
  readonly changedArgs: ReadonlyMap<NumberedJob, readonly unknown[]>
}

export function encodeJobs<T extends NumberedJob>(
  jobs: readonly T[],
  limitBytes: number,
  toAgentUrl: ModuleUrls,
): EncodedJobs<T> {
  const sendable: T[] = []
  const unsendable: { job: T; error: unknown }[] = []
  const changedArgs = new Map<NumberedJob, readonly unknown[]>()
  for (const job of jobs) {
    try {
      const { spec } = job.job
      const args = toSentArguments(spec)
      if (spec.kind === 'function' && args !== spec.args) changedArgs.set(job, args)
      sendable.push(job)
    } catch (error) {
      unsendable.push({ job, error })
    }
  }
  const payloads: Buffer[] = []
  const large: { job: T; spec: Buffer }[] = []
  const form: EncodingOptions = { limitBytes, toAgentUrl, changedArgs }
  for (let at = 0; at < sendable.length; at += maxJobs) {
    splitJobs(sendable.slice(at, at + maxJobs), form, payloads, large)
  }
  return { payloads, large, unsendable }
}

/** Encodes a message that refers to jobs, split into several by count and by size. */
export function encodeReferences(
  message: Message<'cancel' | 'recall'>,
  limitBytes: number,
): readonly Buffer[] {
  const { jobs } = message
  if (jobs.length === 0) return []
  const payload = jobs.length <= maxReferencesPerMessage ? encode(message) : null
  if (payload !== null && (payload.length <= limitBytes || jobs.length === 1)) return [payload]
  const middle = jobs.length >> 1
  return [jobs.slice(0, middle), jobs.slice(middle)].flatMap((part) =>
    encodeReferences({ ...message, jobs: part }, limitBytes),
  )
}

/** Encodes the message for a job whose spec is in the object store. */
export function encodeLargeJob(one: NumberedJob, specObject: string): Buffer {
  const { index, job, wireAttempt } = one
  const attempt = wireAttempt
  const wireJob: WireJob = { index, uid: job.uid, attempt, spec: null, specObject, after: 0 }
  const functions = new FunctionColumns().toWire()
  return encode({ kind: 'jobs', definitions: [], functions, others: [wireJob] })
}

export const decodeSpec = (data: Uint8Array): TaskSpec => expectSpec(decode(data))

function toSentArguments(spec: TaskSpec): readonly unknown[] {
  if (spec.kind !== 'function') return noArguments
  const { args } = spec
  if (args.every(isPlainValue)) return args
  return toPortable(args, 'args', ArgumentNotSerializableError)
}

/** Encodes a batch, and splits it in half if it is too large. Most batches fit. */
function splitJobs<T extends NumberedJob>(
  jobs: readonly T[],
  form: EncodingOptions,
  payloads: Buffer[],
  large: { job: T; spec: Buffer }[],
): void {
  const [first] = jobs
  if (first === undefined) return
  const payload = encode(toJobsMessage(jobs, form))
  if (payload.length <= form.limitBytes) payloads.push(payload)
  else if (jobs.length === 1) large.push({ job: first, spec: encode(toSentSpec(first, form)) })
  else {
    const middle = jobs.length >> 1
    splitJobs(jobs.slice(0, middle), form, payloads, large)
    splitJobs(jobs.slice(middle), form, payloads, large)
  }
}

function toSentSpec(one: NumberedJob, { toAgentUrl, changedArgs }: EncodingOptions): TaskSpec {
  const { spec } = one.job
  if (spec.kind !== 'function') return spec
  const args = changedArgs.get(one) ?? spec.args
  return { ...spec, args, definition: toSentDefinition(spec.definition, toAgentUrl) }
}

const toSentDefinition = ({ module, name }: TaskDefinition, urlOf: ModuleUrls): TaskDefinition => ({
  module: urlOf(module),
  name,
})

function toJobsMessage(
  jobs: readonly NumberedJob[],
  { toAgentUrl, changedArgs }: EncodingOptions,
): DriverMessage {
  const definitions: TaskDefinition[] = []
  const known = new Map<string, number>()
  const functions = new FunctionColumns()
  const others: WireJob[] = []
  // Consecutive jobs usually have the same function.
  let last: TaskDefinition | null = null
  let definitionIndex = -1
  for (const one of jobs) {
    const { spec, uid } = one.job
    // Programs have individual options, such as a folder, so they are sent as whole specs.
    if (spec.kind !== 'function') {
      const { index, wireAttempt: attempt } = one
      others.push({ index, uid, attempt, spec, specObject: null, after: functions.length })
      continue
    }
    const { definition } = spec
    if (last?.name !== definition.name || last.module !== definition.module) {
      const key = `${definition.module}#${definition.name}`
      definitionIndex =
        known.get(key) ?? definitions.push(toSentDefinition(definition, toAgentUrl)) - 1
      known.set(key, definitionIndex)
      last = definition
    }
    functions.add(one, spec, changedArgs.get(one) ?? spec.args, definitionIndex)
  }
  return { kind: 'jobs', definitions, functions: functions.toWire(), others }
}

class FunctionColumns {
  readonly #indexes: number[] = []
  readonly #uids: string[] = []
  readonly #attempts = new RareColumn(1)
  readonly #definitions = new RareColumn(0)
  readonly #args = new RareColumn(noArguments)
  readonly #options = new RareColumn<WireOptions | null>(null)

  get length(): number {
    return this.#uids.length
  }

  add(
    { index, job, wireAttempt }: NumberedJob,
    spec: FunctionSpec,
    args: readonly unknown[],
    definition: number,
  ): void {
    this.#indexes.push(index)
    this.#uids.push(job.uid)
    this.#attempts.add(wireAttempt)
    this.#definitions.add(definition)
    this.#args.add(args.length === 0 ? noArguments : args)
    this.#options.add(pickOptions(spec))
  }

  toWire(): WireFunctions {
    return {
      indexes: packIndexes(this.#indexes),
      uids: joinUids(this.#uids),
      attempts: this.#attempts.values,
      definitions: this.#definitions.values,
      args: this.#args.values,
      options: this.#options.values,
    }
  }
}

function pickOptions({ priority, timeoutSeconds, resources }: FunctionSpec): WireOptions | null {
  const isDefault = isDefaultRequest(resources)
  if (priority === 0 && timeoutSeconds === null && isDefault) return null
  return { priority, timeoutSeconds, ...(isDefault ? {} : { resources }) }
}

/** Passes each job of a message to one of the two callbacks, in the driver's order. */
export function unpackJobs(
  { functions, definitions, others }: DriverMessage & { kind: 'jobs' },
  onFunction: (job: SentJob, spec: FunctionSpec) => void,
  onOther: (job: WireJob) => void,
): void {
  const { indexes, attempts } = functions
  let taken = 0
  const passOtherJobs = (until: number): void => {
    for (let one = others[taken]; one !== undefined && one.after <= until; one = others[taken]) {
      taken++
      onOther(one)
    }
  }
  const uids = splitUids(functions.uids, indexes.length)
  const sharedSpecs: FunctionSpec[] = []
  for (let row = 0; row < uids.length; row++) {
    passOtherJobs(row)
    const uid = uids[row] ?? ''
    const job = { index: indexes[row] ?? -1, uid, attempt: attempts?.[row] ?? 1 }
    onFunction(job, toFunctionSpec(functions, row, definitions, sharedSpecs))
  }
  passOtherJobs(uids.length)
}

/** Jobs without arguments and options share one spec per definition (`sharedSpecs`). */
function toFunctionSpec(
  { definitions: indexes, args, options }: WireFunctions,
  row: number,
  definitions: readonly TaskDefinition[],
  sharedSpecs: FunctionSpec[],
): FunctionSpec {
  const at = indexes?.[row] ?? 0
  const own = options?.[row] ?? null
  if (args !== null || own !== null) {
    return toSpec(definitions[at], args?.[row] ?? noArguments, own)
  }
  return (sharedSpecs[at] ??= toSpec(definitions[at], noArguments, null))
}

function toSpec(
  definition: TaskDefinition = { module: '', name: '' },
  args: readonly unknown[],
  own: WireOptions | null,
): FunctionSpec {
  return {
    kind: 'function',
    executable: definition.name,
    definition,
    args,
    priority: own?.priority ?? 0,
    timeoutSeconds: own?.timeoutSeconds ?? null,
    resources: own?.resources ?? defaultResources,
    workDir: null,
  }
}

const noArguments: readonly unknown[] = Object.freeze([])
