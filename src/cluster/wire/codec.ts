/** Encodes values as bytes, so that they arrive as `structuredClone` would deliver them. */

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

/** The methods that V8 calls for typed arrays. Node documents them, but its types omit them. */
const writeMethod = '_writeHostObject'
const readMethod = '_readHostObject'
const writeView = Reflect.get(DefaultSerializer.prototype, writeMethod) as (
  this: DefaultSerializer,
  view: ArrayBufferView,
) => void
const readView = Reflect.get(DefaultDeserializer.prototype, readMethod) as (
  this: DefaultDeserializer,
) => ArrayBufferView

/** Tags that mark which kind of object follows, for objects that V8 leaves to its caller. */
const viewFollows = 0
const exceptionFollows = 1

/**
 * Stands for a DOMException in a value that is sent, because V8 would write an ordinary `Error`. It
 * arrives as a DOMException. It extends a typed array, because V8 leaves these to its caller.
 */
export class SentException extends Uint8Array {
  static standingFor({ name, message, stack }: DOMException): SentException {
    return new SentException(encode([name, message, stack]))
  }
}

class PortableSerializer extends DefaultSerializer {
  /** A Buffer is written as a Uint8Array, as in a structured clone. */
  [writeMethod](view: ArrayBufferView): void {
    if (view instanceof SentException) {
      this.writeUint32(exceptionFollows)
      this.writeUint32(view.byteLength)
      this.writeRawBytes(view)
      return
    }
    const isBuffer = Buffer.isBuffer(view)
    const sent = isBuffer ? new Uint8Array(view.buffer, view.byteOffset, view.byteLength) : view
    this.writeUint32(viewFollows)
    writeView.call(this, sent)
  }
}

class PortableDeserializer extends DefaultDeserializer {
  /** Copies each view, because a view of the message's memory would expose and retain all of it. */
  [readMethod](): ArrayBufferView | DOMException {
    if (this.readUint32() === exceptionFollows) {
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
