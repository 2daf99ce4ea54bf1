/** Sends jobs to their agents. First stores data that is too large for a message. */

import type { Broker } from '../broker/broker.ts'
import { isStoreTooSmall, type StoredObjects } from '../broker/stored-objects.ts'
import { encodeJobs, encodeLargeJob, payloadLimit } from '../wire/job-batches.ts'
import type { DriverJob, RemoteAgent } from '../protocol/remote-agent.ts'
import type { AgentLink } from './agent-link.ts'
import type { DriverJobs } from '../protocol/driver-jobs.ts'
import { type SentModules, toImportError } from '../bundles/sent-modules.ts'

export interface JobSenderOptions {
  readonly jobs: DriverJobs
  readonly broker: Broker
  readonly objects: StoredObjects
  /** `null` if agents import modules from the same paths. */
  readonly modules: SentModules | null
  readonly onFailed: (error: unknown) => void
}

export class JobSender {
  readonly #options: JobSenderOptions
  readonly #unsent = new Map<DriverJob, AbortController>()

  constructor(options: JobSenderOptions) {
    this.#options = options
  }

  send(link: AgentLink, jobs: readonly DriverJob[]): void {
    const { modules } = this.#options
    if (modules === null) return this.#encode(link, jobs, keepUrl)
    const missing = (one: DriverJob): string => {
      const { spec } = one
      if (spec.kind !== 'function') return ''
      return modules.find(spec.definition.module) === null ? spec.definition.module : ''
    }
    for (const [module, group] of Map.groupBy(jobs, missing)) {
      if (module === '') this.#encode(link, group, (url) => modules.find(url) ?? url)
      else this.#sendWithModule(link, group, module, modules).catch(this.#options.onFailed)
    }
  }

  /** A job that was not sent yet ends immediately, because its agent does not know it. */
  cancel(one: DriverJob, agent: RemoteAgent, reason: string): void {
    const unsent = this.#unsent.get(one)
    if (unsent === undefined) return agent.cancel([one.uid, one.wireAttempt], reason)
    unsent.abort()
    this.#options.jobs.end(one, { kind: 'cancel', reason }, null)
  }

  #encode(link: AgentLink, jobs: readonly DriverJob[], urlOf: (module: string) => string): void {
    const limitBytes = payloadLimit(this.#options.broker.maxPayload)
    const { payloads, large, unsendable } = encodeJobs(jobs, limitBytes, urlOf)
    for (const payload of payloads) link.send(payload)
    for (const { job, spec } of large) {
      this.#sendLarge(link, job, spec).catch(this.#options.onFailed)
    }
    for (const { job, error } of unsendable) this.#fail(job, error)
  }

  async #sendWithModule(
    link: AgentLink,
    jobs: readonly DriverJob[],
    module: string,
    modules: SentModules,
  ): Promise<void> {
    try {
      await this.#storeBeforeSending(jobs, () => modules.prepare(module))
    } catch (cause) {
      const error = toImportError(module, link.agent.name, cause)
      for (const one of jobs) if (this.#mustStillSend(one, link)) this.#fail(one, error)
      return
    }
    const sendable = jobs.filter((one) => this.#mustStillSend(one, link))
    if (sendable.length > 0) this.#encode(link, sendable, (url) => modules.find(url) ?? url)
  }

  async #sendLarge(link: AgentLink, one: DriverJob, spec: Buffer): Promise<void> {
    const { objects, jobs } = this.#options
    const attempt = one.wireAttempt
    let name: string
    try {
      const title = `the input of task ${one.uid}`
      const object = { prefix: `${one.uid}/${attempt}/spec`, title, data: spec }
      name = await this.#storeBeforeSending([one], (canceled) => objects.put(object, canceled))
    } catch (error) {
      // Any other error means that the job or the whole session has ended.
      if (isStoreTooSmall(error) && this.#mustStillSend(one, link)) {
        jobs.end(one, { kind: 'fail', error, isFinal: true }, null)
      }
      return
    }
    // If the job has moved in the meantime, its spec is stored again under the new attempt number.
    const isSame = one.wireAttempt === attempt
    if (isSame && this.#mustStillSend(one, link)) link.send(encodeLargeJob(one, name))
    else if (!isSame || jobs.findEntry(one.job) !== one) objects.delete(name)
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
    }
    try {
      return await store(canceled.signal)
    } finally {
      for (const one of jobs) if (this.#unsent.get(one) === canceled) this.#unsent.delete(one)
    }
  }

  /** Whether the job must still be sent to the agent. Ends the job if it was canceled. */
  #mustStillSend(one: DriverJob, { agent }: AgentLink): boolean {
    if (one.agent !== agent) return false
    const reason = one.cancelReason
    if (reason === null) return true
    this.#options.jobs.end(one, { kind: 'cancel', reason }, null)
    return false
  }

  #fail(one: DriverJob, error: unknown): void {
    this.#options.jobs.end(one, { kind: 'fail', error }, null)
  }
}

const keepUrl = (module: string): string => module
