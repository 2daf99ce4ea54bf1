/**
 * Where each task of a submission goes, or everything that is wrong with it. Decides, changes
 * nothing.
 */

import type { AnyTask, Backend, Refusal } from '../backends/backend.ts'
import { type ErrorDetails, ValueError } from '../foundation/errors.ts'
import { describe, didYouMean } from '../foundation/options.ts'

/** What is wrong with a task. */
export interface Problem {
  /** Relative to the task; `""` for the whole. */
  readonly field: string
  readonly message: string
  readonly code: string
}

/** A problem and the place of its task in the list. */
export interface Wrong extends Problem {
  readonly at: number
}

export type Route = { readonly backend: Backend } | { readonly problem: Problem }

/** The backend for a task: the one it names, or the first that does not refuse it. */
export function route(task: AnyTask, backends: readonly Backend[]): Route {
  const wanted = task.backend
  if (wanted === null) return routeAnywhere(task, backends)
  const backend = backends.find(({ name }) => name === wanted)
  if (backend === undefined) return { problem: unknownBackend(wanted, backends) }
  const refusal = backend.refuse(task.spec)
  return refusal === null ? { backend } : { problem: toProblem(refusal, wanted) }
}

function routeAnywhere(task: AnyTask, backends: readonly Backend[]): Route {
  const refusals: Refusal[] = []
  for (const backend of backends) {
    const refusal = backend.refuse(task.spec)
    if (refusal === null) return { backend }
    refusals.push(refusal)
  }
  const [first] = refusals
  if (first !== undefined && refusals.length === 1) {
    return { problem: toProblem(first, backends[0]?.name ?? '') }
  }
  const reasons = refusals.map(({ field, message }, at) => {
    return `${backends[at]?.name}: ${field}: ${message}`
  })
  const message = `no backend can run it (${reasons.join('; ') || 'the session has none'})`
  const shared = refusals.every(({ field }) => field === first?.field) ? first?.field : undefined
  return { problem: { field: shared ?? '', message, code: refusals.at(-1)?.code ?? 'ValueError' } }
}

/** Backends say what they have of a resource, not who they are. */
function toProblem({ field, message, code = 'ValueError' }: Refusal, backend: string): Problem {
  const isNamed = !field.startsWith('resources') || message.includes(`"${backend}"`)
  return { field, message: isNamed ? message : `${message} (backend "${backend}")`, code }
}

function unknownBackend(wanted: string, backends: readonly Backend[]): Problem {
  const names = backends.map(({ name }) => name)
  const have = names.join(', ') || 'none'
  return {
    field: 'backend',
    message: `no backend "${wanted}" (have: ${have})${didYouMean(wanted, names)}`,
    code: 'UnknownBackendError',
  }
}

export function notATask(item: unknown): Problem {
  return { field: '', message: `expected a task, got ${describe(item)}`, code: 'ValueError' }
}

export function alreadySubmitted({ uid }: AnyTask): Problem {
  return {
    field: 'uid',
    message: `"${uid}" was already submitted`,
    code: 'DuplicateTaskError',
  }
}

const mostListed = 20
const mostRanges = 1000

/** One error for all that is wrong: the first are told in full, the rest by their places. */
export function toSubmissionError(wrong: readonly Wrong[]): ValueError {
  const listed = wrong.slice(0, mostListed).map((one) => `${fieldOf(one)}: ${one.message}`)
  const rest = wrong.slice(mostListed)
  if (rest.length > 0) listed.push(`and ${rest.length} more: ${toRanges(rest)}`)
  const first = wrong[0]
  const codes = new Set(wrong.map(({ code }) => code))
  const details: ErrorDetails = codes.size === 1 && first !== undefined ? { code: first.code } : {}
  return new ValueError(listed.join('\n'), {
    ...details,
    ...(first === undefined ? {} : { field: fieldOf(first) }),
    hint: 'Nothing was submitted: mend the tasks that are named and submit the list again.',
  })
}

const fieldOf = ({ at, field }: Wrong): string => `tasks[${at}]${field === '' ? '' : `.${field}`}`

/** `tasks[20..39], tasks[41]` */
function toRanges(wrong: readonly Wrong[]): string {
  const ranges: { from: number; to: number }[] = []
  for (const { at } of wrong) {
    const last = ranges.at(-1)
    if (last !== undefined && last.to === at - 1) last.to = at
    else ranges.push({ from: at, to: at })
  }
  const shown = ranges.slice(0, mostRanges).map(({ from, to }) => {
    return from === to ? `tasks[${from}]` : `tasks[${from}..${to}]`
  })
  return shown.join(', ') + (ranges.length > mostRanges ? ', …' : '')
}
