/**
 * Converts a batch to a message for a worker. The jobs in the message share no argument objects.
 */

import { BackendError, messageOf } from '../../../foundation/errors.ts'
import { ArgumentNotSerializableError } from '../../../foundation/task-errors.ts'
import type { TaskDefinition } from '../../../tasks/define-task.ts'
import type { Job } from '../../backend.ts'
import type { Assignment } from './assignments.ts'
import { cloningHint, expectNoFakeBuiltIn, isPlainValue, uncloneablePath } from './cloning.ts'
import type { BatchMessage } from './protocol.ts'

/** A job whose arguments cannot be sent. */
export interface UnsendableJob {
  readonly index: number
  readonly error: unknown
}

/** Builds the messages for one worker. Each definition is sent only once. */
export class BatchMessages {
  /** Indexes of definitions by module and name, because definitions may be copies of each other. */
  readonly #known = new Map<string, Map<string, number>>()
  #count = 0
  /**
   * The definition of the previous job. The next job mostly has the same one, and comparing objects
   * is cheaper than looking up strings.
   */
  #last: TaskDefinition = { module: '', name: '' }
  #lastIndex = -1

  build(assignment: Assignment): {
    readonly message: Omit<BatchMessage, 'bank'>
    readonly unsendable: readonly UnsendableJob[]
  } {
    const { batch, count } = assignment
    const jobs: unknown[] = []
    const definitions: TaskDefinition[] = []
    const unsendable: UnsendableJob[] = []
    for (let index = 0; index < count; index++) {
      const job = assignment.jobAt(index)
      const { spec } = job
      if (spec.kind !== 'function') {
        unsendable.push({ index, error: notAFunctionError(job) })
        jobs.push(0, job.uid, [])
        continue
      }
      try {
        // The arguments are cloned for each job. Otherwise, jobs that share an object would also
        // share it in the worker.
        const args = spec.args.every(isPlainValue) ? spec.args : cloneArguments(spec.args)
        jobs.push(this.#indexOf(spec.definition, definitions), job.uid, args)
      } catch (error) {
        unsendable.push({ index, error: toArgumentsError(spec.args, error) })
        jobs.push(0, job.uid, [])
      }
    }
    const gpus = batch.gpuIds.length === 0 ? null : batch.gpuIds.join(',')
    const hasRetries = batch.jobs.some(({ attempt }) => attempt !== 1)
    const attempts = hasRetries ? batch.jobs.map(({ attempt }) => attempt) : null
    return { message: { gpus, definitions, attempts, jobs }, unsendable }
  }

  #indexOf(definition: TaskDefinition, added: TaskDefinition[]): number {
    if (definition === this.#last) return this.#lastIndex
    const { module, name } = definition
    const isKnown = name === this.#last.name && module === this.#last.module
    this.#last = definition
    if (isKnown) return this.#lastIndex
    let names = this.#known.get(module)
    if (names === undefined) this.#known.set(module, (names = new Map()))
    let index = names.get(name)
    if (index === undefined) {
      names.set(name, (index = this.#count++))
      added.push(definition)
    }
    this.#lastIndex = index
    return index
  }
}

function cloneArguments(args: readonly unknown[]): readonly unknown[] {
  expectNoFakeBuiltIn(args)
  return structuredClone(args)
}

export function toArgumentsError(
  args: readonly unknown[],
  cause: unknown,
): ArgumentNotSerializableError {
  const field = uncloneablePath(args, 'args')
  const text = `${field} cannot be sent to a worker: ${messageOf(cause)}`
  return new ArgumentNotSerializableError(text, {
    field,
    expected: 'a value that can be cloned',
    hint: cloningHint,
    cause,
  })
}

const notAFunctionError = (job: Job): BackendError =>
  new BackendError(`task ${job.uid} has no function that a worker could import`)
