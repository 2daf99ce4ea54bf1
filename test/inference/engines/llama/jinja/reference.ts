/** Jinja itself, in Python, and the chat templates that llama.cpp's sources contain. */

import { execFileSync, spawnSync } from 'node:child_process'
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

const script = fileURLToPath(new URL('reference.py', import.meta.url))
const bundle = fileURLToPath(
  new URL('../../../../../node_modules/node-llama-cpp/llama/gitRelease.bundle', import.meta.url),
)

/** A Python that has Jinja: Debian's package python3-jinja2, or any other. */
const python = ['/usr/bin/python3', 'python3'].find(
  (command) => spawnSync(command, ['-c', 'import jinja2']).status === 0,
)

export const hasJinja: boolean = python !== undefined

/** The time that templates are told. */
export const now = new Date(2026, 2, 4, 5, 6, 7)

export type Outcome =
  | { readonly text: string }
  | { readonly error: string; readonly isRaised: boolean }

export function renderWithJinja(renders: readonly (readonly [string, object])[]): Outcome[] {
  const input = JSON.stringify({ now: [2026, 3, 4, 5, 6, 7], renders })
  const maxBuffer = 256 * 1024 * 1024
  const text = execFileSync(python ?? '', [script], { input, encoding: 'utf8', maxBuffer })
  return JSON.parse(text) as Outcome[]
}

/** By file name. */
export function readTemplates(): ReadonlyMap<string, string> {
  const folder = mkdtempSync(join(tmpdir(), 'tutti-templates-'))
  const git = (...args: readonly string[]): void =>
    void execFileSync('git', ['-C', folder, ...args], { stdio: 'pipe' })
  try {
    git('clone', '-q', '--no-checkout', bundle, '.')
    git('checkout', '-q', 'HEAD', '--', 'models/templates')
    const files = join(folder, 'models', 'templates')
    const names = readdirSync(files).filter((name) => name.endsWith('.jinja'))
    return new Map(names.map((name) => [name, readFileSync(join(files, name), 'utf8')]))
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}
