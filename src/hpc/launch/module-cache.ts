/** The folder of Node's compile cache, which speeds up later launches. */

import { homedir } from 'node:os'
import { isAbsolute, join } from 'node:path'
import { makeFolders } from '../../checkpoint/files.ts'
import { quoteForShell } from '../quote.ts'

export const cacheVariable = 'NODE_COMPILE_CACHE'

/** Returns `null` if the user has chosen another folder, or if it cannot be created. */
export function openModuleCache(env: NodeJS.ProcessEnv): string | null {
  // Coverage is less precise for code from a cache.
  if (env[cacheVariable] !== undefined || env['NODE_V8_COVERAGE'] !== undefined) return null
  try {
    const { XDG_CACHE_HOME = '' } = env
    const cacheParent = isAbsolute(XDG_CACHE_HOME) ? XDG_CACHE_HOME : join(homedir(), '.cache')
    const folder = join(cacheParent, 'tutti', 'modules')
    makeFolders(folder)
    return folder
  } catch {
    return null
  }
}

/** Returns shell code that uses the cache if the node can see the folder. */
export function toCacheExport(folder: string): string {
  const quoted = quoteForShell('a folder', folder)
  return `[ ! -d ${quoted} ] || export ${cacheVariable}=${quoted}`
}

/**
 * Returns shell code that disables the cache if the node cannot see its folder. Otherwise, Node
 * would create the folder, or hang.
 */
export function toCacheGuard(folder: string | undefined): string {
  if (folder === undefined) return ':'
  return `[ -d ${quoteForShell('a folder', folder)} ] || unset ${cacheVariable}`
}

/** Removes the variable, so that child processes do not inherit it. Returns whether it was set. */
export function hideModuleCache(folder: string | undefined): boolean {
  if (folder === undefined || process.env[cacheVariable] !== folder) return false
  return delete process.env[cacheVariable]
}
