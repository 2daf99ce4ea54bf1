/** Where Node keeps what it has compiled of launched scripts, for later launches. */

import { homedir } from 'node:os'
import { isAbsolute, join } from 'node:path'
import { makeFolders } from '../../checkpoint/files.ts'
import { quoteForShell } from '../quote.ts'

export const cacheVariable = 'NODE_COMPILE_CACHE'

/** Creates the folder. `null` where the user has chosen one, and where none can be created. */
export function openModuleCache(env: NodeJS.ProcessEnv): string | null {
  // What comes from a cache is covered less precisely.
  if (env[cacheVariable] !== undefined || env['NODE_V8_COVERAGE'] !== undefined) return null
  try {
    const { XDG_CACHE_HOME = '' } = env
    const caches = isAbsolute(XDG_CACHE_HOME) ? XDG_CACHE_HOME : join(homedir(), '.cache')
    const folder = join(caches, 'tutti', 'modules')
    makeFolders(folder)
    return folder
  } catch {
    return null
  }
}

/** For the shell of an agent: the cache, where its node sees the folder. */
export function toCacheExport(folder: string): string {
  const quoted = quoteForShell('a folder', folder)
  return `[ ! -d ${quoted} ] || export ${cacheVariable}=${quoted}`
}

/**
 * For a shell on another node, which may have another home. Node creates the folder where it is
 * missing, and does not return where that is not possible, as in /proc.
 */
export function toCacheGuard(folder: string | undefined): string {
  if (folder === undefined) return ':'
  return `[ -d ${quoteForShell('a folder', folder)} ] || unset ${cacheVariable}`
}

/**
 * Removes the variable from this process: tasks and other children have not asked for it. Returns
 * whether it was there.
 */
export function hideModuleCache(folder: string | undefined): boolean {
  if (folder === undefined || process.env[cacheVariable] !== folder) return false
  return delete process.env[cacheVariable]
}
