/** Functions that can run elsewhere: named by module and name, so that a worker can import them. */

import { realpathSync } from 'node:fs'
import { isAbsolute } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { expectFunction, expectString, invalid } from '../foundation/options.ts'

/** Where a defined function is found. */
export interface TaskDefinition {
  /** The URL of the module that defines it. */
  readonly module: string
  readonly name: string
}

type AnyFunction = (...args: never[]) => unknown

interface Registry {
  readonly byKey: Map<string, AnyFunction>
  readonly definitions: WeakMap<AnyFunction, TaskDefinition>
}

/** One registry a thread, shared by all copies of the package in it. */
const registryKey = Symbol.for('tutti.task-definitions')

const registry = findRegistry()

function findRegistry(): Registry {
  const holder = globalThis as { [registryKey]?: Registry }
  holder[registryKey] ??= { byKey: new Map(), definitions: new WeakMap() }
  return holder[registryKey]
}

const keyOf = ({ module, name }: TaskDefinition): string => `${module}#${name}`

/**
 * Names a function by its module (`import.meta.url`) and its own name, and gives it back unchanged.
 * Workers import that module, so it must not be the program's entry module.
 *
 * @example
 * // tasks.ts, imported by the program
 * export const square = defineTask(import.meta.url, function square(x: number) {
 *   return x * x
 * })
 */
export function defineTask<F extends AnyFunction>(moduleUrl: string, definedFunction: F): F {
  const module = toModuleUrl(moduleUrl)
  expectFunction('function', definedFunction)
  if (definedFunction.name === '') throw invalid('function', 'a named function', definedFunction)
  const definition = { module, name: definedFunction.name }
  const { byKey, definitions } = registry
  const known = byKey.get(keyOf(definition))
  if (known !== undefined && String(known) !== String(definedFunction)) {
    throw invalid('function', `defined once under the name "${definition.name}"`, definition.name)
  }
  byKey.set(keyOf(definition), definedFunction)
  definitions.set(definedFunction, Object.freeze(definition))
  return definedFunction
}

/**
 * A whole path (`import.meta.filename`) becomes the URL that it means; a relative one would mean
 * another module to every worker.
 */
function toModuleUrl(given: unknown): string {
  const text = expectString('moduleUrl', given)
  if (isAbsolute(text)) return pathToFileURL(text).href
  if (URL.canParse(text)) return text
  throw invalid('moduleUrl', "its module's `file:` URL, which is `import.meta.url`", text)
}

/** How to find the function elsewhere; `undefined` for a plain closure. */
export function definitionOf(candidate: AnyFunction): TaskDefinition | undefined {
  return registry.definitions.get(candidate)
}

/** The function that this thread has defined under the name, once its module was imported. */
export function findDefined(definition: TaskDefinition): AnyFunction | undefined {
  return registry.byKey.get(keyOf(definition))
}

/**
 * Whether the module is the program itself: a worker that imported it would run the program again.
 */
export function isEntryModule({ module }: TaskDefinition): boolean {
  if (module !== lastAsked.module) lastAsked = { module, isEntry: isProgram(module) }
  return lastAsked.isEntry
}

/** Tasks of one submission mostly share a module, and its answer never changes. */
let lastAsked = { module: '', isEntry: false }

/** The program may have been named by a link, a module never is. */
function isProgram(module: string): boolean {
  const program = process.argv[1]
  if (program === undefined || !module.startsWith('file:')) return false
  try {
    return realpathSync(program) === realpathSync(fileURLToPath(module))
  } catch {
    return false
  }
}
