/** The chat templates that llama.cpp's sources contain, which node-llama-cpp brings. */

import { execFileSync } from 'node:child_process'
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync } from 'node:fs'
import { renameSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

const root = new URL('../../../../../', import.meta.url)
const bundle = fileURLToPath(new URL('node_modules/node-llama-cpp/llama/gitRelease.bundle', root))
/** Ignored by git. */
const cache = fileURLToPath(new URL('.cache/', root))
const extension = '.jinja'

/** By file name, without its extension. Kept: to unpack the sources takes seconds of CPU time. */
export function readTemplates(): ReadonlyMap<string, string> {
  const { size, mtimeMs } = statSync(bundle)
  const kept = join(cache, `chat-templates-${size}-${Math.floor(mtimeMs)}.json`)
  if (!existsSync(kept)) {
    mkdirSync(cache, { recursive: true })
    // Another process may read it or write it, too: it is there as a whole or not at all.
    const whole = `${kept}.${process.pid}`
    writeFileSync(whole, JSON.stringify(unpackTemplates()))
    renameSync(whole, kept)
  }
  return new Map(JSON.parse(readFileSync(kept, 'utf8')) as [string, string][])
}

function unpackTemplates(): [string, string][] {
  const folder = mkdtempSync(join(tmpdir(), 'tutti-templates-'))
  const git = (...args: readonly string[]): void =>
    void execFileSync('git', ['-C', folder, ...args], { stdio: 'pipe' })
  try {
    git('clone', '-q', '--no-checkout', bundle, '.')
    git('checkout', '-q', 'HEAD', '--', 'models/templates')
    const files = join(folder, 'models', 'templates')
    const names = readdirSync(files).filter((name) => name.endsWith(extension))
    return names.map((name) => [
      name.slice(0, -extension.length),
      readFileSync(join(files, name), 'utf8'),
    ])
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}
