/**
 * What a task is, as three digests joined by dots: its code, its input, and what it depends on.
 * Tasks of two runs with equal hashes do the same. Resources, retries, time-outs, priority and
 * backend do not count: they may be changed to finish a run.
 */

import { existsSync } from 'node:fs'
import { dirname, join, relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import { generatedNumber, markedCode, unmarked } from '../foundation/ids.ts'
import { contentText, digestOf, joinWords } from './content-text.ts'
import type { AnyFunction } from './compute-options.ts'
import { definitionOf, findDefined } from './define-task.ts'
import type { TaskSpec } from './spec.ts'

/** What a hash is made of besides the spec. */
export interface HashedWork {
  readonly spec: TaskSpec
  /** Of a closure. */
  readonly function?: AnyFunction | null
  readonly args?: readonly unknown[]
  readonly uid?: string
}

/** The names of the three digests, in their order. */
const hashParts = ['code', 'input', 'dependencies'] as const

const shortened = (text: string): string => digestOf(text).slice(0, 32)
const noDependencies = shortened('')

/** Of a function that is named by its code, and of an input that was written already. */
export const hashOfParts = (
  code: string,
  input: string,
  dependencies: readonly string[],
): string => {
  const others = dependencies.length === 0 ? noDependencies : shortened(joinWords(dependencies))
  return `${code}.${shortened(input)}.${others}`
}

/**
 * `null` when the input has no comparable content: such a task is known by its uid alone. A closure
 * without arguments works on what it captured, which cannot be compared: it has a hash only if its
 * caller named the task. `owner` is whose functions are told apart, such as a session.
 */
export function definitionHash(work: HashedWork, owner: object): string | null {
  if (work.spec.kind === 'closure' && isOnlyCaptured(work)) return null
  try {
    return hashOfParts(codeOf(work, owner), inputOf(work), [])
  } catch {
    return null
  }
}

/** Whether its arguments are no longer those that the hash was made of. */
export function hasChangedSince(work: HashedWork, hash: string, owner: object): boolean {
  const args = work.spec.kind === 'function' ? work.spec.args : (work.args ?? [])
  return !isFixed(args) && definitionHash(work, owner) !== hash
}

/** Whether nothing among the arguments can change: objects and arrays can, and so can bytes. */
const isFixed = (args: readonly unknown[]): boolean =>
  args.every((part) => typeof part !== 'object' || part === null)

const isOnlyCaptured = ({ args = [], uid }: HashedWork): boolean =>
  args.length === 0 && uid !== undefined && generatedNumber(uid) !== null

/** Which of the three differ. */
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

/** The code of a task, for its mark; `null` without comparable code. */
export function markedCodeOf(work: HashedWork, owner: object): string | null {
  try {
    return codeOf(work, owner)
  } catch {
    return null
  }
}

/**
 * The digest of a function's name, source and module, with a mark if its owner has had another
 * function with the same digest: each may have captured or imported other things. Throws for a
 * bound function, which has no source.
 */
export function codeOfFunction(body: AnyFunction, name: string, owner: object): string {
  const code = plainCodeOf(body, name)
  let firsts = firstFunctions.get(owner)
  if (firsts === undefined) firstFunctions.set(owner, (firsts = new Map()))
  const first = firsts.get(code)
  if (first === undefined) firsts.set(code, new WeakRef(body))
  return first === undefined || isSame(first.deref(), body) ? code : markedCode(code)
}

/** A defined function is the one that its module has, and no other package's. */
function isSame(first: AnyFunction | undefined, body: AnyFunction): boolean {
  if (first === body) return true
  const [one, other] = [first && definitionOf(first), definitionOf(body)]
  return one !== undefined && one.module === other?.module && one.name === other.name
}

/** The first function of each code, by the owner. */
const firstFunctions = new WeakMap<object, Map<string, WeakRef<AnyFunction>>>()

/** Of functions that many tasks share, by their names. */
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
  // No change to the environment is none, however it was said.
  const env = Object.keys(spec.env ?? {}).length === 0 ? null : spec.env
  const program = { executable, arguments: given, cwd, env, stdin, shell }
  // Output that goes to a file is not in the value.
  return contentText('program', captureStdio === null ? program : { ...program, captureStdio })
}

/** The same on another machine: from the folder of the nearest package.json. */
function pathInProject(module: string): string {
  if (!module.startsWith('file:')) return module
  const file = fileURLToPath(module)
  for (let folder = dirname(file); ; folder = dirname(folder)) {
    if (existsSync(join(folder, 'package.json'))) return relative(folder, file)
    if (folder === dirname(folder)) return file
  }
}
