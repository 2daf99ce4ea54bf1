/** Functions that can run in workers, which import them by module and name. */

import { realpathSync } from 'node:fs'
import { isAbsolute } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { tryRead } from '../foundation/errors.ts'
import { expectFunction, expectString, invalid } from '../foundation/options.ts'

/** Where to find a defined function. */
export interface TaskDefinition {
  /** The URL of the module that defines the function. */
  readonly module: string
  readonly name: string
}

/** Any function, with any parameters. */
export type AnyFunction = (...args: never[]) => unknown

interface Registry {
  readonly byKey: Map<string, AnyFunction>
  readonly definitions: WeakMap<AnyFunction, TaskDefinition>
}

/** There is one registry per thread, which all copies of the package share. */
const registryKey = Symbol.for('tutti.task-definitions')

const holder = globalThis as { [registryKey]?: Registry }
const registry = (holder[registryKey] ??= { byKey: new Map(), definitions: new WeakMap() })

const definitionKey = ({ module, name }: TaskDefinition): string => `${module}#${name}`

/**
 * Registers a function by its module (`import.meta.url`) and name, so that workers can import it.
 * Returns the function unchanged. The module must not be the program's entry module.
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
  const known = byKey.get(definitionKey(definition))
  if (known !== undefined && String(known) !== String(definedFunction)) {
    const expected = `the only function "${definition.name}" that its module defines`
    throw invalid('function', expected, definedFunction)
  }
  byKey.set(definitionKey(definition), definedFunction)
  definitions.set(definedFunction, Object.freeze(definition))
  return definedFunction
}

/**
 * Converts an absolute path (`import.meta.filename`) to a URL. Rejects relative paths, which each
 * worker would resolve differently.
 */
function toModuleUrl(given: unknown): string {
  const text = expectString('moduleUrl', given)
  if (isAbsolute(text)) return pathToFileURL(text).href
  if (URL.canParse(text)) return text
  throw invalid('moduleUrl', "its module's `file:` URL, which is `import.meta.url`", text)
}

/** The module and name of a defined function; `undefined` for a plain closure. */
export function definitionOf(candidate: AnyFunction): TaskDefinition | undefined {
  return registry.definitions.get(candidate)
}

/** Returns a defined function; `undefined` if this thread has not imported its module yet. */
export function findDefined(definition: TaskDefinition): AnyFunction | undefined {
  return registry.byKey.get(definitionKey(definition))
}

/**
 * Whether the module is the program itself. A worker that imports it would run the program again.
 */
export function isEntryModule({ module }: TaskDefinition): boolean {
  if (module !== lastChecked.module) lastChecked = { module, isEntry: isMainModule(module) }
  return lastChecked.isEntry
}

/** Caches the last answer, because the tasks of a submission mostly share one module. */
let lastChecked = { module: '', isEntry: false }

/** Compares real paths, because the program may have been started through a link. */
function isMainModule(module: string): boolean {
  const program = process.argv[1]
  if (program === undefined || !module.startsWith('file:')) return false
  return tryRead(() => realpathSync(program) === realpathSync(fileURLToPath(module))) === true
}
