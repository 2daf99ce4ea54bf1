/** A model with random weights and a chat template, small enough to be written by any test. */

import { join } from 'node:path'
import { writeRandomAdapter, writeRandomModel } from '../../../scripts/random-model.mjs'

/** Its context, in tokens. */
export const tinyContext = 512

const sizes = { dim: 64, layers: 2, hidden: 128 }

const tinyTemplate = [
  '{{ bos_token }}',
  '{% if tools %}<|system|>tools {{ tools | tojson }}{{ eos_token }}{% endif %}',
  '{% for message in messages %}',
  "{{ '<|' + message.role + '|>' }}{{ message.content }}",
  '{% for call in message.tool_calls or [] %}{{ call.function | tojson }}{% endfor %}',
  '{{ eos_token }}{% endfor %}',
  '{% if add_generation_prompt %}<|assistant|>{% endif %}',
].join('')

/** Writes it into a folder and returns the path. With `pooling`, it is an embedding model. */
export function writeTinyModel(
  folder: string,
  template: string = tinyTemplate,
  pooling?: number,
): string {
  const path = join(folder, pooling === undefined ? 'tiny.gguf' : `tiny-embedding-${pooling}.gguf`)
  writeRandomModel(path, {
    ...sizes,
    heads: 4,
    vocab: 512,
    precision: 'F32',
    context: tinyContext,
    specialTokens: ['<|system|>', '<|user|>', '<|assistant|>', '<|tool|>'],
    template,
    ...(pooling === undefined ? {} : { pooling }),
  })
  return path
}

export const adapterRank = 4
export const adapterAlpha = 6

/** Writes a LoRA adapter for the model into a folder and returns the path. */
export function writeTinyAdapter(folder: string): string {
  const path = join(folder, 'adapter.gguf')
  writeRandomAdapter(path, { ...sizes, rank: adapterRank, alpha: adapterAlpha })
  return path
}
