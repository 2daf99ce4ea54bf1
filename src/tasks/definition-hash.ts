/**
 * The hash of a task's definition: three digests (code, input, dependencies) joined by dots. Tasks
 * with equal hashes do the same work, even in different runs. Resources, retries, time-outs,
 * priority and backend are not included, so that they can be changed to finish a run.
 */

import { existsSync } from 'node:fs'
import { dirname, join, relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import { generatedNumber, markedCode, unmarked } from '../foundation/ids.ts'
import { contentText, digestOf, joinWords } from './content-text.ts'
import type { AnyFunction } from './compute-options.ts'
import { definitionOf, findDefined } from './define-task.ts'
import type { TaskSpec } from './spec.ts'

/** The parts of a task that its hash is computed from. */
export interface HashedWork {
  readonly spec: TaskSpec
  /** The function of a closure. */
  readonly function?: AnyFunction | null
  readonly args?: readonly unknown[]
  readonly uid?: string
}

/** The names of the three digests, in order. */
const hashParts = ['code', 'input', 'dependencies'] as const

const shortened = (text: string): string => digestOf(text).slice(0, 32)
const noDependencies = shortened('')

/** The hash from a code digest, the text of the input and the hashes of the dependencies. */
export const hashOfParts = (
  code: string,
  input: string,
  dependencies: readonly string[],
): string => {
  const others = dependencies.length === 0 ? noDependencies : shortened(joinWords(dependencies))
  return `${code}.${shortened(input)}.${others}`
}

/**
 * `null` if the input cannot be compared; such a task is identified by its uid only. A closure
 * without arguments has a hash only if the caller chose the uid, because it depends on captured
 * variables, which cannot be compared. Equal functions are distinguished per `owner`, a session.
 */
export function definitionHash(work: HashedWork, owner: object): string | null {
  if (work.spec.kind === 'closure' && isOnlyCaptured(work)) return null
  try {
    return hashOfParts(codeOf(work, owner), inputOf(work), [])
  } catch {
    return null
  }
}

/** Whether the arguments differ from those that were hashed. */
export function hasChangedSince(work: HashedWork, hash: string, owner: object): boolean {
  const args = work.spec.kind === 'function' ? work.spec.args : (work.args ?? [])
  return !isFixed(args) && definitionHash(work, owner) !== hash
}

/** Whether all arguments are primitives, which cannot change. */
const isFixed = (args: readonly unknown[]): boolean =>
  args.every((part) => typeof part !== 'object' || part === null)

const isOnlyCaptured = ({ args = [], uid }: HashedWork): boolean =>
  args.length === 0 && uid !== undefined && generatedNumber(uid) !== null

/** The names of the digests that differ. */
export function changedParts(before: string, now: string): readonly string[] {
  const [old, next] = [unmarked(before).split('.'), unmarked(now).split('.')]
  return hashParts.filter((_, at) => old[at] !== next[at])
}

function codeOf({ spec, function: body }: HashedWork, owner: object): string {
  if (spec.kind === 'program' || spec.kind === 'prompt') return shortened(spec.kind)
  const found = spec.kind === 'function' ? findDefined(spec.definition) : (body ?? undefined)
  if (found === undefined) return shortened(joinWords([spec.kind, spec.executable]))
  return codeOfFunction(found, spec.executable, owner)
}

/** The code digest of a task, marked if it is ambiguous; `null` if it cannot be compared. */
export function markedCodeOf(work: HashedWork, owner: object): string | null {
  try {
    return codeOf(work, owner)
  } catch {
    return null
  }
}

/**
 * The digest of a function's name, source and module. The digest is marked as ambiguous if `owner`
 * has used another function with the same digest, because the two may have captured or imported
 * different things. Throws for a bound function, which has no source.
 */
export function codeOfFunction(body: AnyFunction, name: string, owner: object): string {
  const code = plainCodeOf(body, name)
  let firsts = firstFunctions.get(owner)
  if (firsts === undefined) firstFunctions.set(owner, (firsts = new Map()))
  const first = firsts.get(code)
  if (first === undefined) firsts.set(code, new WeakRef(body))
  return first === undefined || isSame(first.deref(), body) ? code : markedCode(code)
}

/** Two functions from `defineTask` are the same if their module and name are equal. */
function isSame(first: AnyFunction | undefined, body: AnyFunction): boolean {
  if (first === body) return true
  const [one, other] = [first && definitionOf(first), definitionOf(body)]
  return one !== undefined && one.module === other?.module && one.name === other.name
}

/** For each owner and code digest: the first function with that digest. */
const firstFunctions = new WeakMap<object, Map<string, WeakRef<AnyFunction>>>()

/** Caches code digests by function and name, because many tasks share a function. */
const codes = new WeakMap<AnyFunction, Map<string, string>>()

function plainCodeOf(body: AnyFunction, name: string): string {
  let byName = codes.get(body)
  if (byName === undefined) codes.set(body, (byName = new Map()))
  let code = byName.get(name)
  if (code === undefined) {
    const source = String(body)
    if (source === boundSource) throw new TypeError(`${name} is a bound function`)
    const module = pathInProject(definitionOf(body)?.module ?? '')
    code = shortened(joinWords(['function', name, module, source]))
    byName.set(name, code)
  }
  return code
}

const boundSource = 'function () { [native code] }'

function inputOf({ spec, args = [] }: HashedWork): string {
  if (spec.kind === 'function') return contentText('args', spec.args, { isOrdered: true })
  if (spec.kind === 'closure') return contentText('args', args, { isOrdered: true })
  if (spec.kind === 'prompt') {
    const { prompt, model, sampling } = spec
    return contentText('prompt', { prompt, model, sampling })
  }
  const { executable, arguments: given, cwd, stdin, shell, captureStdio } = spec
  // An empty `env` has the same effect as none.
  const env = Object.keys(spec.env ?? {}).length === 0 ? null : spec.env
  const program = { executable, arguments: given, cwd, env, stdin, shell }
  // Included only if set: `captureStdio` moves the output from the task's value to files.
  return contentText('program', captureStdio === null ? program : { ...program, captureStdio })
}

/** The path relative to the nearest package.json, which does not depend on the machine. */
function pathInProject(module: string): string {
  if (!module.startsWith('file:')) return module
  const file = fileURLToPath(module)
  for (let folder = dirname(file); ; folder = dirname(folder)) {
    if (existsSync(join(folder, 'package.json'))) return relative(folder, file)
    if (folder === dirname(folder)) return file
  }
}
