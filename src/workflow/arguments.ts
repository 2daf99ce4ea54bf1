/** Finds the handles inside arguments, and replaces them by values in copies. */

import { ValueError } from '../foundation/errors.ts'
import { EngineHandle } from './handle.ts'

/** The nesting limit for arguments. */
const deepest = 1000

type Container = Readonly<Record<string, unknown>> | readonly unknown[]

interface OpenContainer {
  readonly container: Container
  /** 0 for the list of arguments itself. */
  readonly depth: number
}

/**
 * Finds all handles in the arguments, each once, also in nested arrays and plain objects, which may
 * contain cycles. Throws a `ValueError` if the nesting is too deep.
 */
export function findHandles(args: readonly unknown[]): readonly EngineHandle[] {
  // Fast path, because most arguments are flat.
  if (isFlat(args)) return args.some(isHandle) ? onlyHandles(args) : none
  return onlyHandles(containersIn(args).flatMap(partsOf))
}

const none: readonly never[] = Object.freeze([])

const isHandle = (part: unknown): part is EngineHandle => part instanceof EngineHandle

/** Filters the handles and removes duplicates. */
function onlyHandles(parts: readonly unknown[]): readonly EngineHandle[] {
  const found = parts.filter(isHandle)
  return found.length > 1 ? [...new Set(found)] : found
}

/** Whether no argument can change after the call. Handles count as unchangeable. */
export function isFixed(args: readonly unknown[]): boolean {
  for (const part of args) {
    if (typeof part === 'object' && part !== null && !isHandle(part)) return false
  }
  return true
}

/** Whether no argument can contain a handle, now or later. */
function isFlat(args: readonly unknown[]): boolean {
  for (const part of args) if (isContainer(part)) return false
  return true
}

/**
 * Replaces handles, which must all be DONE, by their values. Copies only the containers that hold
 * handles; shared references and cycles are kept.
 */
export function substitute(args: readonly unknown[]): readonly unknown[] {
  if (isFlat(args)) {
    return args.map((part) => (part instanceof EngineHandle ? part.result : part))
  }
  const touched = holdersOf(containersIn(args))
  if (touched.size === 0) return args
  const copies = new Map<Container, Record<string, unknown> | unknown[]>()
  for (const container of touched) copies.set(container, Array.isArray(container) ? [] : {})
  const valueOf = (part: unknown): unknown => {
    if (part instanceof EngineHandle) return part.result
    return isContainer(part) ? (copies.get(part) ?? part) : part
  }
  for (const [container, copy] of copies) fill(copy, container, valueOf)
  return (copies.get(args) ?? args) as readonly unknown[]
}

function fill(
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
    // Not an assignment, because assigning to `__proto__` creates no key.
    const value = valueOf(part)
    Object.defineProperty(copy, name, {
      value,
      enumerable: true,
      writable: true,
      configurable: true,
    })
  }
}

/** All arrays and objects in the arguments, each once, starting with `args` itself. */
function containersIn(args: readonly unknown[]): readonly Container[] {
  const seen = new Set<Container>([args])
  const open: OpenContainer[] = [{ container: args, depth: 0 }]
  for (let next = open.pop(); next !== undefined; next = open.pop()) {
    const { container, depth } = next
    for (const part of partsOf(container)) {
      if (!isContainer(part) || seen.has(part)) continue
      if (depth >= deepest) throw tooDeep()
      seen.add(part)
      open.push({ container: part, depth: depth + 1 })
    }
  }
  return [...seen]
}

/** The containers that hold a handle, directly or in a nested container. */
function holdersOf(containers: readonly Container[]): ReadonlySet<Container> {
  const holders = new Map<Container, Container[]>()
  const open: Container[] = []
  for (const container of containers) {
    for (const part of partsOf(container)) {
      if (part instanceof EngineHandle) open.push(container)
      else if (isContainer(part)) {
        const outer = holders.get(part)
        if (outer === undefined) holders.set(part, [container])
        else outer.push(container)
      }
    }
  }
  const touched = new Set<Container>()
  for (let container = open.pop(); container !== undefined; container = open.pop()) {
    if (touched.has(container)) continue
    touched.add(container)
    for (const holder of holders.get(container) ?? []) open.push(holder)
  }
  return touched
}

/** Arrays and plain objects; instances of classes, Maps and Sets are not searched. */
function isContainer(value: unknown): value is Container {
  if (typeof value !== 'object' || value === null) return false
  if (Array.isArray(value)) return true
  const prototype: unknown = Object.getPrototypeOf(value)
  return prototype === Object.prototype || prototype === null
}

const partsOf = (container: Container): readonly unknown[] =>
  Array.isArray(container) ? (container as readonly unknown[]) : Object.values(container)

const tooDeep = (): ValueError =>
  new ValueError(`arguments are nested more than ${deepest} deep`, {
    field: 'args',
    expected: `at most ${deepest} levels of arrays and objects`,
  })
