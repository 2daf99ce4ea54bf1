/** Fails jobs that no agent can run, because none has joined or none allows them. */

import { BackendError } from '../../../foundation/errors.ts'
import type { ResourceRequest } from '../../../tasks/resources.ts'
import { noRules, refuseByKind, rulesHint } from '../../wire/agent-rules.ts'
import { type NodeFacts, type NotAllowed, maxSilenceMs } from '../../wire/messages.ts'
import { canRun, describeRequest, missingResource } from '../../../tasks/resource-fit.ts'
import type { DriverJobs } from './driver-jobs.ts'
import { findUnplaceable, toResourceRequest } from '../placement/placement-state.ts'
import type { AnnouncedAgent, DriverJob } from './remote-agent.ts'

/** The agents that this process knows, whether the session uses them or not. */
export interface KnownAgents {
  readonly agents: readonly AnnouncedAgent[]
  /** Agents that have left or were lost. */
  readonly gone: readonly (Pick<AnnouncedAgent, 'announcement'> & { readonly leftMs: number })[]
  /** Why agents that announce themselves cannot be used. */
  readonly unusable: readonly BackendError[]
  /** By this time, all agents have been heard that were there when the connection was made. */
  readonly allHeardMs: number
  find(name: string): AnnouncedAgent | undefined
}

export interface UnplaceableJobsOptions {
  /**
   * Returns why no suitable agent will ever join; `null` if one may still join. If there is no such
   * function, jobs wait for `agentTimeoutSeconds`.
   */
  readonly explainNoAgent: ((resources: ResourceRequest) => BackendError | null) | null
  /** How long tasks can still run on a node. */
  readonly secondsLeft?: (node?: string) => number
  readonly url: string
  readonly agentTimeoutSeconds: number
}

export class UnplaceableJobs {
  readonly #jobs: DriverJobs
  readonly #known: KnownAgents
  readonly #options: UnplaceableJobsOptions
  readonly #timeoutMs: number
  /** By shape (jobs with equal requests): since when no agent fits, and when the first job came. */
  readonly #waits = new Map<string, { readonly sinceMs: number; readonly firstMs: number }>()

  constructor(jobs: DriverJobs, known: KnownAgents, options: UnplaceableJobsOptions) {
    this.#jobs = jobs
    this.#known = known
    this.#options = options
    this.#timeoutMs = options.agentTimeoutSeconds * 1000
  }

