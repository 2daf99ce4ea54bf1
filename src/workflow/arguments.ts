/** Finds the handles of other tasks in the arguments of a call, and replaces them with values. */

import { ValueError } from '../foundation/errors.ts'
import { EngineHandle } from './handle.ts'

const maxDepth = 1000

type Container = Readonly<Record<string, unknown>> | readonly unknown[]

interface PendingContainer {
  readonly container: Container
  /** The nesting depth; 0 for the argument list. */
  readonly depth: number
}

/**
 * Finds all handles in the arguments, including those in nested arrays and plain objects, which may
 * contain cycles. Returns each handle once. Throws a `ValueError` if the nesting is too deep.
 */
export function findHandles(args: readonly unknown[]): readonly EngineHandle[] {
  // Fast path, because most arguments are flat.
  if (areFlat(args)) return args.some(isHandle) ? uniqueHandles(args) : emptyList
  return uniqueHandles(collectContainers(args).flatMap(childValues))
}

const emptyList: readonly never[] = Object.freeze([])

const isHandle = (part: unknown): part is EngineHandle => part instanceof EngineHandle

function uniqueHandles(parts: readonly unknown[]): readonly EngineHandle[] {
  const found = parts.filter(isHandle)
  return found.length > 1 ? [...new Set(found)] : found
}

/** Whether all arguments are immutable: primitives, functions and handles. */
export const areImmutable = (args: readonly unknown[]): boolean => args.every(isImmutable)

const isImmutable = (part: unknown): boolean =>
  typeof part !== 'object' || part === null || isHandle(part)

const areFlat = (args: readonly unknown[]): boolean => !args.some(isContainer)

/**
 * Replaces handles, which must all be DONE, with their values. Copies only the containers that hold
 * handles, and keeps shared references and cycles.
 */
export function substituteHandles(args: readonly unknown[]): readonly unknown[] {
  if (areFlat(args)) {
    return args.map((part) => (part instanceof EngineHandle ? part.result : part))
  }
  const holders = findHandleHolders(collectContainers(args))
  if (holders.size === 0) return args
  const copies = new Map<Container, Record<string, unknown> | unknown[]>()
  for (const container of holders) copies.set(container, Array.isArray(container) ? [] : {})
  const valueOf = (part: unknown): unknown => {
    if (part instanceof EngineHandle) return part.result
    return isContainer(part) ? (copies.get(part) ?? part) : part
  }
  for (const [container, copy] of copies) copyParts(copy, container, valueOf)
  return (copies.get(args) ?? args) as readonly unknown[]
}

function copyParts(
  copy: Record<string, unknown> | unknown[],
  container: Container,
  valueOf: (part: unknown) => unknown,
): void {
  if (Array.isArray(copy)) {
    for (const part of container as readonly unknown[]) copy.push(valueOf(part))
    return
  }
  if (Object.getPrototypeOf(container) === null) Object.setPrototypeOf(copy, null)
  for (const [name, part] of Object.entries(container)) {
    const attributes = { enumerable: true, writable: true, configurable: true }
    // An assignment to `__proto__` would set the prototype instead of creating a key.
    Object.defineProperty(copy, name, { value: valueOf(part), ...attributes })
  }
}

/** Returns all arrays and plain objects in the arguments, each once, including `args`. */
function collectContainers(args: readonly unknown[]): readonly Container[] {
  const seen = new Set<Container>([args])
  const open: PendingContainer[] = [{ container: args, depth: 0 }]
  for (let next = open.pop(); next !== undefined; next = open.pop()) {
    const { container, depth } = next
    for (const part of childValues(container)) {
      if (!isContainer(part) || seen.has(part)) continue
      if (depth >= maxDepth) throw nestingError()
      seen.add(part)
      open.push({ container: part, depth: depth + 1 })
    }
  }
  return [...seen]
}

function findHandleHolders(containers: readonly Container[]): ReadonlySet<Container> {
  const holders = new Map<Container, Container[]>()
  const open: Container[] = []
  for (const container of containers) {
    for (const part of childValues(container)) {
      if (part instanceof EngineHandle) open.push(container)
      else if (isContainer(part)) {
        const outer = holders.get(part)
        if (outer === undefined) holders.set(part, [container])
        else outer.push(container)
      }
    }
  }
  const containersWithHandles = new Set<Container>()
  for (let container = open.pop(); container !== undefined; container = open.pop()) {
    if (containersWithHandles.has(container)) continue
    containersWithHandles.add(container)
    for (const holder of holders.get(container) ?? []) open.push(holder)
  }
  return containersWithHandles
}

/** Whether the value is searched for handles. Class instances, Maps and Sets are not. */
function isContainer(value: unknown): value is Container {
  if (typeof value !== 'object' || value === null) return false
  if (Array.isArray(value)) return true
  const prototype: unknown = Object.getPrototypeOf(value)
  return prototype === Object.prototype || prototype === null
}

const childValues = (container: Container): readonly unknown[] =>
  Array.isArray(container) ? (container as readonly unknown[]) : Object.values(container)

const nestingError = (): ValueError =>
  new ValueError(`arguments are nested more than ${maxDepth} deep`, {
    field: 'args',
    expected: `at most ${maxDepth} levels of arrays and objects`,
  })
