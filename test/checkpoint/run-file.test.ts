import { mkdirSync, readdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished, vi } from 'vitest'
import { createHolder } from '../../src/checkpoint/lock.ts'
import {
  storeCommand,
  readRunCommand,
  SentRequest,
  omitSecretArguments,
} from '../../src/checkpoint/run-file.ts'
import { tempFolder } from './open-writer.ts'

describe('the command beside a record', () => {
  it('run: arguments that look like secrets are not kept, and others are', () => {
    const secrets = [
      'postgres://user:pw@host/db',
      'Authorization: Bearer abc',
      'sk-ant-api03-abcdefgh',
      '--passphrase=x',
      '--auth=x',
      'Authorization: Basic dXNlcjpwYXNzd29yZA==',
      'authorization: abc',
      'X-Api-Key: abc',
      'Cookie: session=abc',
      'Bearer abc',
      '--db=postgres://user:pw@host/db',
      'AKIAIOSFODNN7EXAMPLE',
      'xoxb-1234567890-abcdefgh',
      'glpat-abcdefghijklmnopqrst',
      'npm_abcdefghijklmnopqrstuvwxyz0123456789',
      'hf_abcdefghijklmnopqrstuvwxyzabcdefgh',
      'github_pat_11ABCDEFG0abcdefghijkl',
      'eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl',
      '--key=x',
    ]
    expect(omitSecretArguments(secrets)).toEqual(secrets.map(() => null))
    const options = [
      'pass',
      'auth',
      'passphrase',
      'pwd',
      'bearer',
      'pat',
      'cookie',
      'key',
      'api-token',
    ]
    const named = options.flatMap((name) => [`--${name}`, 'x'])
    expect(omitSecretArguments(named)).toEqual(named.map((one) => (one === 'x' ? null : one)))
    const plain = [
      '--author',
      'me',
      '--passes',
      '3',
      '-p',
      '8080',
      'https://host/a:b',
      'task-1',
      '--max-tokens',
      '512',
      '--max_tokens=512',
      '--tokenizer',
      'llama',
      '--token-file',
      'a/b',
      '--keys',
      'a',
      '--monkey=1',
      '--path',
      'x',
      '--pattern',
      'y',
      'sk-learning-rates',
      'Basic research',
      'the bearer of news',
      'key',
      'x',
      'a=b',
      'https://host:80/x@y',
      'hf_x',
    ]
    expect(omitSecretArguments(plain)).toEqual(plain)
  })

  it('run: a command of any wrong content is none', () => {
    const record = join(tempFolder(), 's.1.telemetry.jsonl')
    const good = { kind: 'script', file: '/a.mjs', arguments: ['x', null], folder: '/' } as const
    storeCommand(record, good)
    expect(readRunCommand([record])).toEqual(good)
    const wrong = [
      { ...good, arguments: [5] },
      { ...good, arguments: 'x' },
      { ...good, launch: 5 },
      { ...good, launch: { options: null, more: [] } },
      { ...good, launch: { options: {}, more: [5] } },
      { ...good, folder: null },
      [],
      null,
    ]
    for (const one of wrong) {
      writeFileSync(record.replace('.telemetry.jsonl', '.run'), JSON.stringify(one))
      expect(readRunCommand([record])).toBe(null)
    }
  })

  it('run: a command that cannot be kept leaves no draft', () => {
    const folder = tempFolder()
    const record = join(folder, `${'x'.repeat(300)}.1.telemetry.jsonl`)
    const command = { kind: 'script', file: '/a.mjs', arguments: [], folder: '/' } as const
    expect(() => storeCommand(record, command)).toThrow('Cannot write')
    expect(readdirSync(folder)).toEqual([])
  })
})

it('run: a command removes the folders that killed commands have left, and no others', () => {
  const parent = tempFolder()
  vi.stubEnv('TMPDIR', parent)
  onTestFinished(() => void vi.unstubAllEnvs())
  const running = createHolder(process.pid)
  const ended = { ...running, start_time: '1' }
  const folders: Readonly<Record<string, Readonly<Record<string, unknown>>>> = {
    'tutti-run-ended1': { command: ended },
    'tutti-run-ended2': { command: ended, script: ended },
    'tutti-run-begins': {},
    'tutti-run-runs01': { command: running },
    'tutti-run-script': { command: ended, script: running },
    'tutti-run-another': { command: ended },
  }
  for (const [name, holders] of Object.entries(folders)) {
    mkdirSync(join(parent, name))
    for (const [file, holder] of Object.entries(holders)) {
      writeFileSync(join(parent, name, `${file}.holder`), JSON.stringify(holder))
    }
  }
  const launch = { kind: 'tasks', file: 'a', arguments: [] } as never
  new SentRequest({ command: launch, keep_results: true, resume: null })[Symbol.dispose]()
  const kept = Object.keys(folders).filter((name) => !name.includes('ended'))
  expect(readdirSync(parent).toSorted()).toEqual(kept.toSorted())
})
