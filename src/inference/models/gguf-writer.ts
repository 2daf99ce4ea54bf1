/**
 * Writes models as GGUF files (version 3) tensor by tensor, so that memory does not grow with the
 * model. Does not read GGUF files.
 */

import { closeSync, openSync, writeSync } from 'node:fs'

export interface GgufContent {
  readonly metadata: Readonly<Record<string, GgufValue>>
  readonly tensors: readonly GgufTensor[]
}

/** A metadata value. All items of an array have the same type. */
export interface GgufValue {
  readonly type: 'uint32' | 'int32' | 'float32' | 'bool' | 'string'
  readonly value: GgufItem | readonly GgufItem[]
}

export type GgufItem = number | boolean | string

export interface GgufTensor {
  readonly name: string
  /** The dimensions, beginning with the length of a row. */
  readonly shape: readonly number[]
  readonly type: 'F32' | 'F16' | 'Q8_0'
  /** All values, row by row. A chunk is copied before the next one is requested. */
  chunks(): Iterable<Float32Array>
}

const alignment = 32
/** A block of a Q8_0 tensor: the number of values that share one scale, and the size in bytes. */
const blockLength = 32
const blockBytes = 34

const valueTypes = { uint32: 4, int32: 5, float32: 6, bool: 7, string: 8, array: 9 }
const tensorTypes = { F32: 0, F16: 1, Q8_0: 8 }

/** The same input gives the same bytes. The chunks of a tensor are read when it is written. */
export function writeGguf(path: string, { metadata, tensors }: GgufContent): void {
  const file = openSync(path, 'w')
  let size = 0
  const write = (bytes: Uint8Array): void => {
    for (let done = 0; done < bytes.length;) done += writeSync(file, bytes, done)
    size += bytes.length
  }
  const align = (): void => write(Buffer.alloc(alignSize(size) - size))
  try {
    const entries = Object.entries(metadata)
    const head = [
      Buffer.from('GGUF'),
      encodeUint32(3),
      encodeUint64(tensors.length),
      encodeUint64(entries.length),
    ]
    for (const [key, value] of entries) head.push(...encodeEntry(key, value))
    let offset = 0
    for (const tensor of tensors) {
      head.push(...encodeTensorEntry(tensor, offset))
      offset += alignSize(countBytes(tensor))
    }
    write(Buffer.concat(head))
    align()
    for (const tensor of tensors) {
      writeTensor(tensor, write)
      align()
    }
  } finally {
    closeSync(file)
  }
}

function encodeEntry(key: string, { type, value }: GgufValue): readonly Buffer[] {
  const number = encodeUint32(valueTypes[type])
  if (typeof value !== 'object') return [encodeString(key), number, valueEncoders[type](value)]
  const items = value.map((item) => valueEncoders[type](item))
  return [
    encodeString(key),
    encodeUint32(valueTypes.array),
    number,
    encodeUint64(value.length),
    ...items,
  ]
}

const encodeTensorEntry = (
  { name, shape, type }: GgufTensor,
  offset: number,
): readonly Buffer[] => [
  encodeString(name),
  encodeUint32(shape.length),
  ...shape.map(encodeUint64),
  encodeUint32(tensorTypes[type]),
  encodeUint64(offset),
]

const valueEncoders: Readonly<Record<GgufValue['type'], (value: GgufItem) => Buffer>> = {
  uint32: (value) => encodeUint32(Number(value)),
  int32: (value) => encodeUint32(Number(value) >>> 0),
  float32: (value) => toBytes(Float32Array.of(Number(value))),
  bool: (value) => Buffer.from([Number(value === true)]),
  string: (value) => encodeString(String(value)),
}

const encodeUint32 = (value: number): Buffer => toBytes(Uint32Array.of(value))
const encodeUint64 = (value: number): Buffer => toBytes(BigUint64Array.of(BigInt(value)))
const encodeString = (text: string): Buffer =>
  Buffer.concat([encodeUint64(Buffer.byteLength(text)), Buffer.from(text)])

function writeTensor(tensor: GgufTensor, write: (bytes: Uint8Array) => void): void {
  let count = 0
  for (const chunk of tensor.chunks()) {
    write(tensorEncoders[tensor.type](chunk))
    count += chunk.length
  }
  if (count !== countValues(tensor)) {
    throw new RangeError(
      `tensor ${tensor.name}: expected ${countValues(tensor)} values, got ${count}`,
    )
  }
}

const tensorEncoders = { F32: toBytes, F16: toHalfFloats, Q8_0: quantizeQ8 }

function toHalfFloats(values: Float32Array): Buffer {
  const halves = new Uint16Array(values.length)
  for (let i = 0; i < values.length; i++) {
    const value = values[i] ?? 0
    halves[i] = value < 0 ? 0x8000 | toHalf(-value) : toHalf(value)
  }
  return toBytes(halves)
}

/** Quantizes values. Each block of 32 values becomes a half-precision scale and 32 signed bytes. */
function quantizeQ8(values: Float32Array): Buffer {
  const blocks = values.length / blockLength
  if (!Number.isInteger(blocks)) throw new RangeError('a Q8_0 chunk holds whole blocks of 32')
  const bytes = Buffer.allocUnsafe(blocks * blockBytes)
  for (let block = 0; block < blocks; block++) {
    const from = block * blockLength
    const to = block * blockBytes
    let largest = 0
    for (let i = 0; i < blockLength; i++) {
      largest = Math.max(largest, Math.abs(values[from + i] ?? 0))
    }
    const scale = largest / 127
    bytes.writeUInt16LE(toHalf(scale), to)
    const factor = scale === 0 ? 0 : 1 / scale
    for (let i = 0; i < blockLength; i++) {
      bytes[to + 2 + i] = Math.round((values[from + i] ?? 0) * factor)
    }
  }
  return bytes
}

const floats = new Float32Array(1)
const bits = new Uint32Array(floats.buffer)

/** Returns the bits of the nearest half-precision float. The value must not be negative. */
function toHalf(value: number): number {
  floats[0] = value
  const [all = 0] = bits
  const exponent = (all >>> 23) - 112
  const fraction = all & 0x7fffff
  if (exponent >= 31) return 0x7c00
  if (exponent > 0) return (exponent << 10) + shiftRounded(fraction, 13)
  return exponent < -10 ? 0 : shiftRounded(fraction | 0x800000, 14 - exponent)
}

/** Rounds ties to even. A carry into the exponent gives the correct result. */
function shiftRounded(fraction: number, shift: number): number {
  const kept = fraction >>> shift
  const rest = fraction - kept * 2 ** shift
  const half = 2 ** (shift - 1)
  return rest > half || (rest === half && (kept & 1) === 1) ? kept + 1 : kept
}

/** Relies on the byte order: all machines that llama.cpp supports are little-endian. */
function toBytes(values: Float32Array | Uint16Array | Uint32Array | BigUint64Array): Buffer {
  return Buffer.from(values.buffer, values.byteOffset, values.byteLength)
}

export const countValues = ({ shape }: Pick<GgufTensor, 'shape'>): number =>
  shape.reduce((product, length) => product * length, 1)
const alignSize = (size: number): number => Math.ceil(size / alignment) * alignment

function countBytes(tensor: GgufTensor): number {
  const count = countValues(tensor)
  if (tensor.type === 'Q8_0') return (count / blockLength) * blockBytes
  return count * (tensor.type === 'F32' ? 4 : 2)
}
