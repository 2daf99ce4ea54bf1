/** A minimal protobuf writer: a Perfetto trace needs four kinds of fields. Pure. */

const wire = { varint: 0, fixed64: 1, bytes: 2 } as const

function varint(value: bigint): number[] {
  const bytes: number[] = []
  let rest = value
  while (rest >= 128n) {
    bytes.push(Number(rest & 127n) | 128)
    rest >>= 7n
  }
  bytes.push(Number(rest))
  return bytes
}

const tag = (field: number, kind: number): number[] => varint(BigInt(field * 8 + kind))

/** Unsigned values only. */
export const varintField = (field: number, value: number | bigint): Uint8Array =>
  Uint8Array.from([...tag(field, wire.varint), ...varint(BigInt(value))])

export function doubleField(field: number, value: number): Uint8Array {
  const bytes = Buffer.alloc(8)
  bytes.writeDoubleLE(value)
  return Buffer.concat([Uint8Array.from(tag(field, wire.fixed64)), bytes])
}

/** Also for nested messages. */
export const bytesField = (field: number, bytes: Uint8Array): Uint8Array =>
  Buffer.concat([
    Uint8Array.from([...tag(field, wire.bytes), ...varint(BigInt(bytes.length))]),
    bytes,
  ])

export const textField = (field: number, text: string): Uint8Array =>
  bytesField(field, Buffer.from(text))

export const message = (fields: readonly Uint8Array[]): Uint8Array => Buffer.concat(fields)
