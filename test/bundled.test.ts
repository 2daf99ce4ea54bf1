import { execFileSync, spawnSync } from 'node:child_process'
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync } from 'node:fs'
import { rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { describe, expect, it, onTestFinished } from 'vitest'
import { nodeProblem, oldestNode } from '../src/foundation/version.ts'
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

/** The imports of a file by a literal name, static or dynamic. */
const importPattern = /(?:\bfrom\s*|\bimport\s*\(?\s*|\brequire\()["']([^"']+)["']/g

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
  it('a bundled program reports that tutti must stay external, whatever would run', () => {
    const file = bundle(createFolder(), program, [])
    for (const isolation of ['thread', 'process']) {
      const output = execFileSync(process.execPath, [file, isolation], { encoding: 'utf8' })
      expect(JSON.parse(output)).toEqual({
        code: 'BundledError',
        hint: expect.stringMatching(
          /leave `tutti` external.*Leave modules that call `defineTask` external as well/,
        ) as string,
      })
    }
  })

  it('a bundled program names no optional package that a bundler would have to find', () => {
    const entries = ['', '/inference', '/cluster'].map((entry) => `export * from 'tutti${entry}'\n`)
    const { peerDependencies } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as {
      readonly peerDependencies: Readonly<Record<string, string>>
    }
    const peers = Object.keys(peerDependencies)
    const external = peers.flatMap((name) => ['--external', name])
    const output = dirname(bundle(createFolder(), entries.join(''), external))
    const imported = readdirSync(output, { recursive: true, encoding: 'utf8' })
      .filter((file) => file.endsWith('.js'))
      .flatMap((file) => [...readFileSync(join(output, file), 'utf8').matchAll(importPattern)])
      .map((match) => match[1])
    expect(imported).toContain('node:crypto')
    expect(imported.filter((name) => peers.includes(name ?? ''))).toEqual([])
  })

  it('a bundled program reports renamed functions: modules of tasks stay external too', () => {
    const folder = createFolder()
    const module = join(folder, 'bundled-tasks.mjs')
    const text = `import { defineTask } from 'tutti'
      export const twice = defineTask(import.meta.url, globalThis.isRenamed
        ? function twice2(n) { return 2 * n }
        : function twice(n) { return 2 * n })`
    writeFileSync(module, text)
    const main = join(folder, 'main.mjs')
    writeFileSync(
      main,
      `globalThis.isRenamed = true
      const { ComputeTask, ConcurrentBackend, Session } = await import('tutti')
      const { twice } = await import('./bundled-tasks.mjs')
      const session = new Session([await ConcurrentBackend.create({ workers: 1 })])
      const task = new ComputeTask({ function: twice, args: [2] })
      await session.submitTasks([task])
      await session.waitTasks([task])
      process.stdout.write(task.error.cause.hint)
      await session.close()`,
    )
    const output = execFileSync(process.execPath, [main], { encoding: 'utf8' })
    expect(output).toContain('leave that module out of bundles')
  })

  it('a bundled program works with tutti left external', () => {
    const file = bundle(createFolder(), program, ['--external', 'tutti'])
    expect(execFileSync(process.execPath, [file, 'thread'], { encoding: 'utf8' })).toBe('works\n')
  })
})

describe('the files of the package', () => {
  const dist = join(root, 'dist')
  const source = join(root, 'src')
  const sources = readdirSync(source, { recursive: true, encoding: 'utf8' })

  it('entry points export what their sources do', async () => {
    const { exports } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as {
      readonly exports: Readonly<Record<string, { readonly default?: string } | string | null>>
    }
    const files = Object.values(exports).flatMap((one) =>
      typeof one === 'object' ? (one?.default ?? []) : [],
    )
    expect(files).toContain('./dist/index.js')
    for (const file of files) {
      const path = file.replace('./dist/', '').replace(/\.js$/, '')
      const [made, written] = (await Promise.all([
        import(pathToFileURL(join(dist, `${path}.js`)).href),
        import(pathToFileURL(join(source, `${path}.ts`)).href),
      ])) as object[]
      expect(Object.keys(made ?? {}).toSorted(), path).toEqual(
        Object.keys(written ?? {}).toSorted(),
      )
    }
  })

  it('every program that is started by its path is there', () => {
    const programs = sources
      .filter((file) => file.endsWith('.ts'))
      .flatMap((file) => {
        const text = readFileSync(join(source, file), 'utf8')
        const names = [...text.matchAll(/siblingProgram\(import\.meta\.url, '([^']+)'\)/g)]
        return names.map(([, name = '']) => join(dirname(file), `${name}.js`))
      })
    expect(programs).toContain(join('hpc', 'agents', 'node-agent.js'))
    expect(programs.filter((file) => !existsSync(join(dist, file)))).toEqual([])
  })

  it('programs that run no code of users are single files', () => {
    const files = ['hpc/agents/node-agent.js', 'runtime/server/guard.js']
    for (const file of [...files, 'backends/local/programs/launcher.js']) {
      const text = readFileSync(join(dist, file), 'utf8')
      expect(text.match(/^import .*$/gm) ?? [], file).toEqual([])
    }
  })

  /** The output of a script, and the URLs of all modules that it loads, in order. */
  function loadedByScript(script: string): string[] {
    const hooks = `
      const { registerHooks } = await import('node:module')
      registerHooks({ load: (url, context, next) => (console.log(url), next(url, context)) })`
    const args = ['--input-type=module', '--eval', `${hooks}\n${script}`]
    const output = execFileSync(process.execPath, args, { encoding: 'utf8', cwd: createFolder() })
    return output.split('\n')
  }

  const loadedBy = (...names: readonly string[]): string[] =>
    loadedByScript(names.map((name) => `await import('${name}')`).join('\n'))

  it('the client for other servers is not loaded before an engine needs it', () => {
    const loaded = loadedBy('tutti/inference')
    expect(loaded.filter((url) => url.includes('/node_modules/zod/'))).not.toEqual([])
    expect(loaded.filter((url) => url.includes('/node_modules/undici/'))).toEqual([])
  })

  it('the interface of OpenTelemetry is loaded with telemetry, the rest on use', () => {
    const loaded = loadedByScript(`
      const { ConcurrentBackend, Session } = await import('tutti')
      const session = new Session([await ConcurrentBackend.create()])
      const telemetry = await session.startTelemetry({ checkpointPath: '.' })
      await session.close()
      console.log('closed')
      console.log(Object.keys(JSON.parse(telemetry.exportAsOtlp())))`)
    const packagesOf = (urls: readonly string[]): Set<string> =>
      new Set(urls.flatMap((url) => /@opentelemetry\/[^/]+/.exec(url)?.[0] ?? []))
    const closed = loaded.indexOf('closed')
    expect(packagesOf(loaded.slice(0, closed))).toEqual(new Set(['@opentelemetry/api']))
    expect(packagesOf(loaded.slice(closed))).toContain('@opentelemetry/otlp-transformer')
    expect(loaded).toContain("[ 'resourceSpans' ]")
  })

  it('a script loads some files of the package, not hundreds', () => {
    const loaded = loadedBy('tutti', 'tutti/hpc').filter((url) => url.includes('/dist/'))
    expect(loaded.length).toBeGreaterThan(1)
    expect(loaded.length).toBeLessThan(40)
    expect(sources.length).toBeGreaterThan(300)
  })
})

/** An older Node of the system, on which the package does not run; skipped if there is none. */
const systemNode = ['/usr/bin/node', '/usr/local/bin/node'].find((path) => {
  const { status, stdout } = spawnSync(path, ['--version'], { encoding: 'utf8' })
  return status === 0 && nodeProblem(stdout.trim().slice(1)) !== null
})
const oldNode = requirement(systemNode !== undefined, `needs a Node older than ${oldestNode}`)

describe('on a Node that is too old', () => {
  const sentence =
    /^tutti needs Node 22\.19 or newer, and this is Node [\d.]+: .*npm install node@24, .*\n$/

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
    const { exports } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as {
      readonly exports: Readonly<Record<string, unknown>>
    }
    const names = Object.keys(exports).filter((name) => /^\.(?:\/[a-z]+)?$/.test(name))
    expect(names).toContain('.')
    for (const entry of names.map((name) => `tutti${name.slice(1)}`)) {
      const text = `import(${JSON.stringify(entry)}).catch((error) => console.log(error.message))`
      const options = { encoding: 'utf8', cwd: createFolder() } as const
      const output = execFileSync(systemNode ?? '', ['-e', text], options)
      expect(output, entry).toMatch(sentence)
    }
  })

  needs(oldNode)('the command prints one sentence', () => {
    const command = join(root, 'dist', 'cli', 'main.js')
    const { status, stderr } = spawnSync(systemNode ?? '', [command, 'serve'], { encoding: 'utf8' })
    expect(status).toBe(2)
    expect(stderr).toMatch(sentence)
  })
})
