/** Compiles code as a user of the built package would, in a folder outside of it. */

import { execFile } from 'node:child_process'
import { cpSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { onTestFinished } from 'vitest'

const root = fileURLToPath(new URL('../', import.meta.url))
const compiler = join(root, 'node_modules/typescript/bin/tsc')

/** Rejects with what the compiler prints; gives the folder, with the result in `out`. */
export async function compileOutside(files: ReadonlyMap<string, string>): Promise<string> {
  const folder = createProject(files)
  try {
    await promisify(execFile)(process.execPath, [compiler, '-p', folder], { cwd: folder })
  } catch (error) {
    throw new Error((error as { stdout?: string }).stdout, { cause: error })
  }
  return folder
}

/** A folder outside of the package, where the package is installed. */
function createProject(files: ReadonlyMap<string, string>): string {
  const folder = mkdtempSync(join(tmpdir(), 'tutti-outside-'))
  onTestFinished(() => rmSync(folder, { recursive: true }))
  mkdirSync(join(folder, 'node_modules/@types'), { recursive: true })
  symlinkSync(root, join(folder, 'node_modules/tutti'), 'dir')
  for (const name of ['@types/node', 'undici-types', '@opentelemetry']) {
    symlinkSync(join(root, 'node_modules', name), join(folder, 'node_modules', name), 'dir')
  }
  cpSync(join(root, 'tsconfig.json'), join(folder, 'base.json'))
  const compilerOptions = { noEmit: false, declaration: true, outDir: 'out', skipLibCheck: false }
  const config = { extends: './base.json', compilerOptions, include: ['*.ts'] }
  writeFileSync(join(folder, 'tsconfig.json'), JSON.stringify(config))
  writeFileSync(join(folder, 'package.json'), '{ "type": "module" }')
  for (const [name, text] of files) writeFileSync(join(folder, name), text)
  return folder
}
