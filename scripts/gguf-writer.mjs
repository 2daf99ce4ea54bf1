/**
 * Writes models as GGUF files (version 3), tensor by tensor: memory does not grow with the model.
 * It reads none. Plain JavaScript, because setup runs it on the system's Node.
 */

import { closeSync, openSync, writeSync } from 'node:fs'

const alignment = 32
/** Values that share one scale in a Q8_0 tensor, and the bytes that they become. */
const blockLength = 32
const blockBytes = 34
const bufferBytes = 1 << 20

const valueTypes = { uint32: 4, int32: 5, float32: 6, bool: 7, string: 8, array: 9 }
const tensorTypes = { F32: 0, F16: 1, Q8_0: 8 }

/**
 * The same input gives the same bytes. A tensor's `chunks` are read when it is their turn; a chunk
 * of a Q8_0 tensor holds whole blocks of 32 values.
 *
 * @param {string} path
 * @param {import('./gguf-writer.d.mts').GgufContent} content
 */
export function writeGguf(path, { metadata, tensors }) {
  const sink = new FileSink(path)
  try {
    const head = new ByteWriter()
    head.text('GGUF').uint32(3).uint64(tensors.length).uint64(Object.keys(metadata).length)
    for (const [key, value] of Object.entries(metadata)) writeEntry(head, key, value)
    let offset = 0
    for (const tensor of tensors) {
      writeTensorEntry(head, tensor, offset)
      offset += aligned(sizeOf(tensor))
    }
    sink.write(head.bytes())
    sink.align()
    for (const tensor of tensors) writeTensor(sink, tensor)
    sink.flush()
  } finally {
    sink.close()
  }
}

function writeEntry(head, key, { type, value }) {
  head.string(key)
  if (!Array.isArray(value)) {
    head.uint32(valueTypes[type])
    return writeValue(head, type, value)
  }
  head.uint32(valueTypes.array).uint32(valueTypes[type]).uint64(value.length)
  for (const item of value) writeValue(head, type, item)
}

function writeValue(head, type, value) {
  if (type === 'string') head.string(value)
  else if (type === 'uint32') head.uint32(value)
  else if (type === 'int32') head.uint32(value >>> 0)
  else if (type === 'float32') head.float32(value)
  else if (type === 'bool') head.byte(value ? 1 : 0)
  else throw new TypeError(`no such metadata type: ${type}`)
}

function writeTensorEntry(head, { name, shape, type }, offset) {
  head.string(name).uint32(shape.length)
  for (const length of shape) head.uint64(length)
  head.uint32(tensorTypes[type]).uint64(offset)
}

function writeTensor(sink, tensor) {
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

function halve(values) {
  const halves = new Uint16Array(values.length)
  for (let i = 0; i < values.length; i++) {
    const value = values[i]
    halves[i] = value < 0 ? 0x8000 | toHalf(-value) : toHalf(value)
  }
  return bytesOf(halves)
}

/** Each block of 32 values becomes a half-precision scale and 32 signed bytes. */
function quantise(values) {
  const blocks = values.length / blockLength
  if (!Number.isInteger(blocks)) throw new RangeError('a Q8_0 chunk holds whole blocks of 32')
  const bytes = Buffer.allocUnsafe(blocks * blockBytes)
  for (let block = 0; block < blocks; block++) {
    const from = block * blockLength
    const to = block * blockBytes
    let largest = 0
    for (let i = 0; i < blockLength; i++) largest = Math.max(largest, Math.abs(values[from + i]))
    const scale = largest / 127
    bytes.writeUInt16LE(toHalf(scale), to)
    const factor = scale === 0 ? 0 : 1 / scale
    for (let i = 0; i < blockLength; i++) {
      bytes[to + 2 + i] = Math.round(values[from + i] * factor)
    }
  }
  return bytes
}

const floats = new Float32Array(1)
const bits = new Uint32Array(floats.buffer)

/** The nearest half-precision float, as its bits; for what is not negative. */
function toHalf(value) {
  floats[0] = value
  const exponent = (bits[0] >>> 23) - 112
  const fraction = bits[0] & 0x7fffff
  if (exponent >= 31) return 0x7c00
  if (exponent > 0) return (exponent << 10) + halfway(fraction, 13)
  return exponent < -10 ? 0 : halfway(fraction | 0x800000, 14 - exponent)
}

/** A shift that rounds to the nearest, ties to even. A carry into the exponent is right. */
function halfway(fraction, shift) {
  const kept = fraction >>> shift
  const rest = fraction - kept * 2 ** shift
  const half = 2 ** (shift - 1)
  return rest > half || (rest === half && (kept & 1) === 1) ? kept + 1 : kept
}

function bytesOf(values) {
  return Buffer.from(values.buffer, values.byteOffset, values.byteLength)
}

const countOf = ({ shape }) => shape.reduce((product, length) => product * length, 1)
const aligned = (size) => Math.ceil(size / alignment) * alignment

function sizeOf(tensor) {
  const count = countOf(tensor)
  if (tensor.type === 'Q8_0') return (count / blockLength) * blockBytes
  return count * (tensor.type === 'F32' ? 4 : 2)
}

/** Little-endian values, one after another. */
class ByteWriter {
  #parts = []

  bytes() {
    return Buffer.concat(this.#parts)
  }

  text(text) {
    this.#parts.push(Buffer.from(text))
    return this
  }

  string(text) {
    return this.uint64(Buffer.byteLength(text)).text(text)
  }

  byte(value) {
    this.#parts.push(Buffer.from([value]))
    return this
  }

  uint32(value) {
    return this.#number(4, (bytes) => bytes.writeUInt32LE(value))
  }

  uint64(value) {
    return this.#number(8, (bytes) => bytes.writeBigUInt64LE(BigInt(value)))
  }

  float32(value) {
    return this.#number(4, (bytes) => bytes.writeFloatLE(value))
  }

  #number(size, write) {
    const bytes = Buffer.alloc(size)
    write(bytes)
    this.#parts.push(bytes)
    return this
  }
}

/** A file that grows in large steps. */
class FileSink {
  #file
  #parts = []
  #waiting = 0
  #size = 0

  constructor(path) {
    this.#file = openSync(path, 'w')
  }

  write(bytes) {
    this.#parts.push(Buffer.from(bytes))
    this.#waiting += bytes.length
    this.#size += bytes.length
    if (this.#waiting >= bufferBytes) this.flush()
  }

  align() {
    this.write(Buffer.alloc(aligned(this.#size) - this.#size))
  }

  flush() {
    const all = Buffer.concat(this.#parts)
    for (let done = 0; done < all.length;) done += writeSync(this.#file, all, done)
    this.#parts = []
    this.#waiting = 0
  }

  close() {
    closeSync(this.#file)
  }
}
