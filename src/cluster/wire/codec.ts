/** Values as bytes, such that they arrive as a structured clone between threads would give them. */

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

/** What V8 calls for typed arrays. Documented, but not in the types. */
const writeMethod = '_writeHostObject'
const readMethod = '_readHostObject'
const writeView = Reflect.get(DefaultSerializer.prototype, writeMethod) as (
  this: DefaultSerializer,
  view: ArrayBufferView,
) => void
const readView = Reflect.get(DefaultDeserializer.prototype, readMethod) as (
  this: DefaultDeserializer,
) => ArrayBufferView

class PortableSerializer extends DefaultSerializer {
  /** A Buffer arrives as the Uint8Array that a clone makes of it. */
  [writeMethod](view: ArrayBufferView): void {
    const isBuffer = Buffer.isBuffer(view)
    const sent = isBuffer ? new Uint8Array(view.buffer, view.byteOffset, view.byteLength) : view
    writeView.call(this, sent)
  }
}

class PortableDeserializer extends DefaultDeserializer {
  /** With memory of its own: a view of the message would show all of it, and keep it. */
  [readMethod](): ArrayBufferView {
    const view = readView.call(this)
    const { buffer, byteOffset, byteLength } = view
    const View = view.constructor as new (memory: ArrayBufferLike) => ArrayBufferView
    return new View(buffer.slice(byteOffset, byteOffset + byteLength))
  }
}
