/** A backend that completes every task without running it, for measurements and dry runs. */

import { expectKnownKeys, expectObject, expectString } from '../foundation/options.ts'
import { once } from '../foundation/service.ts'
import type { ExecutableResult } from '../tasks/compute-task.ts'
import type { Backend, BackendListener, Connection, Job, Refusal } from './backend.ts'

/** All options are optional, as in `new NoopBackend()`. */
export interface NoopBackendOptions {
  /** The name of the backend. Default `noop`. */
  readonly name?: string
}

/**
 * Tasks become DONE and are never RUNNING. A function's value is `undefined`, a program has no
 * output and exit code 0, and a prompt has an empty answer.
 *
 * @example
 * await using session = new Session([new NoopBackend()])
 */
export class NoopBackend implements Backend {
  readonly name: string
  readonly #close = once(() => Promise.resolve())

  constructor(options: NoopBackendOptions = {}) {
    expectKnownKeys('NoopBackend', expectObject('options', options), ['name'])
    const { name = 'noop' } = options
    this.name = expectString('name', name)
  }

  refuse(): Refusal | null {
    return this.#close.isCalled ? { field: 'backend', message: `"${this.name}" is closed` } : null
  }

  connect(listener: BackendListener): Connection {
    return {
      submit: (jobs) => {
        for (const job of jobs) this.#end(listener, job)
      },
      cancel() {},
      release: () => Promise.resolve(),
    }
  }

  close(): Promise<void> {
    return this.#close()
  }

  /** For `await using`: calls `close()`. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }

  #end(listener: BackendListener, job: Job): void {
    if (this.#close.isCalled) listener.report(job, { kind: 'cancel', reason: 'backend closed' })
    else listener.report(job, { kind: 'complete', value: valueOf(job) })
  }
}

function valueOf({ spec }: Job): ExecutableResult | string | string[] | undefined {
  if (spec.kind === 'prompt')
    return typeof spec.prompt === 'string' ? '' : spec.prompt.map(() => '')
  return spec.kind === 'program' ? { stdout: '', stderr: '', exitCode: 0 } : undefined
}
