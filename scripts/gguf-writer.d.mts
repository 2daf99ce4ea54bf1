/** What a GGUF file is made of. */
export interface GgufContent {
  /** In the order in which it is written. */
  readonly metadata: Readonly<Record<string, GgufValue>>
  readonly tensors: readonly GgufTensor[]
}

/** An array has items of the type. */
export interface GgufValue {
  readonly type: 'uint32' | 'int32' | 'float32' | 'bool' | 'string'
  readonly value: GgufItem | readonly GgufItem[]
}

export type GgufItem = number | boolean | string

export interface GgufTensor {
  readonly name: string
  /** The length of a row first. */
  readonly shape: readonly number[]
  readonly type: 'F32' | 'F16' | 'Q8_0'
  /** All values, row by row. A chunk is copied before the next is asked for. */
  chunks(): Iterable<Float32Array>
}

export function writeGguf(path: string, content: GgufContent): void
