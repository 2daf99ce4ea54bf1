/** Encodes values as bytes. Decoding them gives the same values as `structuredClone`. */

import { DefaultDeserializer, DefaultSerializer } from 'node:v8'

export function encode(value: unknown): Buffer {
  const serializer = new PortableSerializer()
  serializer.writeHeader()
  serializer.writeValue(value)
  return serializer.releaseBuffer()
}

export function decode(data: Uint8Array): unknown {
  const deserializer = new PortableDeserializer(data)
  deserializer.readHeader()
  return deserializer.readValue()
}

/** V8 calls these methods for typed arrays. Node documents them, but its types omit them. */
const writeMethod = '_writeHostObject'
const readMethod = '_readHostObject'
const writeView = Reflect.get(DefaultSerializer.prototype, writeMethod) as (
  this: DefaultSerializer,
  view: ArrayBufferView,
) => void
const readView = Reflect.get(DefaultDeserializer.prototype, readMethod) as (
  this: DefaultDeserializer,
) => ArrayBufferView

/**
 * Tags in front of the objects that V8 leaves to this serializer. A tag names the kind of its
 * object.
 */
const viewTag = 0
const exceptionTag = 1

/**
 * Replaces a DOMException, which V8 would write as an ordinary `Error`. Extends a typed array,
 * because V8 lets the serializer write typed arrays.
 */
export class SentException extends Uint8Array {
  static fromException({ name, message, stack }: DOMException): SentException {
    return new SentException(encode([name, message, stack]))
  }
}

class PortableSerializer extends DefaultSerializer {
  /** Writes a typed array. A Buffer is written as a Uint8Array, as in a structured clone. */
  [writeMethod](view: ArrayBufferView): void {
    if (view instanceof SentException) {
      this.writeUint32(exceptionTag)
      this.writeUint32(view.byteLength)
      this.writeRawBytes(view)
      return
    }
    const isBuffer = Buffer.isBuffer(view)
    const sent = isBuffer ? new Uint8Array(view.buffer, view.byteOffset, view.byteLength) : view
    this.writeUint32(viewTag)
    writeView.call(this, sent)
  }
}

class PortableDeserializer extends DefaultDeserializer {
  /** Copies the array, because a view would expose and retain the memory of the message. */
  [readMethod](): ArrayBufferView | DOMException {
    if (this.readUint32() === exceptionTag) {
      return toException(this.readRawBytes(this.readUint32()))
    }
    const view = readView.call(this)
    const { buffer, byteOffset, byteLength } = view
    const View = view.constructor as new (memory: ArrayBufferLike) => ArrayBufferView
    return new View(buffer.slice(byteOffset, byteOffset + byteLength))
  }
}

function toException(data: Uint8Array): DOMException {
  const [name, message, stack] = decode(data) as [string, string, string]
  const exception = new DOMException(message, name)
  Object.defineProperty(exception, 'stack', { value: stack, configurable: true, writable: true })
  return exception
}
