/** The files of the page, which the build makes from `web/`. */

import { readdirSync } from 'node:fs'
import { extname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { BackendError, tryRead } from '../foundation/errors.ts'
import { readRegularFileSync } from '../foundation/regular-file.ts'

export interface PageFile {
  readonly type: string
  readonly text: string
}

export const startPage = 'page.html'

const types: Readonly<Record<string, string>> = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.svg': 'image/svg+xml',
}

/** The folder of the built page, beside this file. */
export const pageFolder = fileURLToPath(new URL('page', import.meta.url))

export function readPageFiles(folder: string): ReadonlyMap<string, PageFile> {
  const files = new Map<string, PageFile>()
  for (const name of tryRead(() => readdirSync(folder)) ?? []) {
    const type = types[extname(name)]
    if (type === undefined) continue
    files.set(name, { type, text: readRegularFileSync(join(folder, name)).bytes.toString('utf8') })
  }
  if (files.has(startPage)) return files
  throw new BackendError('the page of the dashboard is missing', {
    code: 'BundledError',
    hint: 'If a bundler put tutti into your program, leave `tutti` external.',
  })
}
