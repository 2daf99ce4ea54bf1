/** The API keys of a server: one without a name, and those of a file. */

import { hash } from 'node:crypto'
import type { Clock } from '../../../foundation/clock.ts'
import { messageOf, ValueError } from '../../../foundation/errors.ts'
import type { Log } from '../../../foundation/log.ts'
import { registerSecret } from '../../../foundation/secrets.ts'
import type { KeyRing } from '../../../runtime/http/request-guard.ts'
import { WatchedFiles } from '../../../runtime/http/watched-files.ts'
import { ClientKey, type KeyLimits, unlimited } from './client-key.ts'

interface ApiKeysOptions {
  /** A key without a name and without limits. */
  readonly apiKey: string | null
  /** A file with a line for each further key: `name key [rpm=N] [tpm=N]`. */
  readonly file: string | null
  readonly clock: Clock
  readonly log: Log
}

export class ApiKeys implements KeyRing {
  readonly #options: ApiKeysOptions
  readonly #unnamed: ReadonlyMap<string, ClientKey>
  /** The keys of the file, by their hashes. */
  #namedKeys: ReadonlyMap<string, ClientKey> = new Map()
  #watchedFile: WatchedFiles<readonly KeyLine[]> | null = null

  constructor(options: ApiKeysOptions) {
    const { apiKey, clock } = options
    this.#options = options
    const unnamed = (key: string) => [toHash(key), new ClientKey(null, unlimited, clock)] as const
    this.#unnamed = new Map(apiKey === null ? [] : [unnamed(apiKey)])
    if (apiKey !== null) registerSecret(apiKey, 'apiKey')
  }

  /** Reads the file, and reads it again when it changes. Rejects with a `ValueError`. */
  async open(): Promise<void> {
    const { file, clock, log } = this.#options
    if (file === null) return
    const onError = (error: unknown): void => {
      const text = `the changed file of keys cannot be used: ${messageOf(error)}`
      log.warn('ApiKeysUnusable', `${text}. The keys that it had before stay valid.`)
    }
    const parse = ([bytes = Buffer.alloc(0)]: readonly Buffer[]): readonly KeyLine[] => {
      try {
        return parseKeyFile(String(bytes))
      } catch (error) {
        throw new ValueError(`${file}: ${messageOf(error)}`)
      }
    }
    const onChange = (lines: readonly KeyLine[]): void => this.#useLines(lines)
    const watched = WatchedFiles.open({ files: [file], parse, onChange, onError, clock })
    this.#watchedFile = await watched.catch((error: unknown) => {
      const message = `apiKeysFile (--api-keys): ${messageOf(error)}`
      throw new ValueError(message, { field: 'apiKeysFile' })
    })
    this.#useLines(this.#watchedFile.value)
  }

  /** Finds a key by its bytes. Looks up a hash, so that the time reveals nothing about keys. */
  find(given: Buffer): ClientKey | undefined {
    const hashed = hash('sha256', given)
    return this.#namedKeys.get(hashed) ?? this.#unnamed.get(hashed)
  }

  list(): readonly ClientKey[] {
    return [...this.#unnamed.values(), ...this.#namedKeys.values()]
  }

  close(): void {
    this.#watchedFile?.close()
  }

  /** A name keeps its counts, even if it has a new key or new limits. */
  #useLines(lines: readonly KeyLine[]): void {
    const before = new Map([...this.#namedKeys.values()].map((key) => [key.name, key]))
    const entries = lines.map(({ name, key, limits }) => {
      registerSecret(key)
      const named = before.get(name) ?? new ClientKey(name, limits, this.#options.clock)
      named.limits = limits
      return [toHash(key), named] as const
    })
    this.#namedKeys = new Map(entries)
  }
}

const toHash = (key: string): string => hash('sha256', key)

interface KeyLine {
  readonly name: string
  readonly key: string
  readonly limits: KeyLimits
}

const linePattern = /^([A-Za-z\d][\w.@-]{0,63})\s+([\x21-\x7e]+)((?:\s+[rt]pm=[1-9]\d{0,11})*)$/

/** Parses the file. Errors quote no text of the file, because any part of it may be a key. */
export function parseKeyFile(text: string): readonly KeyLine[] {
  const lines: KeyLine[] = []
  const names = new Set<string>()
  const keys = new Set<string>()
  for (const [at, raw] of text
    .replace(/^\ufeff/, '')
    .split('\n')
    .entries()) {
    const line = raw.trim()
    if (line === '' || line.startsWith('#')) continue
    const [, name, key, rest = ''] = linePattern.exec(line) ?? []
    if (name === undefined || key === undefined) {
      throw lineError(at, 'expected a name, a key, and optionally rpm=N and tpm=N')
    }
    const limits = { requests: readLimit('rpm', rest, at), tokens: readLimit('tpm', rest, at) }
    if (names.has(name)) throw lineError(at, 'the name is used twice')
    if (keys.has(key)) throw lineError(at, 'the key is used twice')
    names.add(name)
    keys.add(key)
    lines.push({ name, key, limits })
  }
  if (lines.length === 0) throw new ValueError('it has no keys')
  return lines
}

function readLimit(name: string, text: string, at: number): number | null {
  const given = [...text.matchAll(new RegExp(`${name}=(\\d+)`, 'g'))]
  if (given.length > 1) throw lineError(at, `${name} is given twice`)
  return given[0] === undefined ? null : Number(given[0][1])
}

const lineError = (at: number, problem: string): ValueError =>
  new ValueError(`line ${at + 1}: ${problem}`)
