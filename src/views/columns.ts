/**
 * Numbers and texts per task as plain data. Columns are typed arrays in blocks, so they grow
 * without being copied and are outside the garbage-collected heap.
 */

const blockBits = 12
/** The number of rows per block. */
export const blockRows = 1 << blockBits
const blockMask = blockRows - 1

export const blockTypes = {
  u8: Uint8Array,
  u32: Uint32Array,
  f32: Float32Array,
  f64: Float64Array,
} as const

export type ColumnKind = keyof typeof blockTypes
export type Block = InstanceType<(typeof blockTypes)[ColumnKind]>

/** Creates the memory of a column. */
export let createBuffer = (bytes: number): ArrayBuffer => new ArrayBuffer(bytes)

/** From now on, new columns of this thread can be read by other threads without a copy. */
export function shareColumns(): void {
  // Typed arrays accept both kinds of memory, but their types do not have a common one.
  createBuffer = (bytes) => new SharedArrayBuffer(bytes) as unknown as ArrayBuffer
}

/**
 * Copies the arrays of numbers in plain objects, so that the copy can be moved to another thread.
 * Adds the memory of the copies to `moved`.
 */
export function copyNumbers<T>(value: T, moved: ArrayBufferLike[]): T {
  if (ArrayBuffer.isView(value)) {
    const copy = (value as unknown as Block).slice()
    moved.push(copy.buffer)
    return copy as unknown as T
  }
  if (Array.isArray(value)) {
    return (ArrayBuffer.isView(value[0])
      ? value.map((one: unknown) => copyNumbers(one, moved))
      : value) as unknown as T
  }
  const isPlain = Object.getPrototypeOf(Object(value)) === Object.prototype
  if (!isPlain || value === null) return value
  const entries = Object.entries(value as object)
  return Object.fromEntries(entries.map(([key, one]) => [key, copyNumbers(one, moved)])) as T
}

/** One number per row. Rows that were never set contain 0. */
export interface Column {
  readonly kind: ColumnKind
  readonly blocks: Block[]
}

export const createColumn = (kind: ColumnKind): Column => ({ kind, blocks: [] })

export const valueAt = (column: Column, row: number): number =>
  column.blocks[row >>> blockBits]?.[row & blockMask] ?? 0

export function setValue(column: Column, row: number, value: number): void {
  const at = row >>> blockBits
  while (column.blocks.length <= at) column.blocks.push(createBlock(column.kind))
  const block = column.blocks[at]
  if (block !== undefined) block[row & blockMask] = value
}

export const addToValue = (column: Column, row: number, change: number): void =>
  setValue(column, row, valueAt(column, row) + change)

/**
 * Copies the rows before `size` into one array, which can be read several times faster. Rows that
 * were never set contain 0. For `earlier`, see `createRows`.
 */
export function toArray(column: Column, size: number, earlier?: Block): Block {
  const rows = createRows(column.kind, size, earlier)
  for (const [at, block] of column.blocks.entries()) {
    const first = at * blockRows
    if (first < size) rows.set(block.subarray(0, Math.min(blockRows, size - first)), first)
  }
  return rows
}

/**
 * Creates an array of zeros in the memory of `earlier`, which must not be used any more. If that is
 * too small, the new array has room to grow, so that a growing run leaves little garbage.
 */
export function createRows(kind: ColumnKind, size: number, earlier?: Block): Block {
  const Rows = blockTypes[kind]
  if (earlier === undefined) return new Rows(size)
  const { buffer } = earlier
  if (buffer.byteLength >= size * Rows.BYTES_PER_ELEMENT) return new Rows(buffer, 0, size).fill(0)
  freeRows(earlier)
  const room = Math.ceil(size * 1.25) * Rows.BYTES_PER_ELEMENT
  return new Rows(new ArrayBuffer(room), 0, size)
}

/**
 * Frees the memory of an array now, because a garbage collection might be much later. The array
 * must not be used any more.
 */
export function freeRows({ buffer }: ArrayBufferView): void {
  if (buffer instanceof ArrayBuffer) buffer.transfer(0)
}

