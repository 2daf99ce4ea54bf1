/** Jinja itself, in Python. */

import { execFileSync, spawnSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'

const script = fileURLToPath(new URL('reference.py', import.meta.url))

/** A Python that has Jinja: Debian's package python3-jinja2, or any other. */
const python = ['/usr/bin/python3', 'python3'].find(
  (command) => spawnSync(command, ['-c', 'import jinja2']).status === 0,
)

export const hasJinja: boolean = python !== undefined

/** The time that templates get. */
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
