/**
 * llama.cpp's own server as a child process. It is built once from the sources in node-llama-cpp,
 * with git, cmake and a compiler, into `.cache`; on two cores that takes about 11 minutes.
 */

import { type ChildProcess, execFileSync, spawn } from 'node:child_process'
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { sleep, systemClock } from '../src/foundation/clock.ts'
import { findFreePort } from '../src/runtime/server/guarded-server.ts'

const root = fileURLToPath(new URL('../', import.meta.url))
const cache = join(root, '.cache', 'llama.cpp')

/** Builds the server unless it exists; returns the path of the program. */
export function buildLlamaServer(): string {
  const program = join(cache, 'build', 'bin', 'llama-server')
  if (existsSync(program)) return program
  const [source, build] = [join(cache, 'source'), join(cache, 'build')]
  const bundle = join(root, 'node_modules', 'node-llama-cpp', 'llama', 'gitRelease.bundle')
  const call = (command: string, args: readonly string[]): void =>
    void execFileSync(command, args, { stdio: ['ignore', 2, 2] })
  mkdirSync(cache, { recursive: true })
  process.stderr.write('building llama.cpp’s server\n')
  if (!existsSync(source)) call('git', ['clone', '-q', bundle, source])
  keepTileSettings(join(source, 'ggml', 'src', 'ggml-cpu', 'amx', 'mmq.cpp'))
  const options = ['TESTS=OFF', 'EXAMPLES=OFF', 'APP=OFF', 'UI=OFF'].map(
    (it) => `-DLLAMA_BUILD_${it}`,
  )
  const others = [
    '-DLLAMA_USE_PREBUILT_UI=OFF',
    '-DLLAMA_OPENSSL=OFF',
    '-DCMAKE_BUILD_TYPE=Release',
  ]
  call('cmake', ['-S', source, '-B', build, ...options, ...others])
  call('cmake', [
    '--build',
    build,
    '--target',
    'llama-server',
    '-j',
    String(availableParallelism()),
  ])
  return program
}

/** Without this, GCC 12 removes the settings of AMX's tiles, and the server ends with SIGILL. */
function keepTileSettings(path: string): void {
  const load = '\n    _tile_loadconfig(&tc);'
  const barrier = '\n    __asm__ volatile("" : : "r"(&tc) : "memory");'
  const text = readFileSync(path, 'utf8')
  if (!text.includes(barrier)) writeFileSync(path, text.replace(load, `${barrier}${load}`))
}

export interface LlamaServer {
  readonly child: ChildProcess
  readonly port: number
  readonly origin: string
}

/**
 * Starts the server with these options and flags on a free port. Resolves when it is healthy. It
 * ends with this process.
 */
export async function startLlamaServer(
  options: Readonly<Record<string, string | number>>,
  flags: readonly string[] = [],
): Promise<LlamaServer> {
  const host = '127.0.0.1'
  const port = await findFreePort(host)
  const all = { ...options, host, port }
  const args = Object.entries(all).flatMap(([name, value]) => [`--${name}`, String(value)])
  const child = spawn(buildLlamaServer(), [...args, ...flags, '--log-disable'], { stdio: 'ignore' })
  process.once('exit', () => child.kill())
  const origin = `http://${host}:${port}`
  while (!(await isHealthy(origin))) {
    const end = child.exitCode ?? child.signalCode
    if (end !== null) throw new Error(`llama-server ended with ${end}`)
    await sleep(systemClock, 100)
  }
  return { child, port, origin }
}

async function isHealthy(origin: string): Promise<boolean> {
  try {
    const response = await fetch(`${origin}/health`)
    await response.body?.cancel()
    return response.ok
  } catch {
    return false
  }
}
