import {
  cpSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  rmSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { describe, expect, it, onTestFinished } from 'vitest'
import { startProgram } from '../cli/run-command.ts'
import { sharedTestCluster, startAgentHere, type TestCluster } from './agents.ts'
import { storedNames } from './stored-names.ts'

const sharedServer = sharedTestCluster()
const packageFolder = fileURLToPath(new URL('../..', import.meta.url))

/** A project of a user, with this package installed, that only the driver can see. */
function createProject(files: Readonly<Record<string, string>>): string {
  const folder = mkdtempSync(join(tmpdir(), 'tutti-project-'))
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }))
  const all = { 'package.json': '{ "type": "module" }', ...files }
  for (const [path, content] of Object.entries(all)) {
    mkdirSync(join(folder, path, '..'), { recursive: true })
    writeFileSync(join(folder, path), content)
  }
  mkdirSync(join(folder, 'node_modules'), { recursive: true })
  symlinkSync(packageFolder, join(folder, 'node_modules', 'tutti'))
  return folder
}

const driver = (calls: string): string => `
import { ComputeTask, Session } from 'tutti'
import { ClusterBackend } from 'tutti/cluster'
import { rmSync } from 'node:fs'
const [servers, token, gone] = process.argv.slice(2)
const backend = await ClusterBackend.create({ servers, token, modules: 'bundle' })
const session = new Session([backend])
const ends = []
${calls}
async function run(fn, ...args) {
  const task = new ComputeTask({ function: fn, args })
  await session.submitTasks([task])
  await session.waitTasks([task])
  const cause = task.error?.cause ?? task.error
  ends.push(task.error === null || task.error === undefined
    ? task.returnValue
    : { type: cause.constructor.name, message: cause.message, hint: cause.hint,
        stack: cause.stack })
}
process.stdout.write(JSON.stringify(ends))
await session.close()
`

/** The values that its calls returned or threw. */
async function runDriver(cluster: TestCluster, project: string, calls: string): Promise<unknown[]> {
  writeFileSync(join(project, 'main.ts'), driver(calls))
  const { token } = await import('./test-token.ts')
  const program = startProgram(join(project, 'main.ts'), [cluster.server.url, token])
  onTestFinished(() => void program.child.kill('SIGKILL'))
  const { stdout, stderr, code } = await program.ended
  expect({ stderr, code }).toEqual({ stderr: '', code: 0 })
  return JSON.parse(stdout) as unknown[]
}

const task = (name: string, body: string): string =>
  `defineTask(import.meta.url, function ${name}${body})`

