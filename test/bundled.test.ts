import { execFileSync, spawnSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { describe, expect, it, onTestFinished } from 'vitest'
import { nodeProblem, oldestNode } from '../src/foundation/node-version.ts'
import { needs, requirement } from './require.ts'

const root = fileURLToPath(new URL('..', import.meta.url))

/** A folder in which `tutti` is installed. */
function createFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'tutti-bundle-'))
  onTestFinished(() => rmSync(folder, { recursive: true }))
  mkdirSync(join(folder, 'node_modules'))
  symlinkSync(root, join(folder, 'node_modules', 'tutti'))
  return folder
}

function bundle(folder: string, text: string, options: readonly string[]): string {
  const [entry, output] = [join(folder, 'entry.js'), join(folder, 'output')]
  writeFileSync(join(folder, 'package.json'), '{ "type": "module" }')
  writeFileSync(entry, text)
  const rolldown = join(root, 'node_modules', '.bin', 'rolldown')
  execFileSync(rolldown, [entry, '--platform', 'node', '--dir', output, ...options], {
    cwd: folder,
    stdio: 'pipe',
  })
  return join(output, 'entry.js')
}

const program = `
  import { ComputeTask, ConcurrentBackend, Session } from 'tutti'
  try {
    const isolation = process.argv[2]
    const session = new Session([await ConcurrentBackend.create({ isolation, workers: 1 })])
    const task = new ComputeTask({ executable: '/bin/echo', arguments: ['works'] })
    await session.submitTasks([task])
    process.stdout.write((await task).stdout)
    await session.close()
  } catch (error) {
    process.stdout.write(JSON.stringify({ code: error.code, hint: error.hint }))
  }
`

describe('a program that a bundler made', () => {
  it('says at once that tutti must stay external, whatever would run', () => {
    const file = bundle(createFolder(), program, [])
    for (const isolation of ['thread', 'process']) {
      const output = execFileSync(process.execPath, [file, isolation], { encoding: 'utf8' })
      expect(JSON.parse(output)).toEqual({
        code: 'BundledError',
        hint: expect.stringContaining('leave `tutti` external') as string,
      })
    }
  })

  it('works with tutti left external', () => {
    const file = bundle(createFolder(), program, ['--external', 'tutti'])
    expect(execFileSync(process.execPath, [file, 'thread'], { encoding: 'utf8' })).toBe('works\n')
  })
})

/** A Node of the system that the package does not run on; where there is none, it is skipped. */
const systemNode = ['/usr/bin/node', '/usr/local/bin/node'].find((path) => {
  const { status, stdout } = spawnSync(path, ['--version'], { encoding: 'utf8' })
  return status === 0 && nodeProblem(stdout.trim().slice(1)) !== null
})
const oldNode = requirement(systemNode !== undefined, `needs a Node older than ${oldestNode}`)

describe('on a Node that is too old', () => {
  it('the oldest version is the one of package.json', () => {
    const { engines } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as {
      readonly engines: { readonly node: string }
    }
    expect(engines.node).toBe(`>=${oldestNode}`)
    for (const version of ['22.19.0', '22.20.1', '24.0.0']) expect(nodeProblem(version)).toBeNull()
    for (const version of ['20.20.2', '22.18.9']) {
      expect(nodeProblem(version)).toContain(`Node 22.19 or newer, and this is Node ${version}`)
    }
  })

  needs(oldNode)('each entry point fails at its import, with one sentence', () => {
    for (const entry of ['tutti', 'tutti/inference', 'tutti/workflow', 'tutti/testing']) {
      const text = `import(${JSON.stringify(entry)}).catch((error) => console.log(error.message))`
      const options = { encoding: 'utf8', cwd: createFolder() } as const
      const output = execFileSync(systemNode ?? '', ['-e', text], options)
      expect(output, entry).toMatch(/^tutti needs Node 22\.19 or newer, and this is Node [\d.]+\n$/)
    }
  })

  needs(oldNode)('the command prints one sentence', () => {
    const command = join(root, 'dist', 'cli', 'main.js')
    const { status, stderr } = spawnSync(systemNode ?? '', [command, 'serve'], { encoding: 'utf8' })
    expect(status).toBe(2)
    expect(stderr).toMatch(/^tutti needs Node 22\.19 or newer, and this is Node [\d.]+\n$/)
  })
})