  /** Called at intervals, and when an agent has refused a job. */
  fail(nowMs: number): void {
    const { explainNoAgent, secondsLeft } = this.#options
    // Without `explainNoAgent`, ignores the remaining time of nodes, which may be extended.
    const limit = explainNoAgent === null ? undefined : secondsLeft
    const unplaceable = findUnplaceable(this.#jobs.placement, limit)
    for (const name of this.#waits.keys()) if (!unplaceable.has(name)) this.#waits.delete(name)
    for (const [name, refusing] of unplaceable) {
      if (refusing.length > 0 && this.#failRefused(name, refusing, nowMs)) continue
      if (explainNoAgent !== null) {
        this.#failWithoutAgent(name, explainNoAgent)
        continue
      }
      const { sinceMs, firstMs } = this.#waits.get(name) ?? { sinceMs: nowMs, firstMs: nowMs }
      const isDue = nowMs - firstMs >= this.#timeoutMs
      const nextMs = isDue ? this.#failDue(name, sinceMs, nowMs) : firstMs
      this.#waits.set(name, { sinceMs, firstMs: nextMs })
    }
  }

  /**
   * Fails jobs that all suitable agents refuse. Returns `false` while another agent may allow them.
   */
  #failRefused(name: string, refusing: readonly string[], nowMs: number): boolean {
    if (this.#known.allHeardMs > nowMs) return false
    const { placement, refusals } = this.#jobs
    const all = placement.removeShape(name)
    // All jobs of a shape have the same requests, so it is enough to check one.
    const isOpen = all[0] !== undefined && this.#couldBeAllowed(all[0], refusing, nowMs)
    const refused: (readonly [DriverJob, readonly NotAllowed[]])[] = []
    const remaining: DriverJob[] = []
    for (const one of all) {
      const reasons = refusing.map((agent) => {
        const rules = this.#known.find(agent)?.announcement ?? noRules
        return refusals.find(agent, one.spec) ?? refuseByKind(agent, rules, one.spec)
      })
      const known = reasons.filter((reason) => reason !== null)
      // If a refusal was forgotten, the agent is asked again.
      one.isEnding = !isOpen && known.length === reasons.length
      if (one.isEnding) refused.push([one, known])
      else remaining.push(one)
    }
    for (const one of remaining) one.exclusion = refusals.findExclusion(one.spec)
    // This comes before any report, because the session may cancel other jobs during a report.
    placement.putBack(remaining)
    for (const [one, reasons] of refused) {
      this.#jobs.end(one, { kind: 'fail', error: notAllowedError(reasons), isFinal: true }, null)
    }
    return !isOpen
  }

  /** Fails jobs that no agent will ever run. Checks each job, because run times may differ. */
  #failWithoutAgent(
    name: string,
    explainNoAgent: (resources: ResourceRequest) => BackendError | null,
  ): void {
    const { placement } = this.#jobs
    const shape = placement.shapes.find(({ key }) => key === name)
    const head = shape?.queue.peek()
    if (shape === undefined || head === undefined) return
    const { group } = shape
    const why = ({ spec }: DriverJob): BackendError | null =>
      explainNoAgent(toResourceRequest({ request: spec.resources, group }))
    if (why(head) === null) return
    const all = placement.removeShape(name).map((one) => ({ one, error: why(one) }))
    const remaining = all.filter(({ error }) => error === null)
    placement.putBack(remaining.map(({ one }) => one))
    for (const { one, error } of all) one.isEnding = error !== null
    for (const { one, error } of all) {
      if (error !== null) this.#jobs.end(one, { kind: 'fail', error, isFinal: true }, null)
    }
  }

  /** Whether the job may be allowed by an agent that is not used yet or is being restarted. */
  #couldBeAllowed({ spec }: DriverJob, refusing: readonly string[], nowMs: number): boolean {
    const { agents, gone } = this.#known
    const sinceMs = nowMs - this.#timeoutMs
    const others = [...agents, ...gone.filter(({ leftMs }) => leftMs > sinceMs)]
    const { refusals } = this.#jobs
    return others.some(({ announcement }) => {
      const { facts, name } = announcement
      if (refusing.includes(name)) return false
      const why = refusals.find(name, spec) ?? refuseByKind(name, announcement, spec)
      return why === null && canRun(facts, spec.resources)
    })
  }

  /** Fails jobs that waited too long. Returns when the first remaining one began to wait. */
  #failDue(name: string, sinceMs: number, nowMs: number): number {
    const { placement } = this.#jobs
    const due: DriverJob[] = []
    const remaining: DriverJob[] = []
    let firstMs = nowMs
    for (const one of placement.removeShape(name)) {
      const fromMs = Math.max(sinceMs, one.sinceMs)
      one.isEnding = nowMs - fromMs >= this.#timeoutMs
      if (!one.isEnding) firstMs = Math.min(firstMs, fromMs)
      if (one.isEnding) due.push(one)
      else remaining.push(one)
    }
    // This comes before any report, because the session may cancel other jobs during a report.
    placement.putBack(remaining)
    let found: string | null = null
    for (const one of due) {
      found ??= this.#describeAgents(one.spec.resources, nowMs)
      const error = this.#createError(one, found)
      // The failure is final, because another attempt would wait just as long.
      this.#jobs.end(one, { kind: 'fail', error, isFinal: true }, null)
    }
    return firstMs
  }

  #createError({ spec }: DriverJob, found: string): BackendError {
    const { url, agentTimeoutSeconds } = this.#options
    const wanted = describeRequest(spec.resources)
    const text = `no agent with ${wanted} came to ${url} within ${agentTimeoutSeconds} s`
    const cause = this.#known.unusable[0]
    return new BackendError(`${text}${found}`, {
      code: 'NoAgentError',
      hint: `Start one: npx tutti agent --connect ${url} --token-file FILE`,
      ...(cause === undefined ? {} : { cause }),
    })
  }

  #describeAgents(request: ResourceRequest, nowMs: number): string {
    const { agents, unusable } = this.#known
    const agentTexts = agents.map((agent) => {
      const { name, facts } = agent.announcement
      const free = this.#jobs.held.without(name, facts)
      return `agent "${name}" ${describeProblem(agent, free, request, nowMs)}`
    })
    const all = [...agentTexts, ...unusable.map(({ message }) => message)]
    return all.length === 0 ? '' : `; ${joinFirst(all)}`
  }
}

function notAllowedError(reasons: readonly NotAllowed[]): BackendError {
  return new BackendError(joinFirst(reasons.map(({ message }) => message)), {
    code: 'NotAllowedError',
    hint: reasons[0]?.hint ?? rulesHint,
  })
}

const maxListed = 5

function joinFirst(texts: readonly string[]): string {
  const rest = texts.length > maxListed ? `; and ${texts.length - maxListed} more` : ''
  return `${texts.slice(0, maxListed).join('; ')}${rest}`
}

function describeProblem(
  { announcement: { state, facts }, lastHeardMs }: AnnouncedAgent,
  free: NodeFacts,
  request: ResourceRequest,
  nowMs: number,
): string {
  if (state !== 'ready') return 'is draining'
  const missing = missingResource(free, request)
  if (missing !== null) return free === facts ? missing : `${missing} besides what services hold`
  return nowMs - lastHeardMs > maxSilenceMs ? 'does not answer' : 'did not take the session'
}
