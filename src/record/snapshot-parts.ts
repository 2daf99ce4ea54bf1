/**
 * Stores panel states as separate parts of a file, so that a reader loads only the parts that it
 * needs. A part is a column, an array of a text index, or the rest of a state.
 */

import { closeSync, readSync } from 'node:fs'
import type { FileHandle } from 'node:fs/promises'
import { deserialize, serialize } from 'node:v8'
import { crc32 } from 'node:zlib'
import { openRegularFileSync } from '../foundation/regular-file.ts'
import { type Block, blockRows, blockTypes, createBuffer } from '../views/columns.ts'
import type { Column, ColumnKind } from '../views/columns.ts'

export interface SnapshotPart {
  /** The name of the state, then the keys that lead to the part. */
  readonly path: readonly string[]
  /** The form of the part. `state` contains everything that is in no other part. */
  readonly form: 'state' | 'array' | 'column'
  readonly kind?: ColumnKind
  readonly offset: number
  readonly bytes: number
  readonly crc: number
}

/** Thrown if a part of the snapshot is damaged. The record still has all the data. */
export class SnapshotDamagedError extends Error {
  override name = 'SnapshotDamagedError'
}

interface SplitState {
  readonly rest: unknown
  readonly numbers: readonly { readonly path: readonly string[]; readonly value: unknown }[]
}

/** Writes the parts of a state one after another, starting at byte `at`. */
export async function writeParts(
  file: FileHandle,
  at: number,
  name: string,
  state: unknown,
): Promise<SnapshotPart[]> {
  const { rest, numbers } = splitState(state, [name])
  const parts: SnapshotPart[] = []
  let offset = at
  // Columns are written block by block, because copies of whole columns would take much memory.
  const write = async (
    part: Pick<SnapshotPart, 'path' | 'form' | 'kind'>,
    blocks: readonly Buffer[],
  ): Promise<void> => {
    const start = offset
    let crc = 0
    for (const bytes of blocks) {
      await file.write(bytes, 0, bytes.length, offset)
      crc = crc32(bytes, crc)
      offset += bytes.length
    }
    parts.push({ ...part, offset: start, bytes: offset - start, crc })
  }
  await write({ path: [name], form: 'state' }, [serialize(rest)])
  for (const { path, value } of numbers) {
    if (isColumn(value)) {
      await write({ path, form: 'column', kind: value.kind }, value.blocks.map(bytesOf))
    } else if (isNumberArray(value)) {
      await write({ path, form: 'array', kind: kindOf(value) }, [bytesOf(value)])
    }
  }
  return parts
}

/**
 * Separates columns and the arrays of text indexes from the rest of the state. An object that
 * contains none of them is not copied, because a state may refer to the same object twice.
 */
function splitState(value: unknown, path: readonly string[]): SplitState {
  if (isColumn(value)) return { rest: null, numbers: [{ path, value }] }
  if (!isPlainObject(value)) return { rest: value, numbers: [] }
  const isIndex = isTextIndex(value)
  const entries = Object.entries(value).map(([key, one]) => {
    const at = [...path, key]
    const isPart = isIndex && isNumberArray(one)
    const split = isPart ? { rest: null, numbers: [{ path: at, value: one }] } : splitState(one, at)
    return { key, ...split }
  })
  const numbers = entries.flatMap((entry) => entry.numbers)
  if (numbers.length === 0) return { rest: value, numbers }
  return { rest: Object.fromEntries(entries.map(({ key, rest }) => [key, rest])), numbers }
}

const isPlainObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && Object.getPrototypeOf(value) === Object.prototype

const isNumberArray = (value: unknown): value is Block =>
  Object.values(blockTypes).some((one) => value instanceof one)

const isColumn = (value: unknown): value is Column =>
  isPlainObject(value) && 'kind' in value && Array.isArray(value['blocks'])

const isTextIndex = (value: Readonly<Record<string, unknown>>): boolean =>
  value['slots'] instanceof Uint32Array && value['bytes'] instanceof Uint8Array

const kindOf = (value: Block): ColumnKind =>
  (Object.keys(blockTypes) as ColumnKind[]).find((kind) => value instanceof blockTypes[kind]) ??
  'u8'

const bytesOf = ({ buffer, byteOffset, byteLength }: Block): Buffer =>
  Buffer.from(buffer, byteOffset, byteLength)

/**
 * Returns the states by name. With `onDemand`, each part is read on first access, which throws a
 * `SnapshotDamagedError` if the part is damaged. Otherwise, all parts are read now.
 */
export function readStates(
  path: string,
  parts: readonly SnapshotPart[],
  onDemand: boolean,
): Record<string, unknown> {
  const states = {}
  for (const part of parts.filter(({ form }) => form === 'state')) {
    const [name = ''] = part.path
    const innerParts = parts.filter(({ path: [first], form }) => first === name && form !== 'state')
    defineValue(states, name, onDemand, () => {
      const state: unknown = deserialize(new Uint8Array(readPart(path, part)))
      for (const one of innerParts) {
        const keys = one.path.slice(1)
        defineValue(findHolder(state, keys), keys.at(-1) ?? '', onDemand, () =>
          readNumbers(path, one),
        )
      }
      return state
    })
  }
  return states
}

function findHolder(state: unknown, keys: readonly string[]): object {
  let holder = state
  for (const key of keys.slice(0, -1)) holder = (holder as Record<string, unknown>)[key]
  if (isPlainObject(holder)) return holder
  throw new SnapshotDamagedError(`there is no ${keys.join('.')}`)
}

function defineValue(holder: object, key: string, onDemand: boolean, read: () => unknown): void {
  if (!onDemand) {
    Object.assign(holder, { [key]: read() })
    return
  }
  const attributes = { configurable: true, enumerable: true }
  Object.defineProperty(holder, key, {
    ...attributes,
    get() {
      const value = read()
      Object.defineProperty(holder, key, { ...attributes, value, writable: true })
      return value
    },
  })
}

function readNumbers(path: string, part: SnapshotPart): Block | Column {
  const { form, kind = 'u8' } = part
  const buffer = readPart(path, part, createBuffer(part.bytes))
  const BlockType = blockTypes[kind]
  if (form === 'array') return new BlockType(buffer)
  const bytes = blockRows * BlockType.BYTES_PER_ELEMENT
  const blocks = Array.from({ length: buffer.byteLength / bytes }, (_, at) => {
    return new BlockType(buffer, at * bytes, blockRows)
  })
  return { kind, blocks }
}

/** Reads a part into its own buffer, so that each part can be freed separately. */
function readPart(
  path: string,
  part: SnapshotPart,
  buffer = new ArrayBuffer(part.bytes),
): ArrayBuffer {
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
      if (count === 0) throw new RangeError('unexpected end of file')
      done += count
    }
  } finally {
    closeSync(file)
  }
}
