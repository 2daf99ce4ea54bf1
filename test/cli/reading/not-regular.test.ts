import { execFileSync } from 'node:child_process'
import { mkdirSync, readdirSync, symlinkSync, writeFileSync } from 'node:fs'
import { basename, join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { storeCommand } from '../../../src/checkpoint/run-file.ts'
import { makeSocket } from '../../make-socket.ts'
import { type CommandEnd, runHere } from '../run-command.ts'
import { recordFolder, writeRecord } from './record-file.ts'

const run = { nodes: [{ nodeId: 'n1', cores: 1 }], tasks: [{ uid: 'a', start: 0, end: 1 }], end: 2 }

interface TestFolder {
  readonly folder: string
  readonly at: (name: string) => string
  readonly tutti: (...args: readonly string[]) => Promise<CommandEnd>
}

function newFolder(): TestFolder {
  const created = recordFolder()
  const { path: folder } = created
  onTestFinished(() => created.remove())
  return {
    folder,
    at: (name) => join(folder, name),
    tutti: (...args) => runHere(folder, args),
  }
}

const makePipe = (path: string): void => void execFileSync('mkfifo', ['-m', '600', path])
const kinds: readonly [string, (path: string) => void][] = [
  ['a pipe', makePipe],
  ['a device', (path) => symlinkSync('/dev/zero', path)],
  ['a folder', (path) => mkdirSync(path)],
  ['a socket', makeSocket],
]
const linkToItself: (typeof kinds)[number] = [
  'a link to itself',
  (path) => symlinkSync(basename(path), path),
]

const commands = [
  ['status', []],
  ['tasks', []],
  ['failures', []],
  ['tail', []],
  ['report', []],
  ['export', ['--format', 'csv']],
  ['journal verify', []],
  ['journal repair', []],
  ['journal compress', []],
  ['resume', []],
] as const

describe('what is not a regular file', () => {
  it.each(commands)('row 121: %s refuses a pipe in place of a record', async (command, options) => {
    const { folder, at, tutti } = newFolder()
    makePipe(at('s-1.1790000000.telemetry.jsonl'))
    makePipe(at('x'))
    for (const name of ['s-1.1790000000.telemetry.jsonl', 'x']) {
      const { code, stdout, stderr } = await tutti(...command.split(' '), name, ...options)
      expect([code, stdout]).toEqual([2, ''])
      expect(stderr).toMatch(
        new RegExp(`${name}: ENOTSUP: expected a regular file, got a pipe\n {2}hint: Name a `),
      )
    }
    expect(readdirSync(folder)).toHaveLength(2)
  })

  it.each(commands)('row 121: %s refuses a link to itself, or a socket', async (name, options) => {
    const { at, tutti } = newFolder()
    symlinkSync('x.jsonl', at('x.jsonl'))
    makeSocket(at('socket'))
    const link = await tutti(...name.split(' '), 'x.jsonl', ...options)
    expect([link.code, link.stdout]).toEqual([2, ''])
    expect(link.stderr).toMatch(/x\.jsonl: ELOOP: .*\n {2}hint: Check the path: a symbolic link/)
    const socket = await tutti(...name.split(' '), 'socket', ...options)
    expect([socket.code, socket.stdout]).toEqual([2, ''])
    expect(socket.stderr).toMatch(
      /ENOTSUP: expected a regular file, got a socket\n {2}hint: Name a /,
    )
  })

  it('row 121: a link to itself of any name hides no record of its folder', async () => {
    const { folder, at, tutti } = newFolder()
    writeRecord(folder, run)
    for (const name of ['x', 'x.jsonl', 'x.telemetry.jsonl']) symlinkSync(name, at(name))
    for (const command of ['status', 'tasks', 'report', 'tail', 'failures']) {
      expect([command, await tutti(command, '.')]).toMatchObject([command, { code: 0, stderr: '' }])
    }
  })

  it.each([...kinds, linkToItself])(
    'row 121: %s with the name of a record is passed over',
    async (_, create) => {
      const { folder, at, tutti } = newFolder()
      writeRecord(folder, run)
      create(at('s-1.1790000001.telemetry.jsonl'))
      create(at('s-9.1790000002.telemetry.jsonl'))
      symlinkSync('s-9.1790000002.telemetry.jsonl', at('s-8.1790000003.telemetry.jsonl'))
      for (const what of ['.', 'latest', 's-1']) {
        const { code, stdout, stderr } = await tutti('--json', 'status', what)
        expect([code, stderr]).toEqual([0, ''])
        expect(JSON.parse(stdout)).toMatchObject({ session_id: 's-1', tasks: { completed: 1 } })
      }
      const none = await tutti('status', 's-9')
      expect([none.code, none.stderr]).toEqual([
        2,
        expect.stringContaining('Sessions with records here: s-1.'),
      ])
    },
  )

  it.each(kinds)('row 121: %s in place of `.view` or `.run` is no such file', async (_, create) => {
    const { folder, at, tutti } = newFolder()
    const record = writeRecord(folder, run)
    create(`${record}.view`)
    create(at('s-1.1790000000.run'))
    const read = await tutti('--json', 'status', '.')
    expect([read.code, read.stderr]).toEqual([0, ''])
    expect(JSON.parse(read.stdout)).toMatchObject({ tasks: { completed: 1 } })
    expect(await tutti('report', '.')).toMatchObject({ code: 0 })
    const resumed = await tutti('resume', '.')
    expect(resumed.code).toBe(2)
    expect(resumed.stderr).toContain('Cannot read the command of the run')
    expect(resumed.stderr).toContain('expected a regular file')
  })

  it('row 121: a pipe in place of the draft of `.run` is replaced', () => {
    const { at } = newFolder()
    makePipe(at(`.${process.pid}.run.tmp`))
    const command = { kind: 'script', file: '/a.ts', arguments: [], folder: '/' } as const
    storeCommand(at('s-1.1790000000.telemetry.jsonl'), command)
    expect(readdirSync(at('.'))).toEqual(['s-1.1790000000.run'])
  })

  const config = 'required: { model_name: tiny }\nengine: { kind: echo }\n'
  const nowhere = ['--connect', 'nats://127.0.0.1:1']
  const files: readonly (readonly [string, readonly string[]])[] = [
    ['a task file', ['run', 'pipe.jsonl']],
    ['a script', ['run', 'pipe.mjs']],
    ['a script of launch', ['launch', 'pipe.mjs']],
    ['a list of hosts', ['launch', '--check', '--hosts', 'pipe.txt']],
    ['a configuration', ['config', 'check', 'pipe.yaml']],
    ['a configuration of serve', ['serve', '--config', 'pipe.yaml']],
    ['a key file', ['serve', '--config', 'config.yaml', '--api-key-file', 'pipe.txt']],
    ['a token file of a configuration', ['config', 'check', 'token.yaml']],
    ['a model', ['config', 'check', 'model.yaml']],
    ['a token file', ['agents', ...nowhere, '--token-file', 'pipe.txt']],
    ['a certificate', ['agents', ...nowhere, '--token-file', 'token.txt', '--tls-ca', 'pipe.txt']],
  ]
  it.each(files)('row 121: a pipe in place of %s is refused by name', async (_, args) => {
    const { at, tutti } = newFolder()
    for (const ending of ['jsonl', 'mjs', 'yaml', 'txt', 'gguf']) makePipe(at(`pipe.${ending}`))
    writeFileSync(at('config.yaml'), config)
    writeFileSync(at('token.yaml'), 'required: { model_name: org/m, token_file: pipe.txt }\n')
    const model = `required: { model_name: ${at('pipe.gguf')} }\nengine: { kind: llama }\n`
    writeFileSync(at('model.yaml'), model)
    writeFileSync(at('token.txt'), 'a-token-of-this-test', { mode: 0o600 })
    const { code, stdout, stderr } = await tutti(...args)
    expect([code, stdout]).toEqual([2, ''])
    expect(stderr).toMatch(/(?:pipe\.\w+|token_file).*regular file/)
  })
})
