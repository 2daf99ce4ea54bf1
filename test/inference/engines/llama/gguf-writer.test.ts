import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { readGgufFileInfo } from 'node-llama-cpp'
import { afterAll, describe, expect, it } from 'vitest'
import { type GgufTensor, writeGguf } from '../../../../src/inference/models/gguf-writer.ts'
import { writeTinyModel } from '../tiny-model.ts'

const folder = mkdtempSync(join(tmpdir(), 'tutti-gguf-'))
afterAll(() => rmSync(folder, { recursive: true, force: true }))

const values = Float32Array.from({ length: 64 }, (_, at) => Math.sin(at) * (at < 32 ? 1 : 0.01))
const tensor = (name: string, type: 'F32' | 'Q8_0'): GgufTensor => ({
  name,
  shape: [32, 2],
  type,
  chunks: () => [values.subarray(0, 32), values.subarray(32)],
})

describe('writeGguf', () => {
  it('writeGguf writes metadata and tensors that node-llama-cpp reads', async () => {
    const path = join(folder, 'a.gguf')
    writeGguf(path, {
      metadata: {
        'general.architecture': { type: 'string', value: 'llama' },
        'llama.context_length': { type: 'uint32', value: 77 },
        'tokenizer.ggml.tokens': { type: 'string', value: ['a', 'ü'] },
        'tokenizer.ggml.scores': { type: 'float32', value: [0.5, -2] },
        'tokenizer.ggml.token_type': { type: 'int32', value: [1, -1] },
        'tokenizer.ggml.add_bos_token': { type: 'bool', value: true },
      },
      tensors: [tensor('plain', 'F32'), tensor('small', 'Q8_0')],
    })
    const info = await readGgufFileInfo(path, { sourceType: 'filesystem' })
    expect(info.version).toBe(3)
    expect(info.metadata.llama).toMatchObject({ context_length: 77 })
    expect(info.metadata.tokenizer.ggml).toMatchObject({
      tokens: ['a', 'ü'],
      scores: [0.5, -2],
      token_type: [1, -1],
      add_bos_token: true,
    })
    const [plain, small] = info.fullTensorInfo ?? []
    expect(plain).toMatchObject({ name: 'plain', dimensions: [32, 2], ggmlType: 0 })
    expect(small).toMatchObject({ name: 'small', dimensions: [32, 2], ggmlType: 8 })
    const bytes = readFileSync(path)
    const at = Number(plain?.fileOffset)
    expect(at % 32).toBe(0)
    expect(Float32Array.from(values, (_, index) => bytes.readFloatLE(at + index * 4))).toEqual(
      values,
    )
    const read = dequantise(bytes, Number(small?.fileOffset))
    read.forEach((value, index) => {
      const step = (index < 32 ? 1 : 0.01) / 127
      expect(Math.abs(value - (values[index] ?? 0))).toBeLessThan(step * 0.6)
    })
  })

  it('writeGguf refuses a tensor with too few values', () => {
    const content = { metadata: {}, tensors: [{ ...tensor('x', 'F32'), shape: [32, 3] }] }
    expect(() => writeGguf(join(folder, 'b.gguf'), content)).toThrow(/expected 96 values, got 64/)
  })

  it('writeGguf writes the same bytes for the same model', () => {
    const first = readFileSync(writeTinyModel(folder))
    expect(readFileSync(writeTinyModel(folder)).equals(first)).toBe(true)
  })
})

/** Blocks of a half-precision scale and 32 signed bytes. */
function dequantise(bytes: Buffer, from: number): number[] {
  return [0, 1].flatMap((block) => {
    const at = from + block * 34
    const scale = fromHalf(bytes.readUInt16LE(at))
    return Array.from({ length: 32 }, (_, index) => bytes.readInt8(at + 2 + index) * scale)
  })
}

function fromHalf(bits: number): number {
  const exponent = (bits >>> 10) & 31
  const fraction = (bits & 1023) / 1024
  return exponent === 0 ? fraction * 2 ** -14 : (1 + fraction) * 2 ** (exponent - 15)
}