/** Creates a column with these rows. Other threads cannot read it. */
export function toColumn(kind: ColumnKind, values: ArrayLike<number>): Column {
  const count = Math.ceil(values.length / blockRows)
  const rows = createRows(kind, count * blockRows)
  rows.set(values)
  const blockAt = (_: unknown, at: number): Block =>
    rows.subarray(at * blockRows, (at + 1) * blockRows)
  return { kind, blocks: Array.from({ length: count }, blockAt) }
}

const createBlock = (kind: ColumnKind): Block => createNumbers(kind, blockRows)

type Numbers<Kind extends ColumnKind> = InstanceType<(typeof blockTypes)[Kind]>

function createNumbers<Kind extends ColumnKind>(kind: Kind, size: number): Numbers<Kind> {
  const NumbersType = blockTypes[kind]
  return new NumbersType(createBuffer(size * NumbersType.BYTES_PER_ELEMENT)) as Numbers<Kind>
}

/**
 * Distinct texts, such as uids and names, numbered from 0 in the order of first appearance. A text
 * takes its bytes and at most a quarter more, plus 5 bytes for its position and 5 to 11 bytes for
 * its slot. A `Map` of strings takes about 80 bytes more than the text.
 */
export interface TextIndex {
  size: number
  /**
   * A hash table with open addressing. A slot contains the number of a text plus 1, or 0. At most
   * three quarters of the slots are used.
   */
  slots: Uint32Array
  /** The offset in `bytes` at which each text ends. */
  ends: Uint32Array
  /** All texts, with 1 to 3 bytes per UTF-16 unit, so that any string can be restored exactly. */
  bytes: Uint8Array
  /** The last text that was searched for, because events of one task are often adjacent. */
  latest: string
  latestRow: number
}

const firstSlots = 64
const firstBytes = 1024

export const createTextIndex = (): TextIndex => ({
  size: 0,
  slots: createNumbers('u32', firstSlots),
  ends: createNumbers('u32', firstSlots),
  bytes: createNumbers('u8', firstBytes),
  latest: '',
  latestRow: -1,
})

/** Returns the number of the text. Adds the text if it is not in the index. */
export function indexOf(index: TextIndex, text: string): number {
  if (index.latestRow !== -1 && index.latest === text) return index.latestRow
  index.latestRow = search(index, text)
  index.latest = text
  return index.latestRow
}

/** Returns the number of the text, or -1 if it is not in the index. Adds nothing. */
export function findText(index: TextIndex, text: string): number {
  if (index.latestRow !== -1 && index.latest === text) return index.latestRow
  return search(index, text, notFound)
}

const notFound = (): number => -1

function search(index: TextIndex, text: string, ifMissing: typeof addText = addText): number {
  const { slots } = index
  const mask = slots.length - 1
  for (let slot = hashOf(text) & mask; ; slot = (slot + 1) & mask) {
    const found = slots[slot] ?? 0
    if (found === 0) return ifMissing(index, text, slot)
    if (isTextAt(index, found - 1, text)) return found - 1
  }
}

export function textAt(index: TextIndex, row: number): string {
  let text = ''
  const end = endOf(index, row)
  for (let at = endOf(index, row - 1); at < end; at += sizeAt(index.bytes, at)) {
    text += String.fromCharCode(unitAt(index.bytes, at))
  }
  return text
}

/** Calls back with all texts in order. Several times faster than `textAt` of each row. */
export function eachText(index: TextIndex, visit: (text: string, row: number) => void): void {
  const { bytes, size } = index
  const whole = Buffer.from(bytes.buffer, bytes.byteOffset, endOf(index, size - 1))
  const text = whole.toString('latin1')
  const isPlain = !/[\u0080-\u00FF]/.test(text)
  for (let row = 0, start = 0; row < size; row++) {
    const end = endOf(index, row)
    visit(isPlain ? text.slice(start, end) : textAt(index, row), row)
    start = end
  }
}

