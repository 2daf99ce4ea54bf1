import { execFileSync } from 'node:child_process'
import { readdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { toAgentCommand } from '../../src/hpc/agents/agent-lines.ts'
import { toCacheGuard } from '../../src/hpc/launch/module-cache.ts'
import { needs, requireCommand } from '../require.ts'
import { createLauncher } from './launcher.ts'

/** The output of a launched script about its cache. */
async function cacheOf(variables: (folder: string) => NodeJS.ProcessEnv) {
  const { NODE_COMPILE_CACHE: _, ...env } = process.env
  const { folder, start } = createLauncher({ env })
  Object.assign(env, variables(folder))
  writeFileSync(join(folder, 'hosts'), 'a\n')
  const text = `import { getCompileCacheDir } from 'node:module'
    console.log(JSON.stringify([getCompileCacheDir() ?? null, process.env.NODE_COMPILE_CACHE]))`
  writeFileSync(join(folder, 'script.mjs'), text)
  const { code, stdout, stderr } = await start('--hosts', 'hosts', 'script.mjs').ended
  expect([code, stderr]).toEqual([0, ''])
  const [used, named] = JSON.parse(stdout) as [string | null, string | null]
  return { folder, used, named }
}

describe('the modules of a launched script', () => {
  const withServer = needs(requireCommand('nats-server'))

  withServer('are compiled once: Node keeps them in the cache folder of the user', async () => {
    const { folder, used, named } = await cacheOf((own) => ({ XDG_CACHE_HOME: join(own, 'c') }))
    expect(named).toBe(join(folder, 'c', 'tutti', 'modules'))
    expect(used?.startsWith(named ?? '')).toBe(true)
    expect(readdirSync(used ?? '')).not.toEqual([])
  })

  withServer('are kept where the user has said', async () => {
    const { folder, named } = await cacheOf((own) => ({ NODE_COMPILE_CACHE: join(own, 'own') }))
    expect(named).toBe(join(folder, 'own'))
  })

  withServer('are not kept where no folder can be created', async () => {
    const { used, named } = await cacheOf(() => ({ XDG_CACHE_HOME: '/proc/none' }))
    expect([used, named]).toEqual([null, null])
  })
})

describe('on another node', () => {
  it('a cache of the launcher that is not there is not used; one of the user is', () => {
    const tell = (ours: string | undefined, variable: string): string => {
      const script = `${toCacheGuard(ours)}; echo "$NODE_COMPILE_CACHE"`
      const env = { NODE_COMPILE_CACHE: variable }
      return execFileSync('/bin/sh', ['-c', script], { encoding: 'utf8', env })
    }
    expect(tell('/', '/')).toBe('/\n')
    expect(tell("/not 'there", "/not 'there")).toBe('\n')
    expect(tell(undefined, '/not/yet')).toBe('/not/yet\n')
  })
})

describe('the modules of an agent', () => {
  it('the modules of an agent are kept in the same cache, where its node sees that folder', () => {
    const program = ['sh', '-c', 'echo "$0: $NODE_COMPILE_CACHE"']
    const tell = (cache: string): string => {
      const [command = '', ...args] = toAgentCommand(program, cache)
      const env = { PATH: process.env['PATH'] }
      return execFileSync(command, [...args, 'n1'], { encoding: 'utf8', env }).split('\n')[0] ?? ''
    }
    expect(tell('/')).toBe('n1: /')
    expect(tell("/not 'there")).toBe('n1: ')
  })
})
