/** Sends jobs to their agents. First stores data that is too large for a message. */

import type { Broker } from '../../broker/broker.ts'
import { isStoreTooSmall, type StoredObjects } from '../../broker/stored-objects.ts'
import { type SentModules, toImportError } from '../../bundles/sent-modules.ts'
import type { DriverJob, RemoteAgent } from '../../protocol/driver/remote-agent.ts'
import { encodeJobs, encodeLargeJob, payloadLimit } from '../../wire/job-batches.ts'

export interface JobSenderOptions {
  readonly broker: Broker
  readonly objects: StoredObjects
  /** `null` if agents import modules from the same paths. */
  readonly modules: SentModules | null
  readonly send: (agent: RemoteAgent, payload: Buffer) => void
  readonly onUnsendable: (one: DriverJob, error: unknown, isFinal: boolean) => void
  readonly onFailed: (error: unknown) => void
}

export class JobSender {
  readonly #options: JobSenderOptions
  readonly #unsent = new Map<DriverJob, AbortController>()

  constructor(options: JobSenderOptions) {
    this.#options = options
  }

  send(agent: RemoteAgent, jobs: readonly DriverJob[]): void {
    const { modules } = this.#options
    if (modules === null) return this.#encode(agent, jobs, keepUrl)
    const missing = (one: DriverJob): string => {
      const { spec } = one
      if (spec.kind !== 'function') return ''
      return modules.find(spec.definition.module) === null ? spec.definition.module : ''
    }
    for (const [module, group] of Map.groupBy(jobs, missing)) {
      if (module === '') this.#encode(agent, group, (url) => modules.find(url) ?? url)
      else this.#sendWithModule(agent, group, module, modules).catch(this.#options.onFailed)
    }
  }

  /** Stops storing data of a job that was canceled. */
  abort(one: DriverJob): void {
    this.#unsent.get(one)?.abort()
  }

  #encode(agent: RemoteAgent, jobs: readonly DriverJob[], urlOf: (module: string) => string): void {
    const { broker, send, onUnsendable, onFailed } = this.#options
    const limitBytes = payloadLimit(broker.maxPayload)
    const { payloads, large, unsendable } = encodeJobs(jobs, limitBytes, urlOf)
    for (const payload of payloads) send(agent, payload)
    for (const { job, spec } of large) this.#sendLarge(agent, job, spec).catch(onFailed)
    for (const { job, error } of unsendable) onUnsendable(job, error, false)
  }

  async #sendWithModule(
    agent: RemoteAgent,
    jobs: readonly DriverJob[],
    module: string,
    modules: SentModules,
  ): Promise<void> {
    const isWanted = wantedBy(agent, jobs)
    try {
      await this.#storeBeforeSending(jobs, () => modules.prepare(module))
    } catch (cause) {
      const error = toImportError(module, agent.name, cause)
      for (const one of jobs.filter(isWanted)) this.#options.onUnsendable(one, error, false)
      return
    }
    const wanted = jobs.filter(isWanted)
    if (wanted.length > 0) this.#encode(agent, wanted, (url) => modules.find(url) ?? url)
  }

  async #sendLarge(agent: RemoteAgent, one: DriverJob, spec: Buffer): Promise<void> {
    const { objects, send, onUnsendable } = this.#options
    const isWanted = wantedBy(agent, [one])
    let name: string
    try {
      const title = `the input of task ${one.uid}`
      const object = { prefix: `${one.uid}/${one.wireAttempt}/spec`, title, data: spec }
      name = await this.#storeBeforeSending([one], (canceled) => objects.put(object, canceled))
    } catch (error) {
      // Any other error means that the job or the whole session has ended.
      if (isStoreTooSmall(error) && isWanted(one)) onUnsendable(one, error, true)
      return
    }
    // If the job has moved in the meantime, its spec is stored again.
    if (isWanted(one)) send(agent, encodeLargeJob(one, name))
    else objects.delete(name)
  }

  async #storeBeforeSending<T>(
    jobs: readonly DriverJob[],
    store: (canceled: AbortSignal) => Promise<T>,
  ): Promise<T> {
    const canceled = new AbortController()
    for (const one of jobs) {
      // If the job was assigned to another agent before, its data is no longer needed there.
      this.#unsent.get(one)?.abort()
      this.#unsent.set(one, canceled)
      one.isUnsent = true
    }
    try {
      return await store(canceled.signal)
    } finally {
      for (const one of jobs) {
        if (this.#unsent.get(one) !== canceled) continue
        this.#unsent.delete(one)
        one.isUnsent = false
      }
    }
  }
}

/** Returns whether a job must still be sent to the agent, as the same attempt as now. */
function wantedBy(agent: RemoteAgent, jobs: readonly DriverJob[]): (one: DriverJob) => boolean {
  const attempts = new Map(jobs.map((one) => [one, one.wireAttempt]))
  return (one) =>
    one.agent === agent && attempts.get(one) === one.wireAttempt && agent.state !== 'attaching'
}

const keepUrl = (module: string): string => module