describe("modules: 'bundle'", () => {
  it('a bundle runs a module with its imports, packages and files on a bare node', async () => {
    const cluster = await sharedServer()
    const workDir = join(cluster.folder, 'work')
    await startAgentHere(cluster, { name: 'first', workDir })
    const project = createProject({
      'src/one.ts': `
import { readFileSync } from 'node:fs'
import { defineTask } from 'tutti'
import add from './lib/add.cjs'
import { double } from 'doubles'
import data from './data.json' with { type: 'json' }
export const compute = ${task(
        'compute',
        `(value: number): object {
  const text = readFileSync(new URL('./note.txt', import.meta.url), 'utf8')
  return { sum: add(value, 1), twice: double(value), data, text, file: import.meta.filename }
}`,
      )}
export const later = defineTask(import.meta.url, async function later() {
  return (await import('./later.ts')).word
})`,
      'src/two.ts': `
import { defineTask } from 'tutti'
export const compute = ${task('compute', '(value: number): string { return `two ${value}` }')}`,
      'src/later.ts': `export const word: string = 'later'`,
      'src/lib/add.cjs': `const { sum } = require('./sum.cjs'); module.exports = sum`,
      'src/lib/sum.cjs': 'exports.sum = (a, b) => a + b',
      'src/data.json': '{ "known": true }',
      'src/note.txt': 'a note',
      'store/doubles-1/package.json':
        '{ "name": "doubles", "version": "1.0.0", "type": "module", "exports": "./index.js" }',
      'store/doubles-1/index.js': 'export const double = (value) => 2 * value',
    })
    // As package managers with a common store do it.
    symlinkSync(join(project, 'store/doubles-1'), join(project, 'node_modules/doubles'))
    const ends = await runDriver(
      cluster,
      project,
      `const one = await import('./src/one.ts')
const two = await import('./src/two.ts')
await run(one.compute, 20)
await run(two.compute, 20)
await run(one.later)`,
    )
    expect(ends).toEqual([
      {
        sum: 21,
        twice: 40,
        data: { known: true },
        text: 'a note',
        file: expect.stringContaining(workDir) as string,
      },
      'two 20',
      'later',
    ])
    const [folder = ''] = readdirSync(workDir)
    expect(readdirSync(join(workDir, folder, 'bundles'))).toEqual([])
    expect(await storedNames(cluster.server.url)).toEqual([])
  })

  it('row 120: a module whose import never ends holds up nothing but its own tasks', async () => {
    const cluster = await sharedServer()
    await startAgentHere(cluster, { name: 'first', cores: 3 })
    const project = createProject({
      'src/endless.ts': 'await new Promise(() => {})',
      'src/other.ts': `
import { defineTask } from 'tutti'
export const other = ${task('other', '(): string { return "other" }')}`,
    })
    const ends = await runDriver(
      cluster,
      project,
      `import { defineTask } from 'tutti'
const { other } = await import('./src/other.ts')
const module = new URL('./src/endless.ts', import.meta.url).href
const endless = defineTask(module, function endless() {})
const [canceled, left] = [1, 2].map(() => new ComputeTask({ function: endless }))
await session.submitTasks([canceled, left])
await run(other)
session.cancel(canceled)
await session.waitTasks([canceled])
ends.push(canceled.state, left.state)`,
    )
    expect(ends).toEqual(['other', 'CANCELED', 'QUEUED'])
  })

  it("a bundle shows the user's own files and lines in stacks", async () => {
    const cluster = await sharedServer()
    await startAgentHere(cluster, { name: 'first' })
    const project = createProject({
      'src/fail.ts': `
import { defineTask } from 'tutti'
export const fail = defineTask(import.meta.url, function fail(): never {
  throw new TypeError('as planned')
})`,
    })
    const ends = await runDriver(
      cluster,
      project,
      `const { fail } = await import('./src/fail.ts')\nawait run(fail)`,
    )
    expect(ends).toMatchObject([
      { type: 'TypeError', stack: expect.stringContaining(`${project}/src/fail.ts:4:9`) as string },
    ])
  })

  it('a bundle refuses a native add-on, and names node and module', async () => {
    const cluster = await sharedServer()
    await startAgentHere(cluster, { name: 'first' })
    const addOn = join(packageFolder, 'node_modules/koffi')
    const project = createProject({
      'src/native.ts': `
import { defineTask } from 'tutti'
import koffi from 'koffi'
export const native = defineTask(import.meta.url, function native() { return koffi.version })`,
    })
    cpSync(addOn, join(project, 'node_modules/koffi'), { recursive: true, dereference: true })
    const scope = join(packageFolder, 'node_modules/@koromix')
    cpSync(scope, join(project, 'node_modules/@koromix'), { recursive: true, dereference: true })
    const ends = await runDriver(
      cluster,
      project,
      `const { native } = await import('./src/native.ts')\nawait run(native)`,
    )
    expect(ends).toMatchObject([
      {
        type: 'TaskImportError',
        message: expect.stringMatching(/src\/native\.ts .*node first.*native add-on/) as string,
        hint: expect.stringContaining("modules: 'shared'") as string,
      },
    ])
  })

  it('a bundle over the size limit fails with its size', async () => {
    const cluster = await sharedServer()
    await startAgentHere(cluster, { name: 'first' })
    const project = createProject({
      'src/large.ts': `
import { defineTask } from 'tutti'
const data = new URL('./data.bin', import.meta.url)
export const large = defineTask(import.meta.url, function large() { return data.href })`,
      'src/data.bin': '',
    })
    truncateSync(join(project, 'src/data.bin'), 65 * 2 ** 20)
    const ends = await runDriver(
      cluster,
      project,
      `const { large } = await import('./src/large.ts')\nawait run(large)`,
    )
    expect(ends).toMatchObject([
      {
        type: 'TaskImportError',
        message: expect.stringMatching(/66 MiB, at most 64 .*data\.bin/) as string,
      },
    ])
  })
})
