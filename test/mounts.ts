/** File systems that a test mounts: small disks, and what root cannot remove. */

import { execFileSync, spawnSync } from 'node:child_process'
import { closeSync, mkdtempSync, openSync, readFileSync, rmSync, writeSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { onTestFinished } from 'vitest'
import { requirement } from './require.ts'

function trySteps(...steps: readonly (readonly [string, ...string[]])[]): boolean {
  return steps.every(([command, ...args]) => spawnSync(command, args).status === 0)
}

const probe = mkdtempSync(join(tmpdir(), 'tutti-probe-'))

export const mounts = requirement(
  trySteps(['mount', '-t', 'tmpfs', 'none', probe], ['umount', probe]),
  'needs the right to mount a tmpfs',
)

export const immutableFiles = requirement(
  trySteps(['chattr', '+i', probe], ['chattr', '-i', probe]),
  'needs chattr +i in the folder for temporary files',
)

rmSync(probe, { recursive: true })

/** An empty file system of this size, which ends with the test. */
export function mountDisk(size: string): string {
  const folder = mkdtempSync(join(tmpdir(), 'tutti-disk-'))
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }))
  execFileSync('mount', ['-t', 'tmpfs', '-o', `size=${size}`, 'none', folder])
  onTestFinished(() => unmountBelow(folder))
  return folder
}

/** Writes a file until there is no room. Returns how to make room again. */
export function fillDisk(folder: string): () => void {
  const path = join(folder, 'filler')
  const file = openSync(path, 'w')
  try {
    for (;;) writeSync(file, Buffer.alloc(65_536))
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOSPC') throw error
  } finally {
    closeSync(file)
  }
  return () => rmSync(path)
}

/** Unmounts everything in this folder, also what is in use. */
export function unmountBelow(folder: string): void {
  const paths = readFileSync('/proc/mounts', 'utf8').split('\n')
  for (const line of paths.toReversed()) {
    const path = line.split(' ')[1] ?? ''
    if (path === folder || path.startsWith(`${folder}/`)) execFileSync('umount', ['--lazy', path])
  }
}
