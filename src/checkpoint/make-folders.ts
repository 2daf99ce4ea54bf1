/** Makes a folder and those that lead to it, one by one. */

import { mkdirSync, statSync } from 'node:fs'
import { dirname } from 'node:path'
import { errnoOf } from '../foundation/errors.ts'

/**
 * A folder that is there is fine, also one that somebody else makes at the same moment. Without
 * Node's `recursive`, which never ends where a folder exists but takes no other, as in /proc.
 */
export function makeFolders(path: string): void {
  if (isFolder(path)) return
  try {
    makeLast(path)
  } catch (error) {
    const parent = dirname(path)
    if (errnoOf(error) !== 'ENOENT' || parent === path) throw error
    makeFolders(parent)
    makeLast(path)
  }
}

function makeLast(path: string): void {
  try {
    mkdirSync(path)
  } catch (error) {
    if (!isFolder(path)) throw error
  }
}

function isFolder(path: string): boolean {
  try {
    return statSync(path, { throwIfNoEntry: false })?.isDirectory() ?? false
  } catch {
    return false
  }
}
