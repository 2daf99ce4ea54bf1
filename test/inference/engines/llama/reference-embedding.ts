/**
 * Computes the hidden states of a model of the llama architecture from the tensors in its file, one
 * operation after the other. Slow, and independent of llama.cpp.
 */

import { readFileSync } from 'node:fs'
import { readGgufFileInfo } from 'node-llama-cpp'

type Vector = readonly number[]

interface Adapter {
  readonly path: string
  /** The factor of the product of its two matrices. */
  readonly scale: number
}

/** Returns the log probabilities of all tokens after these tokens. */
export async function computeLogprobs(
  path: string,
  tokens: Vector,
  adapter?: Adapter,
): Promise<Vector> {
  const { read } = await openModel(path)
  const states = await computeHiddenStates(path, tokens, adapter)
  const logits = multiply(read('token_embd.weight'), states.at(-1) ?? [])
  const max = Math.max(...logits)
  const total = logits.reduce((sum, logit) => sum + Math.exp(logit - max), 0)
  return logits.map((logit) => logit - max - Math.log(total))
}

/** Returns the normalized output of the last layer for each token. All tensors must be F32. */
export async function computeHiddenStates(
  path: string,
  tokens: Vector,
  adapter?: Adapter,
): Promise<Vector[]> {
  const model = await openModel(path, adapter)
  const { heads, layers, epsilon } = model
  const read = (name: string): Matrix => model.read(name)
  const embedding = read('token_embd.weight')
  const width = embedding.shape[0]
  const size = width / heads
  const rows = (name: string, input: Vector): Vector => multiply(read(`${name}.weight`), input)
  const norm = (name: string, input: Vector): Vector => {
    const scale = 1 / Math.sqrt(dot(input, input) / width + epsilon)
    const { values } = read(`${name}.weight`)
    return input.map((value, at) => value * scale * (values[at] ?? 0))
  }
  let states = tokens.map((token): Vector => {
    return Array.from(embedding.values.subarray(token * width, (token + 1) * width))
  })
  for (let layer = 0; layer < layers; layer++) {
    const name = (part: string): string => `blk.${layer}.${part}`
    const inputs = states.map((state) => norm(name('attn_norm'), state))
    const queries = inputs.map((one, at) => rotate(rows(name('attn_q'), one), at, size))
    const keys = inputs.map((one, at) => rotate(rows(name('attn_k'), one), at, size))
    const values = inputs.map((one) => rows(name('attn_v'), one))
    states = states.map((state, at) => {
      const mixed = attend(queries[at] ?? [], keys.slice(0, at + 1), values, size)
      const attended = add(state, rows(name('attn_output'), mixed))
      const input = norm(name('ffn_norm'), attended)
      const activated = rows(name('ffn_gate'), input).map((x) => x / (1 + Math.exp(-x)))
      const up = rows(name('ffn_up'), input)
      const inner = activated.map((value, index) => value * (up[index] ?? 0))
      return add(attended, rows(name('ffn_down'), inner))
    })
  }
  return states.map((state) => norm('output_norm', state))
}

interface Matrix {
  readonly shape: readonly [number, number]
  readonly values: Float32Array
}

async function openModel(path: string, adapter?: Adapter) {
  const { tensors, metadata } = await readTensors(path)
  if (adapter !== undefined) {
    const { tensors: parts } = await readTensors(adapter.path)
    for (const [name, matrix] of tensors) {
      const [a, b] = [parts.get(`${name}.lora_a`), parts.get(`${name}.lora_b`)]
      if (a !== undefined && b !== undefined) tensors.set(name, adapt(matrix, a, b, adapter.scale))
    }
  }
  return {
    heads: Number(metadata.attention?.head_count),
    layers: Number(metadata.block_count),
    epsilon: Number(metadata.attention?.layer_norm_rms_epsilon),
    read: (name: string): Matrix => {
      const found = tensors.get(name)
      if (found === undefined) throw new Error(`no tensor ${name}`)
      return found
    },
  }
}

/** Adds the scaled product of the matrices of an adapter. */
function adapt({ shape, values }: Matrix, a: Matrix, b: Matrix, scale: number): Matrix {
  const [columns, rank] = a.shape
  const adapted = values.map((value, at) => {
    const [row, column] = [Math.floor(at / columns), at % columns]
    let sum = 0
    for (let k = 0; k < rank; k++) {
      sum += (b.values[row * rank + k] ?? 0) * (a.values[k * columns + column] ?? 0)
    }
    return value + scale * sum
  })
  return { shape, values: adapted }
}

async function readTensors(path: string) {
  const { fullTensorInfo = [], architectureMetadata } = await readGgufFileInfo(path)
  const bytes = readFileSync(path)
  const tensors = new Map<string, Matrix>()
  for (const { name, dimensions, fileOffset } of fullTensorInfo) {
    const [columns = 0, count = 1] = dimensions.map(Number)
    const start = bytes.byteOffset + Number(fileOffset)
    const values = new Float32Array(bytes.buffer.slice(start, start + 4 * columns * count))
    tensors.set(name, { shape: [columns, count], values })
  }
  return { tensors, metadata: architectureMetadata }
}

const dot = (one: Vector, other: Vector): number =>
  one.reduce((sum, value, at) => sum + value * (other[at] ?? 0), 0)

const add = (one: Vector, other: Vector): Vector => one.map((value, at) => value + (other[at] ?? 0))

function multiply({ shape: [columns, rows], values }: Matrix, input: Vector): Vector {
  return Array.from({ length: rows }, (_, row) => {
    let sum = 0
    for (let at = 0; at < columns; at++) sum += (values[row * columns + at] ?? 0) * (input[at] ?? 0)
    return sum
  })
}

/** Rotates neighboring pairs of numbers of each head, by an angle that depends on the position. */
function rotate(vector: Vector, position: number, size: number): Vector {
  return vector.map((value, at) => {
    const pair = Math.floor((at % size) / 2)
    const angle = position / 10_000 ** ((2 * pair) / size)
    const isFirst = at % 2 === 0
    const partner = vector[isFirst ? at + 1 : at - 1] ?? 0
    return value * Math.cos(angle) + (isFirst ? -1 : 1) * partner * Math.sin(angle)
  })
}

function attend(query: Vector, keys: readonly Vector[], values: readonly Vector[], size: number) {
  const mixed: number[] = []
  for (let start = 0; start < query.length; start += size) {
    const part = (vector: Vector): Vector => vector.slice(start, start + size)
    const scores = keys.map((key) => dot(part(query), part(key)) / Math.sqrt(size))
    const max = Math.max(...scores)
    const weights = scores.map((score) => Math.exp(score - max))
    const total = weights.reduce((sum, weight) => sum + weight, 0)
    for (let at = start; at < start + size; at++) {
      mixed.push(weights.reduce((sum, w, i) => sum + (w / total) * (values[i]?.[at] ?? 0), 0))
    }
  }
  return mixed
}
