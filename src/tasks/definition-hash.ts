/**
 * The hash of a task's definition: three digests (code, input, dependencies) joined by dots. Tasks
 * with the same hash do the same work, even in different runs. Resources, retries, time-outs,
 * priority and backend are not included, so that they can be changed to finish a run.
 */

import { existsSync } from 'node:fs'
import { dirname, join, relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseUidNumber, addMark, removeMark } from '../foundation/ids.ts'
import { contentText, digestOf, joinPrefixed } from './content-text.ts'
import { type AnyFunction, definitionOf, findDefined } from './define-task.ts'
import type { TaskSpec } from './spec.ts'

export interface HashedWork {
  readonly spec: TaskSpec
  readonly function?: AnyFunction | null
  readonly args?: readonly unknown[]
  readonly uid?: string
}

const hashParts = ['code', 'input', 'dependencies'] as const

const shortDigest = (text: string): string => digestOf(text).slice(0, 32)
const noDependencies = shortDigest('')

/** Creates a hash from a code digest, the text of the input and the hashes of the dependencies. */
export const joinDigests = (
  code: string,
  input: string,
  dependencies: readonly string[],
): string => {
  const others =
    dependencies.length === 0 ? noDependencies : shortDigest(joinPrefixed(dependencies))
  return `${code}.${shortDigest(input)}.${others}`
}

/**
 * Returns the hash of a task; `null` if its input cannot be compared. Such a task is identified
 * only by its uid. A closure without arguments has a hash only if the caller chose its uid, because
 * such a closure depends on captured variables, which cannot be compared. Functions with the same
 * source are distinguished per `owner`, which is a session.
 */
export function definitionHash(work: HashedWork, owner: object): string | null {
  if (work.spec.kind === 'closure' && usesOnlyCaptures(work)) return null
  try {
    return joinDigests(digestCode(work, owner), inputText(work), [])
  } catch {
    return null
  }
}

/** Whether the arguments differ from those that were hashed. */
export function hasChangedSince(work: HashedWork, hash: string, owner: object): boolean {
  const args = work.spec.kind === 'function' ? work.spec.args : (work.args ?? [])
  return !arePrimitive(args) && definitionHash(work, owner) !== hash
}

const arePrimitive = (args: readonly unknown[]): boolean =>
  args.every((part) => typeof part !== 'object' || part === null)

const usesOnlyCaptures = ({ args = [], uid }: HashedWork): boolean =>
  args.length === 0 && uid !== undefined && parseUidNumber(uid) !== null

export function changedParts(before: string, now: string): readonly string[] {
  const [old, next] = [removeMark(before).split('.'), removeMark(now).split('.')]
  return hashParts.filter((_, at) => old[at] !== next[at])
}

function digestCode({ spec, function: body }: HashedWork, owner: object): string {
  if (spec.kind === 'program' || spec.kind === 'prompt') return shortDigest(spec.kind)
  const found = body ?? (spec.kind === 'function' ? findDefined(spec.definition) : undefined)
  if (found === undefined) return shortDigest(joinPrefixed([spec.kind, spec.executable]))
  return digestFunction(found, spec.executable, owner)
}

/** The code digest of a task, marked if it is ambiguous; `null` if the function has no source. */
export function findCodeDigest(work: HashedWork, owner: object): string | null {
  try {
    return digestCode(work, owner)
  } catch {
    return null
  }
}

/**
 * The digest of a function's name, source and module. The digest is marked as ambiguous if `owner`
 * has used another function with the same digest, because the two may have captured or imported
 * different things. Throws for a bound function, which has no source.
 */
export function digestFunction(body: AnyFunction, name: string, owner: object): string {
  const code = digestSource(body, name)
  let firsts = firstFunctions.get(owner)
  if (firsts === undefined) firstFunctions.set(owner, (firsts = new Map()))
  const first = firsts.get(code)
  if (first === undefined) firsts.set(code, new WeakRef(body))
  return first === undefined || isSameFunction(first.deref(), body) ? code : addMark(code)
}

function isSameFunction(first: AnyFunction | undefined, body: AnyFunction): boolean {
  if (first === body) return true
  const [one, other] = [first && definitionOf(first), definitionOf(body)]
  return one !== undefined && one.module === other?.module && one.name === other.name
}

/** For each owner and code digest: the first function with that digest. */
const firstFunctions = new WeakMap<object, Map<string, WeakRef<AnyFunction>>>()

/** Caches code digests by function and name, because many tasks share a function. */
const digestCache = new WeakMap<AnyFunction, Map<string, string>>()

function digestSource(body: AnyFunction, name: string): string {
  let byName = digestCache.get(body)
  if (byName === undefined) digestCache.set(body, (byName = new Map()))
  let code = byName.get(name)
  if (code === undefined) {
    const source = String(body)
    if (source === boundSource) throw new TypeError(`${name} is a bound function`)
    const module = pathInProject(definitionOf(body)?.module ?? '')
    code = shortDigest(joinPrefixed(['function', name, module, source]))
    byName.set(name, code)
  }
  return code
}

const boundSource = 'function () { [native code] }'

function inputText({ spec, args = [] }: HashedWork): string {
  if (spec.kind === 'function') return contentText('args', spec.args, { isOrdered: true })
  if (spec.kind === 'closure') return contentText('args', args, { isOrdered: true })
  if (spec.kind === 'prompt') {
    const { prompt, model, sampling } = spec
    return contentText('prompt', { prompt, model, sampling })
  }
  const { executable, arguments: given, cwd, stdin, shell, captureStdio } = spec
  // An empty `env` has the same effect as no `env`.
  const env = Object.keys(spec.env ?? {}).length === 0 ? null : spec.env
  const program = { executable, arguments: given, cwd, env, stdin, shell }
  // With `captureStdio`, the output is in files and not in the task's value.
  return contentText('program', captureStdio === null ? program : { ...program, captureStdio })
}

/** The module's path relative to the nearest package.json. It is the same on every machine. */
function pathInProject(module: string): string {
  if (!module.startsWith('file:')) return module
  const file = fileURLToPath(module)
  for (let folder = dirname(file); ; folder = dirname(folder)) {
    if (existsSync(join(folder, 'package.json'))) return relative(folder, file)
    if (folder === dirname(folder)) return file
  }
}
