/**
 * Writes models as GGUF files (version 3) tensor by tensor, so that memory does not grow with the
 * model. Does not read GGUF files.
 */

import { closeSync, openSync, writeSync } from 'node:fs'

export interface GgufContent {
  /** The metadata, in the order in which it is written. */
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
/**
 * The number of values that share one scale in a Q8_0 tensor, and the size of such a block in
 * bytes.
 */
const blockLength = 32
const blockBytes = 34

const valueTypes = { uint32: 4, int32: 5, float32: 6, bool: 7, string: 8, array: 9 }
const tensorTypes = { F32: 0, F16: 1, Q8_0: 8 }

/**
 * The same input gives the same bytes. The chunks of a tensor are read only when it is written. A
 * chunk of a Q8_0 tensor must consist of whole blocks of 32 values.
 */
export function writeGguf(path: string, { metadata, tensors }: GgufContent): void {
  const sink = new FileSink(path)
  try {
    const entries = Object.entries(metadata)
    const head = [Buffer.from('GGUF'), uint32(3), uint64(tensors.length), uint64(entries.length)]
    for (const [key, value] of entries) head.push(...entryOf(key, value))
    let offset = 0
    for (const tensor of tensors) {
      head.push(...tensorEntryOf(tensor, offset))
      offset += aligned(sizeOf(tensor))
    }
    sink.write(Buffer.concat(head))
    sink.align()
    for (const tensor of tensors) writeTensor(sink, tensor)
  } finally {
    sink.close()
  }
}

function entryOf(key: string, { type, value }: GgufValue): readonly Buffer[] {
  const number = uint32(valueTypes[type])
  if (typeof value !== 'object') return [string(key), number, encoded[type](value)]
  const items = value.map((item) => encoded[type](item))
  return [string(key), uint32(valueTypes.array), number, uint64(value.length), ...items]
}

const tensorEntryOf = ({ name, shape, type }: GgufTensor, offset: number): readonly Buffer[] => [
  string(name),
  uint32(shape.length),
  ...shape.map(uint64),
  uint32(tensorTypes[type]),
  uint64(offset),
]

/** Values as little-endian bytes. */
const encoded: Readonly<Record<GgufValue['type'], (value: GgufItem) => Buffer>> = {
  uint32: (value) => uint32(Number(value)),
  int32: (value) => uint32(Number(value) >>> 0),
  float32: (value) => bytesOf(Float32Array.of(Number(value))),
  bool: (value) => Buffer.from([Number(value === true)]),
  string: (value) => string(String(value)),
}

const uint32 = (value: number): Buffer => bytesOf(Uint32Array.of(value))
const uint64 = (value: number): Buffer => bytesOf(BigUint64Array.of(BigInt(value)))
const string = (text: string): Buffer =>
  Buffer.concat([uint64(Buffer.byteLength(text)), Buffer.from(text)])

function writeTensor(sink: FileSink, tensor: GgufTensor): void {
  let count = 0
  for (const chunk of tensor.chunks()) {
    sink.write(encoders[tensor.type](chunk))
    count += chunk.length
  }
  if (count !== countOf(tensor)) {
    throw new RangeError(`tensor ${tensor.name}: expected ${countOf(tensor)} values, got ${count}`)
  }
  sink.align()
}

const encoders = { F32: bytesOf, F16: halve, Q8_0: quantise }

function halve(values: Float32Array): Buffer {
  const halves = new Uint16Array(values.length)
  for (let i = 0; i < values.length; i++) {
    const value = values[i] ?? 0
    halves[i] = value < 0 ? 0x8000 | toHalf(-value) : toHalf(value)
  }
  return bytesOf(halves)
}

/** Each block of 32 values becomes a half-precision scale and 32 signed bytes. */
function quantise(values: Float32Array): Buffer {
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

/** The bits of the nearest half-precision float. Only for non-negative numbers. */
function toHalf(value: number): number {
  floats[0] = value
  const [all = 0] = bits
  const exponent = (all >>> 23) - 112
  const fraction = all & 0x7fffff
  if (exponent >= 31) return 0x7c00
  if (exponent > 0) return (exponent << 10) + shiftRounded(fraction, 13)
  return exponent < -10 ? 0 : shiftRounded(fraction | 0x800000, 14 - exponent)
}

/** Shifts right and rounds to the nearest, ties to even. A carry into the exponent is correct. */
function shiftRounded(fraction: number, shift: number): number {
  const kept = fraction >>> shift
  const rest = fraction - kept * 2 ** shift
  const half = 2 ** (shift - 1)
  return rest > half || (rest === half && (kept & 1) === 1) ? kept + 1 : kept
}

/** Uses this machine's byte order: all machines that llama.cpp supports are little-endian. */
function bytesOf(values: Float32Array | Uint16Array | Uint32Array | BigUint64Array): Buffer {
  return Buffer.from(values.buffer, values.byteOffset, values.byteLength)
}

const countOf = ({ shape }: GgufTensor): number =>
  shape.reduce((product, length) => product * length, 1)
const aligned = (size: number): number => Math.ceil(size / alignment) * alignment

function sizeOf(tensor: GgufTensor): number {
  const count = countOf(tensor)
  if (tensor.type === 'Q8_0') return (count / blockLength) * blockBytes
  return count * (tensor.type === 'F32' ? 4 : 2)
}

/** Writes a file sequentially. */
class FileSink {
  readonly #file: number
  #size = 0

  constructor(path: string) {
    this.#file = openSync(path, 'w')
  }

  write(bytes: Uint8Array): void {
    for (let done = 0; done < bytes.length;) done += writeSync(this.#file, bytes, done)
    this.#size += bytes.length
  }

  align(): void {
    this.write(Buffer.alloc(aligned(this.#size) - this.#size))
  }

  close(): void {
    closeSync(this.#file)
  }
}
