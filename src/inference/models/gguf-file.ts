/** Recognizes model files by their first bytes, and reads the numbers of their architecture. */

import { errnoOf, messageOf } from '../../foundation/errors.ts'
import { openRegularFile } from '../../foundation/regular-file.ts'

/** Whether the file begins with the GGUF magic number. Rejects if the file cannot be read. */
async function isGguf(path: string): Promise<boolean> {
  await using file = await openRegularFile(path)
  const { buffer } = await file.read(Buffer.alloc(4), 0, 4, 0)
  return buffer.toString('latin1') === 'GGUF'
}

/** Returns why a file is no model; `null` if it begins like one. */
export async function findModelProblem(path: string): Promise<string | null> {
  try {
    return (await isGguf(path)) ? null : `${path} is not a GGUF file`
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return `there is no file ${path}`
    return `${path} cannot be read: ${messageOf(error)}`
  }
}

export const modelFileHint =
  'give the path of a GGUF file (npx tutti model get stories15M fetches a small one, ' +
  'https://huggingface.co/models?library=gguf has real ones), or a name on the hub such as ' +
  'hf:user/model:Q4_K_M'

/** The number of bytes that are read. They contain the numbers of the architecture. */
const headBytes = 262_144
/** The sizes of values, by the number of their type. Texts (8) and lists (9) have no fixed size. */
const valueBytes = [1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8]

/**
 * Reads the integers that describe the architecture of a model, such as `block_count`. Of a list,
 * the largest number is returned. Reads only the beginning of the file.
 */
async function readGgufNumbers(path: string): Promise<ReadonlyMap<string, number>> {
  await using file = await openRegularFile(path)
  const { buffer, bytesRead } = await file.read(Buffer.alloc(headBytes), 0, headBytes, 0)
  return readNumbers(buffer.subarray(0, bytesRead))
}

function readNumbers(bytes: Buffer): ReadonlyMap<string, number> {
  const numbers = new Map<string, number>()
  let at = 24
  const readLength = (): number => Number(bytes.readBigUInt64LE((at += 8) - 8))
  const readText = (): string => {
    const length = readLength()
    return bytes.toString('utf8', at, (at += length))
  }
  const readValue = (type: number): number | null => {
    if (type === 8) return (void readText(), null)
    const size = valueBytes[type] ?? 0
    at += size
    return (type === 4 || type === 5) && at <= bytes.length ? bytes.readUInt32LE(at - size) : null
  }
  const count = Number(bytes.readBigUInt64LE(16))
  for (let entry = 0; entry < count && at + 16 < bytes.length; entry++) {
    const key = readText()
    // The vocabulary follows the architecture and is longer than what was read.
    if (key.startsWith('tokenizer.') || at + 16 > bytes.length) break
    const type = bytes.readUInt32LE((at += 4) - 4)
    const itemType = type === 9 ? bytes.readUInt32LE((at += 4) - 4) : type
    const length = type === 9 ? readLength() : 1
    let largest: number | null = null
    for (let item = 0; item < length && at + 8 <= bytes.length; item++) {
      const value = readValue(itemType)
      if (value !== null) largest = Math.max(largest ?? 0, value)
    }
    if (largest !== null) numbers.set(key.slice(key.indexOf('.') + 1), largest)
  }
  return numbers
}

/** llama.cpp keeps keys and values as 16-bit numbers. */
const bytesPerNumber = 2
/** A second context is created only if its keys and values take no more than this. */
export const maxSecondCacheBytes = 256 * 2 ** 20

/** Rejects if the file cannot be read. */
export async function estimateCacheBytes(
  modelPath: string,
  { sequences, maxLength }: { readonly sequences: number; readonly maxLength: number },
): Promise<number> {
  const numbers = await readGgufNumbers(modelPath)
  const get = (name: string, otherwise: number): number => numbers.get(name) ?? otherwise
  const heads = get('attention.head_count', 1)
  const size = get('embedding_length', 0) / heads
  const length = Math.min(maxLength, get('context_length', maxLength))
  const perToken =
    get('block_count', 0) *
    get('attention.head_count_kv', heads) *
    (get('attention.key_length', size) + get('attention.value_length', size))
  return length * sequences * perToken * bytesPerNumber
}
