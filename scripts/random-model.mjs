/**
 * Writes llama models with random weights: their output is meaningless, but they are as fast as
 * real models of their size. The same options give the same file. For tests and benchmarks.
 */

import { writeGguf } from '../src/inference/models/gguf-writer.ts'
import {
  toByteToken,
  createLlamaMetadata,
  listLlamaTensors,
  tokenType,
  createVocabularyMetadata,
} from '../src/inference/models/story-model.ts'

const chunkLength = 1 << 16
const firstTokens = ['<unk>', '<s>', '</s>']
const letters = Array.from('abcdefghijklmnopqrstuvwxyz')

/**
 * @param {string} path
 * @param {import('./random-model.d.mts').RandomModelOptions} options
 */
export function writeRandomModel(path, options) {
  const { dim, layers, heads, hidden, vocab, template, precision } = options
  const { context = 2048, specialTokens = [], pooling } = options
  const sizes = { dim, layers, heads, hidden, vocab, kvHeads: heads, context }
  const tokens = createTokens(vocab, specialTokens)
  const random = createRandom(1)
  writeGguf(path, {
    metadata: {
      ...createLlamaMetadata(sizes, 'random', precision),
      ...createVocabularyMetadata({ tokens, bos: 1, eos: 2, template }),
      ...(pooling === undefined
        ? {}
        : { 'llama.pooling_type': { type: 'uint32', value: pooling } }),
    },
    tensors: listLlamaTensors(sizes).map(({ name, shape, isNorm }) => ({
      name,
      shape,
      type: isNorm ? 'F32' : precision,
      chunks: () => (isNorm ? [new Float32Array(dim).fill(1)] : randomChunks(shape, random)),
    })),
  })
}

/**
 * Writes a LoRA adapter with random weights for a model of these sizes.
 *
 * @param {string} path
 * @param {import('./random-model.d.mts').RandomAdapterOptions} options
 */
export function writeRandomAdapter(path, { dim, layers, hidden, rank, alpha }) {
  const random = createRandom(2)
  const toTensors = (name, columns, rows) =>
    [
      { part: 'lora_a', shape: [columns, rank] },
      { part: 'lora_b', shape: [rank, rows] },
    ].map(({ part, shape }) => ({
      name: `${name}.weight.${part}`,
      shape,
      type: 'F32',
      chunks: () => randomChunks(shape, random),
    }))
  writeGguf(path, {
    metadata: {
      'general.architecture': { type: 'string', value: 'llama' },
      'general.type': { type: 'string', value: 'adapter' },
      'adapter.type': { type: 'string', value: 'lora' },
      'adapter.lora.alpha': { type: 'float32', value: alpha },
    },
    tensors: Array.from({ length: layers }, (_, layer) => [
      ...toTensors(`blk.${layer}.attn_q`, dim, dim),
      ...toTensors(`blk.${layer}.ffn_down`, hidden, dim),
    ]).flat(),
  })
}

/** Tokens that can spell every text: bytes, characters, and some longer pieces. */
function createTokens(vocab, specialTokens) {
  const tokens = [...firstTokens, ...specialTokens].map((text, id) => ({
    text,
    score: 0,
    type: id === 0 ? tokenType.unknown : tokenType.control,
  }))
  for (let byte = 0; byte < 256; byte++) {
    tokens.push({ text: toByteToken(byte), score: 0, type: tokenType.byte })
  }
  const pieces = textPieces()
  while (tokens.length < vocab) {
    const { value } = pieces.next()
    tokens.push({ text: value, score: -tokens.length, type: tokenType.normal })
  }
  if (tokens.length > vocab) throw new RangeError(`vocab: expected at least ${tokens.length}`)
  return tokens
}

/** The ASCII characters, then all words of two letters, of three, and so on. */
function* textPieces() {
  for (let code = 33; code < 127; code++) yield String.fromCharCode(code)
  yield '▁'
  for (let words = letters; ;) {
    words = words.flatMap((word) => letters.map((letter) => word + letter))
    yield* words
  }
}

/** Uniform values around zero; their range keeps the sums of a row near one. */
function* randomChunks([rowLength, rows], random) {
  const spread = Math.sqrt(12 / rowLength)
  const chunk = new Float32Array(chunkLength)
  for (let left = rowLength * rows; left > 0;) {
    const length = Math.min(left, chunkLength)
    for (let at = 0; at < length; at++) chunk[at] = (random() - 0.5) * spread
    yield chunk.subarray(0, length)
    left -= length
  }
}

/** A linear congruential generator: fast, and good enough for weights. */
function createRandom(seed) {
  let state = seed
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) | 0
    return (state >>> 0) / 2 ** 32
  }
}