function addText(index: TextIndex, text: string, slot: number): number {
  const row = index.size++
  const start = endOf(index, row - 1)
  if (row === index.ends.length) index.ends = growNumbers('u32', index.ends, row + 1)
  const max = start + 3 * text.length
  if (max > index.bytes.length) index.bytes = growNumbers('u8', index.bytes, max)
  let at = start
  for (let unit = 0; unit < text.length; unit++) {
    at = writeUnit(index.bytes, at, text.charCodeAt(unit))
  }
  index.ends[row] = at
  index.slots[slot] = row + 1
  if (index.size * 4 > index.slots.length * 3) addSlots(index)
  return row
}

function growNumbers<Kind extends ColumnKind>(
  kind: Kind,
  array: ArrayLike<number>,
  length: number,
): Numbers<Kind> {
  const copy = createNumbers(kind, Math.max(length, Math.ceil(array.length * 1.25)))
  copy.set(array)
  return copy
}

function addSlots(index: TextIndex): void {
  const slots = createNumbers('u32', index.slots.length * 2)
  const mask = slots.length - 1
  for (let row = 0; row < index.size; row++) {
    let slot = hashAt(index, row) & mask
    while (slots[slot] !== 0) slot = (slot + 1) & mask
    slots[slot] = row + 1
  }
  index.slots = slots
}

const endOf = ({ ends }: TextIndex, row: number): number => (row < 0 ? 0 : (ends[row] ?? 0))

function isTextAt(index: TextIndex, row: number, text: string): boolean {
  const { bytes } = index
  const end = endOf(index, row)
  let at = endOf(index, row - 1)
  // Each UTF-16 unit takes at least one byte, so an entry with fewer bytes than units cannot be the
  // text.
  if (end - at < text.length) return false
  for (let unit = 0; unit < text.length; unit++) {
    const code = text.charCodeAt(unit)
    if (unitAt(bytes, at) !== code) return false
    at += code < 0x80 ? 1 : sizeAt(bytes, at)
  }
  return at === end
}

function writeUnit(bytes: Uint8Array, at: number, code: number): number {
  if (code < 0x80) {
    bytes[at] = code
    return at + 1
  }
  if (code < 0x800) {
    bytes[at] = 0xc0 | (code >> 6)
    bytes[at + 1] = 0x80 | (code & 0x3f)
    return at + 2
  }
  bytes[at] = 0xe0 | (code >> 12)
  bytes[at + 1] = 0x80 | ((code >> 6) & 0x3f)
  bytes[at + 2] = 0x80 | (code & 0x3f)
  return at + 3
}

const byteAt = (bytes: Uint8Array, at: number): number => bytes[at] ?? 0

function sizeAt(bytes: Uint8Array, at: number): number {
  const first = byteAt(bytes, at)
  if (first < 0x80) return 1
  return first < 0xe0 ? 2 : 3
}

function unitAt(bytes: Uint8Array, at: number): number {
  const first = byteAt(bytes, at)
  if (first < 0x80) return first
  const second = byteAt(bytes, at + 1) & 0x3f
  if (first < 0xe0) return ((first & 0x1f) << 6) | second
  return ((first & 0x0f) << 12) | (second << 6) | (byteAt(bytes, at + 2) & 0x3f)
}

const firstHash = 0x811c9dc5
const hashUnit = (hash: number, unit: number): number => Math.imul(hash ^ unit, 0x01000193)

/** FNV-1a over the UTF-16 units. The bits are mixed, because uids often differ in few bits. */
function hashOf(text: string): number {
  let hash = firstHash
  for (let at = 0; at < text.length; at++) hash = hashUnit(hash, text.charCodeAt(at))
  return mixBits(hash)
}

function hashAt(index: TextIndex, row: number): number {
  const { bytes } = index
  const end = endOf(index, row)
  let hash = firstHash
  for (let at = endOf(index, row - 1); at < end; at += sizeAt(bytes, at)) {
    hash = hashUnit(hash, unitAt(bytes, at))
  }
  return mixBits(hash)
}

function mixBits(hash: number): number {
  const mixed = Math.imul(hash ^ (hash >>> 15), 0x2c1b3c6d)
  return (mixed ^ (mixed >>> 13)) >>> 0
}
