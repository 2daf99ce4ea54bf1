/** Ends that no agent tells: the node was lost, or none came. */

import { BackendError, WorkerLostError } from '../../foundation/errors.ts'
import type { ResourceRequest } from '../../tasks/resources.ts'
import { type NodeFacts, silenceMs } from '../wire/messages.ts'
import type { AgentDirectory, KnownAgent } from './agent-directory.ts'
import type { DriverJob } from './agent-link.ts'
import type { DriverJobs, EndReport } from './driver-jobs.ts'
import { labelsOf } from './placement-node.ts'

/** Of a task that was running on a lost node. */
export function lostReport(one: DriverJob, agent: string, reason: string): EndReport {
  if (one.cancelReason !== null) return { kind: 'cancel', reason: one.cancelReason }
  const task = one.isStarted
    ? `while it ran task ${one.uid}`
    : `with task ${one.uid}, which may have begun there, as on nodes that were lost before`
  const text = `node ${agent} was lost ${task}: ${reason}`
  return { kind: 'fail', error: new WorkerLostError(text, { code: 'NodeLostError' }) }
}

/** Fails tasks that no agent could run, once each has waited for as long as it may. */
export class NoAgentWatch {
  readonly #jobs: DriverJobs
  readonly #directory: AgentDirectory
  readonly #url: string
  readonly #timeoutMs: number
  /** By what is asked for: since when nobody has it, and since when the first task waits for it. */
  readonly #waits = new Map<string, { readonly sinceMs: number; readonly firstMs: number }>()

  constructor(
    jobs: DriverJobs,
    directory: AgentDirectory,
    { url, timeoutSeconds }: { readonly url: string; readonly timeoutSeconds: number },
  ) {
    this.#jobs = jobs
    this.#directory = directory
    this.#url = url
    this.#timeoutMs = timeoutSeconds * 1000
  }

  failUnplaceable(nowMs: number): void {
    const names = new Set(this.#jobs.placement.unplaceable())
    for (const name of this.#waits.keys()) if (!names.has(name)) this.#waits.delete(name)
    for (const name of names) {
      const { sinceMs, firstMs } = this.#waits.get(name) ?? { sinceMs: nowMs, firstMs: nowMs }
      const isDue = nowMs - firstMs >= this.#timeoutMs
      const nextMs = isDue ? this.#failDue(name, sinceMs, nowMs) : firstMs
      this.#waits.set(name, { sinceMs, firstMs: nextMs })
    }
  }

  /** Returns since when the first of those waits that go on waiting. */
  #failDue(name: string, sinceMs: number, nowMs: number): number {
    const { placement } = this.#jobs
    const left: DriverJob[] = []
    let firstMs = nowMs
    let found: string | null = null
    for (const one of placement.takeUnplaceable(name)) {
      const fromMs = Math.max(sinceMs, one.sinceMs)
      if (nowMs - fromMs >= this.#timeoutMs) {
        // All of one name ask for the same.
        found ??= this.#describeAgents(one.spec.resources, nowMs)
        const error = this.#errorOf(one, found)
        // A further attempt would wait for as long again.
        this.#jobs.end(one, { kind: 'fail', error, isFinal: true }, null)
      } else {
        left.push(one)
        firstMs = Math.min(firstMs, fromMs)
      }
    }
    placement.putBack(left)
    return firstMs
  }

  #errorOf({ spec }: DriverJob, found: string): BackendError {
    const wanted = JSON.stringify(spec.resources)
    const text = `no agent with ${wanted} came to ${this.#url} within ${this.#timeoutMs / 1000} s`
    return new BackendError(`${text}${found}`, {
      code: 'NoAgentError',
      hint: 'Start one: tutti agent --connect URL --token-file FILE',
    })
  }

  /** Those that are there, and why none of them runs it. */
  #describeAgents(request: ResourceRequest, nowMs: number): string {
    const { agents, unusable } = this.#directory
    const named = agents.map(
      (agent) => `agent "${agent.announcement.name}" ${whyUnusable(agent, request, nowMs)}`,
    )
    const all = [...named, ...unusable]
    if (all.length === 0) return ''
    const rest = all.length > mostNamed ? `; and ${all.length - mostNamed} more` : ''
    return `; ${all.slice(0, mostNamed).join('; ')}${rest}`
  }
}

const mostNamed = 5

function whyUnusable(
  { announcement: { state, facts }, heardMs }: KnownAgent,
  request: ResourceRequest,
  nowMs: number,
): string {
  if (state !== 'ready') return 'is draining'
  const missing = whatIsMissing(facts, request)
  if (missing !== null) return missing
  return nowMs - heardMs > silenceMs ? 'does not answer' : 'did not take the session'
}

function whatIsMissing(facts: NodeFacts, request: ResourceRequest): string | null {
  if (request.cores > facts.cores) return `has ${facts.cores} cores`
  if (request.gpus > facts.gpus) return `has ${facts.gpus} GPUs`
  if (request.memoryMb > facts.memoryMb) return `has ${facts.memoryMb} MB`
  for (const [name, value] of Object.entries(labelsOf(request))) {
    if (facts.labels[name] !== value) return `does not have the label ${name}=${value}`
  }
  return null
}
