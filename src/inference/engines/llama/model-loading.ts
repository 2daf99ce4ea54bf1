/** What a model is loaded from and with: its file, the check of it, and its threads. */

import { existsSync } from 'node:fs'
import { open } from 'node:fs/promises'
import { homedir } from 'node:os'
import { join } from 'node:path'
import { messageOf } from '../../../foundation/errors.ts'

/** A model that cannot be loaded, and what to do about it. */
export class LoadError extends Error {
  readonly hint: string

  constructor(message: string, hint: string, cause?: unknown) {
    super(message, { cause })
    this.hint = hint
  }
}

export type ModelSource =
  | { readonly kind: 'file'; readonly path: string }
  | { readonly kind: 'hub'; readonly uri: string }

/**
 * What begins with `hf:` or `https:` is on the hub, and so are `user/model` and `user/model:quant`
 * unless that path exists here. `~/` is the home folder.
 */
export function toModelSource(name: string): ModelSource {
  if (/^(?:hf|https?):/.test(name)) return { kind: 'hub', uri: name }
  if (name.startsWith('~/')) return { kind: 'file', path: join(homedir(), name.slice(2)) }
  if (existsSync(name)) return { kind: 'file', path: name }
  const isHubName = /^[\w-][\w.-]*\/[\w.-]+(?::[\w.-]+)?$/.test(name) && !name.endsWith('.gguf')
  return isHubName ? { kind: 'hub', uri: `hf:${name}` } : { kind: 'file', path: name }
}

/** llama.cpp aborts the process for some files that are no models. */
export async function expectGguf(path: string): Promise<void> {
  const hint = 'give the path of a GGUF file, or a name on the hub such as hf:user/model:Q4_K_M'
  try {
    await using file = await open(path)
    const { buffer } = await file.read(Buffer.alloc(4), 0, 4, 0)
    if (buffer.toString('latin1') === 'GGUF') return
  } catch (error) {
    throw new LoadError(`the model cannot be read: ${messageOf(error)}`, hint, error)
  }
  throw new LoadError(`${path} is not a GGUF file`, hint)
}

export interface CoreFacts {
  /** Cores that this process may use. */
  readonly available: number
  readonly installed: number
  /** Mean number of busy cores of the whole machine in the last minute. */
  readonly load: number
}

/**
 * The threads of a model unless they are configured: with more than there are free cores, llama.cpp
 * becomes very slow. At least one. The load of the machine does not count for a process that is
 * limited to some of its cores.
 */
export function freeCores({ available, installed, load }: CoreFacts): number {
  const free = available < installed ? available : available - Math.round(load)
  return Math.max(1, free)
}
