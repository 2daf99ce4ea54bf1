/** Fails jobs that no agent can run, because none has joined or none allows them. */

import { BackendError } from '../../../foundation/errors.ts'
import type { ResourceRequest } from '../../../tasks/resources.ts'
import type { TaskSpec } from '../../../tasks/spec.ts'
import { noRules, refuseByKind, rulesHint } from '../../wire/agent-rules.ts'
import {
  type AgentRules,
  type NodeFacts,
  type NotAllowed,
  maxSilenceMs,
} from '../../wire/messages.ts'
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
      if (explainNoAgent === null) this.#failDue(name, nowMs)
      else this.#failWithoutAgent(name, explainNoAgent)
    }
  }

  /** Fails the jobs of a shape for which there is an error. */
  #failWhere(name: string, errorOf: (one: DriverJob) => BackendError | null): void {
    const { placement, refusals } = this.#jobs
    const all = placement.removeShape(name).map((one) => ({ one, error: errorOf(one) }))
    const remaining: DriverJob[] = []
    for (const { one, error } of all) {
      one.isEnding = error !== null
      one.exclusion = refusals.findExclusion(one.spec)
      if (error === null) remaining.push(one)
    }
    // This comes before any report, because the session may cancel other jobs during a report.
    placement.putBack(remaining)
    for (const { one, error } of all) {
      // The failure is final, because another attempt would fail for the same reason.
      if (error !== null) this.#jobs.end(one, { kind: 'fail', error, isFinal: true }, null)
    }
  }

  /** Returns a shape with its first job; `null` if no job waits. */
  #findShape(name: string) {
    const shape = this.#jobs.placement.shapes.find(({ key }) => key === name)
    const head = shape?.queue.peek()
    return shape === undefined || head === undefined ? null : { shape, head }
  }

  /**
   * Fails jobs that all suitable agents refuse. Returns `false` while another agent may allow them.
   */
  #failRefused(name: string, refusing: readonly string[], nowMs: number): boolean {
    // All jobs of a shape have the same requests, so it is enough to check one.
    const head = this.#findShape(name)?.head
    if (head === undefined || this.#known.allHeardMs > nowMs) return false
    if (this.#couldBeAllowed(head, refusing, nowMs)) return false
    this.#failWhere(name, ({ spec }) => {
      const reasons = refusing.map((agent) => {
        const rules = this.#known.find(agent)?.announcement ?? noRules
        return this.#findRefusal(agent, rules, spec)
      })
      const known = reasons.filter((reason) => reason !== null)
      // If a refusal was forgotten, the agent is asked again.
      return known.length === reasons.length ? notAllowedError(known) : null
    })
    return true
  }

  #findRefusal(agent: string, rules: AgentRules, spec: TaskSpec): NotAllowed | null {
    return this.#jobs.refusals.find(agent, spec) ?? refuseByKind(agent, rules, spec)
  }

  /** Fails jobs that no agent will ever run. Checks each job, because run times may differ. */
  #failWithoutAgent(
    name: string,
    explainNoAgent: (resources: ResourceRequest) => BackendError | null,
  ): void {
    const found = this.#findShape(name)
    if (found === null) return
    const { group } = found.shape
    const why = ({ spec }: DriverJob): BackendError | null =>
      explainNoAgent(toResourceRequest({ request: spec.resources, group }))
    if (why(found.head) !== null) this.#failWhere(name, why)
  }

  /** Whether the job may be allowed by an agent that is not used yet or is being restarted. */
  #couldBeAllowed({ spec }: DriverJob, refusing: readonly string[], nowMs: number): boolean {
    const { agents, gone } = this.#known
    const sinceMs = nowMs - this.#timeoutMs
    const others = [...agents, ...gone.filter(({ leftMs }) => leftMs > sinceMs)]
    return others.some(({ announcement }) => {
      const { facts, name } = announcement
      if (refusing.includes(name)) return false
      return this.#findRefusal(name, announcement, spec) === null && canRun(facts, spec.resources)
    })
  }

  /** Fails jobs that waited too long. */
  #failDue(name: string, nowMs: number): void {
    const { sinceMs, firstMs } = this.#waits.get(name) ?? { sinceMs: nowMs, firstMs: nowMs }
    if (nowMs - firstMs < this.#timeoutMs) {
      this.#waits.set(name, { sinceMs, firstMs })
      return
    }
    let found: string | null = null
    let nextMs = nowMs
    this.#failWhere(name, (one) => {
      const fromMs = Math.max(sinceMs, one.sinceMs)
      const isDue = nowMs - fromMs >= this.#timeoutMs
      if (!isDue) nextMs = Math.min(nextMs, fromMs)
      else found ??= this.#describeAgents(one.spec.resources, nowMs)
      return isDue ? this.#createError(one, found ?? '') : null
    })
    this.#waits.set(name, { sinceMs, firstMs: nextMs })
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
