/**
 * Stores the states of panels as separate parts of a file, so that a reader loads only those it
 * needs: every column, every array of a text index, and the rest of each state.
 */

import { closeSync, readSync } from 'node:fs'
import type { FileHandle } from 'node:fs/promises'
import { deserialize, serialize } from 'node:v8'
import { crc32 } from 'node:zlib'
import { openRegularFileSync } from '../foundation/regular-file.ts'
import { type Block, blockOf, blockRows, type Column } from '../views/columns.ts'

const arrays = { u8: Uint8Array, u32: Uint32Array, f32: Float32Array, f64: Float64Array }
type NumberKind = keyof typeof arrays

export interface SnapshotPart {
  /** The name of the state, followed by the keys that lead to the part. */
  readonly path: readonly string[]
  /** `state`: everything that is in no other part of the state. */
  readonly form: 'state' | 'array' | 'column'
  /** The number type of an array or column. */
  readonly kind?: NumberKind
  /** The number of blocks that were dropped from the beginning of a column. */
  readonly dropped?: number
  readonly bytes: number
  readonly crc: number
}

/** The maximum size of the JSON of a part in the head of a snapshot. */
export const maxPartBytes = 250

/** A part is damaged. The record itself still has all the data. */
export class SnapshotDamagedError extends Error {
  override name = 'SnapshotDamagedError'
}

interface Split {
  readonly rest: unknown
  readonly numbers: readonly { readonly path: readonly string[]; readonly value: unknown }[]
}

export const countParts = (name: string, state: unknown): number =>
  1 + splitState(state, [name]).numbers.length

/** Writes a state at a position; its parts are contiguous. */
export async function writeParts(
  file: FileHandle,
  at: number,
  name: string,
  state: unknown,
): Promise<SnapshotPart[]> {
  const { rest, numbers } = splitState(state, [name])
  const parts: SnapshotPart[] = []
  let position = at
  const write = async (part: Omit<SnapshotPart, 'bytes' | 'crc'>, bytes: Buffer): Promise<void> => {
    await file.write(bytes, 0, bytes.length, position)
    position += bytes.length
    parts.push({ ...part, bytes: bytes.length, crc: crc32(bytes) })
  }
  await write({ path: [name], form: 'state' }, serialize(rest))
  for (const { path, value } of numbers) {
    if (isColumn(value)) {
      const kept = value.blocks.filter((block) => block !== null)
      const dropped = value.blocks.length - kept.length
      const bytes = Buffer.concat(kept.map(bytesOf))
      await write({ path, form: 'column', kind: value.kind, dropped }, bytes)
    } else if (isNumbers(value)) {
      await write({ path, form: 'array', kind: kindOf(value) }, bytesOf(value))
    }
  }
  return parts
}

/**
 * Separates columns and arrays of text indexes from the state. Does not copy an object without any
 * of them, because a state may refer to such an object twice.
 */
function splitState(value: unknown, path: readonly string[]): Split {
  if (isColumn(value)) return { rest: null, numbers: [{ path, value }] }
  if (!isPlainObject(value)) return { rest: value, numbers: [] }
  const isIndex = isTextIndex(value)
  const entries = Object.entries(value).map(([key, one]) => {
    const at = [...path, key]
    const isPart = isIndex && isNumbers(one)
    const split = isPart ? { rest: null, numbers: [{ path: at, value: one }] } : splitState(one, at)
    return { key, ...split }
  })
  const numbers = entries.flatMap((entry) => entry.numbers)
  if (numbers.length === 0) return { rest: value, numbers }
  return { rest: Object.fromEntries(entries.map(({ key, rest }) => [key, rest])), numbers }
}

const isPlainObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && Object.getPrototypeOf(value) === Object.prototype

const isNumbers = (value: unknown): value is Block =>
  Object.values(arrays).some((one) => value instanceof one)

const isColumn = (value: unknown): value is Column =>
  isPlainObject(value) && 'kind' in value && Array.isArray(value['blocks'])

const isTextIndex = (value: Readonly<Record<string, unknown>>): boolean =>
  value['slots'] instanceof Uint32Array && value['bytes'] instanceof Uint8Array

const kindOf = (value: Block): NumberKind =>
  (Object.keys(arrays) as NumberKind[]).find((kind) => value instanceof arrays[kind]) ?? 'u8'

const bytesOf = ({ buffer, byteOffset, byteLength }: Block): Buffer =>
  Buffer.from(buffer, byteOffset, byteLength)

export interface LocatedPart extends SnapshotPart {
  readonly offset: number
}

/**
 * Returns the states by name. With `onDemand`, each part is read on first access, which throws a
 * `SnapshotDamagedError` if it is damaged; otherwise all parts are read now.
 */
export function readStates(
  path: string,
  parts: readonly LocatedPart[],
  onDemand: boolean,
): Record<string, unknown> {
  const states = {}
  for (const part of parts.filter(({ form }) => form === 'state')) {
    const [name = ''] = part.path
    const own = parts.filter(({ path: [first], form }) => first === name && form !== 'state')
    place(states, name, onDemand, () => {
      const state: unknown = deserialize(new Uint8Array(readPart(path, part)))
      for (const one of own) {
        const keys = one.path.slice(1)
        place(holderOf(state, keys), keys.at(-1) ?? '', onDemand, () => numbersOf(path, one))
      }
      return state
    })
  }
  return states
}

function holderOf(state: unknown, keys: readonly string[]): object {
  let holder = state
  for (const key of keys.slice(0, -1)) holder = (holder as Record<string, unknown>)[key]
  if (isPlainObject(holder)) return holder
  throw new SnapshotDamagedError(`there is no ${keys.join('.')}`)
}

function place(holder: object, key: string, onDemand: boolean, read: () => unknown): void {
  if (!onDemand) {
    Object.assign(holder, { [key]: read() })
    return
  }
  const own = { configurable: true, enumerable: true }
  Object.defineProperty(holder, key, {
    ...own,
    get() {
      const value = read()
      Object.defineProperty(holder, key, { ...own, value, writable: true })
      return value
    },
  })
}

function numbersOf(path: string, part: LocatedPart): Block | Column {
  const { form, kind = 'u8', dropped = 0 } = part
  const buffer = readPart(path, part)
  if (form === 'array') return new arrays[kind](buffer)
  const blockBytes = blockRows * arrays[kind].BYTES_PER_ELEMENT
  const kept = Array.from({ length: buffer.byteLength / blockBytes }, (_, at) =>
    blockOf(kind, buffer, at * blockBytes),
  )
  return { kind, blocks: [...Array.from({ length: dropped }, () => null), ...kept] }
}

/** Each part has its own buffer, which can be freed separately. */
function readPart(path: string, part: LocatedPart): ArrayBuffer {
  const buffer = new ArrayBuffer(part.bytes)
  const view = new Uint8Array(buffer)
  try {
    readBytes(path, view, part.offset)
  } catch (cause) {
    // The file may have been removed or replaced since its head was read.
    throw new SnapshotDamagedError(`${path} cannot be read`, { cause })
  }
  if (crc32(view) !== part.crc) throw new SnapshotDamagedError(`${path} is damaged`)
  return buffer
}

function readBytes(path: string, into: Uint8Array, offset: number): void {
  const file = openRegularFileSync(path)
  try {
    for (let done = 0; done < into.length;) {
      const count = readSync(file, into, done, into.length - done, offset + done)
      if (count === 0) throw new RangeError('it is cut')
      done += count
    }
  } finally {
    closeSync(file)
  }
}
