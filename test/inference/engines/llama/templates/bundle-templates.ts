/** The chat templates that llama.cpp's sources contain, which node-llama-cpp brings. */

import { execFileSync } from 'node:child_process'
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

const bundle = fileURLToPath(
  new URL('../../../../../node_modules/node-llama-cpp/llama/gitRelease.bundle', import.meta.url),
)
const extension = '.jinja'

/** By file name, without its extension. */
export function readTemplates(): ReadonlyMap<string, string> {
  const folder = mkdtempSync(join(tmpdir(), 'tutti-templates-'))
  const git = (...args: readonly string[]): void =>
    void execFileSync('git', ['-C', folder, ...args], { stdio: 'pipe' })
  try {
    git('clone', '-q', '--no-checkout', bundle, '.')
    git('checkout', '-q', 'HEAD', '--', 'models/templates')
    const files = join(folder, 'models', 'templates')
    const names = readdirSync(files).filter((name) => name.endsWith(extension))
    return new Map(
      names.map((name) => [
        name.slice(0, -extension.length),
        readFileSync(join(files, name), 'utf8'),
      ]),
    )
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}
