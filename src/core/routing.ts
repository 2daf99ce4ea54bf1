/** Chooses the backend of a task, or explains why there is none. Pure. */

import type { Refusal } from '../backends/backend.ts'
import { type ErrorDetails, ValueError } from '../foundation/errors.ts'
import { describe, didYouMean } from '../foundation/options.ts'
import { countText } from '../views/readable.ts'
import type { BackendBinding, Work } from './entry.ts'

export interface Problem {
  /** The path of the wrong field, relative to the task; `""` for the task as a whole. */
  readonly field: string
  readonly message: string
  readonly code: string
  /** For a task that is DONE in the record: the parts of its definition that have changed. */
  readonly changed?: readonly string[]
}

export interface IndexedProblem extends Problem {
  readonly at: number
}

export type Route = { readonly binding: BackendBinding } | { readonly problem: Problem }

/** Chooses the backend that the task names, or else the first backend that does not refuse it. */
export function route(work: Work, bindings: readonly BackendBinding[]): Route {
  const backendName = work.backend
  if (backendName === null) return routeAnywhere(work, bindings)
  const binding = bindings.find(({ backend }) => backend.name === backendName)
  if (binding === undefined) return { problem: unknownBackend(backendName, bindings) }
  const refusal = binding.backend.refuse(work.spec)
  return refusal === null ? { binding } : { problem: toProblem(refusal, backendName) }
}

function routeAnywhere({ spec }: Work, bindings: readonly BackendBinding[]): Route {
  const refusals: Refusal[] = []
  for (const binding of bindings) {
    const refusal = binding.backend.refuse(spec)
    if (refusal === null) return { binding }
    refusals.push(refusal)
  }
  const names = bindings.map(({ backend }) => backend.name)
  const [first] = refusals
  if (first !== undefined && refusals.length === 1) {
    return { problem: toProblem(first, names[0] ?? '') }
  }
  const reasons = refusals.map(({ field, message }, at) => {
    return `${names[at]}: ${field}: ${message}`
  })
  const message = `no backend can run it (${reasons.join('; ') || 'the session has none'})`
  const shared = refusals.every(({ field }) => field === first?.field) ? first?.field : undefined
  return { problem: { field: shared ?? '', message, code: refusals.at(-1)?.code ?? 'ValueError' } }
}

/** Adds the backend's name to refusals of resources, which often omit it. */
function toProblem({ field, message, code = 'ValueError' }: Refusal, backend: string): Problem {
  const isNamed = !field.startsWith('resources') || message.includes(`"${backend}"`)
  return { field, message: isNamed ? message : `${message} (backend "${backend}")`, code }
}

function unknownBackend(wanted: string, bindings: readonly BackendBinding[]): Problem {
  const names = bindings.map(({ backend }) => backend.name)
  const known = names.join(', ') || 'none'
  return {
    field: 'backend',
    message: `no backend "${wanted}" (have: ${known})${didYouMean(wanted, names)}`,
    code: 'UnknownBackendError',
  }
}

export function notATask(item: unknown): Problem {
  return { field: '', message: `expected a task, got ${describe(item)}`, code: 'ValueError' }
}

export function alreadySubmitted({ uid }: { readonly uid: string }): Problem {
  return {
    field: 'uid',
    message: `"${uid}" was already submitted`,
    code: 'DuplicateTaskError',
  }
}

export function changedDefinition(
  uid: string,
  executable: string,
  changed: readonly string[],
): Problem {
  const name = executable === '' ? '' : ` (${executable})`
  const parts = changed.join(' and ')
  return {
    field: 'uid',
    message: `"${uid}"${name} is DONE in the record, but its ${parts} changed since`,
    code: 'DefinitionChangedError',
    changed,
  }
}

const maxListed = 20
const maxRanges = 1000

/** Creates one error for all problems: the first ones in full, the rest as a list of indexes. */
export function toSubmissionError(wrong: readonly IndexedProblem[]): ValueError {
  const listed = wrong.slice(0, maxListed).map((one) => `${fieldPath(one)}: ${one.message}`)
  const rest = wrong.slice(maxListed)
  if (rest.length > 0) listed.push(`and ${rest.length} more: ${toRanges(rest)}`)
  const changes = wrong.flatMap(({ changed }) => changed ?? [])
  if (changes.length > 0) listed.unshift(describeChanges(wrong, changes))
  const first = wrong[0]
  const codes = new Set(wrong.map(({ code }) => code))
  const details: ErrorDetails = codes.size === 1 && first !== undefined ? { code: first.code } : {}
  return new ValueError(listed.join('\n'), {
    ...details,
    ...(first === undefined ? {} : { field: fieldPath(first) }),
    hint: changes.length > 0 ? changedHint : invalidHint,
  })
}

const keepHint =
  'resume(file, { changed: "keep" }) keeps their results (npx tutti resume --keep-done), ' +
  '{ changed: "rerun" } runs them again (--force).'
const invalidHint = 'Nothing was submitted: correct the listed tasks and submit the list again.'
const changedHint = `Nothing was submitted. ${keepHint}`

export const toTaskError = ({ field, message, code, changed }: Problem): ValueError =>
  new ValueError(`${field}: ${message}`, {
    field,
    code,
    ...(changed === undefined ? {} : { hint: keepHint }),
  })

/** For example `3 tasks are DONE in the record and have changed since: code of 2, input of 1`. */
function describeChanges(wrong: readonly IndexedProblem[], changes: readonly string[]): string {
  const count = wrong.filter(({ changed }) => changed !== undefined).length
  const parts = [...new Set(changes)].map((part) => {
    return `${part} of ${changes.filter((one) => one === part).length}`
  })
  const subject = countText(count, 'task is', 'tasks are')
  const verb = count === 1 ? 'has' : 'have'
  return `${subject} DONE in the record and ${verb} changed since: ${parts.join(', ')}`
}

const fieldPath = ({ at, field }: IndexedProblem): string =>
  `tasks[${at}]${field === '' ? '' : `.${field}`}`

/** Lists the indexes, for example as `tasks[20..39], tasks[41]`. */
function toRanges(wrong: readonly IndexedProblem[]): string {
  const ranges: { from: number; to: number }[] = []
  for (const { at } of wrong) {
    const last = ranges.at(-1)
    if (last !== undefined && last.to === at - 1) last.to = at
    else ranges.push({ from: at, to: at })
  }
  const shown = ranges.slice(0, maxRanges).map(({ from, to }) => {
    return from === to ? `tasks[${from}]` : `tasks[${from}..${to}]`
  })
  return shown.join(', ') + (ranges.length > maxRanges ? ', …' : '')
}
