import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync, mkdtempSync, readdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { createServer, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { describe, expect, it, onTestFinished } from 'vitest'
import { needs, requireCommand } from './require.ts'
import { runMutants, sampleOf, testsFor } from '../scripts/mutation/mutation-run.ts'

/** A repository of these files, with the installed packages of this one. */
function projectOf(files: Readonly<Record<string, string>>): string {
  const root = mkdtempSync(join(tmpdir(), 'tutti-mutants-'))
  onTestFinished(() => rmSync(root, { recursive: true, force: true }))
  const all = { ...files, '.gitignore': '.cache\ndist\nnode_modules\n' }
  for (const [path, text] of Object.entries(all)) {
    mkdirSync(dirname(join(root, path)), { recursive: true })
    writeFileSync(join(root, path), text)
  }
  execFileSync('git', ['init', '--quiet'], { cwd: root })
  symlinkSync(join(process.cwd(), 'node_modules'), join(root, 'node_modules'))
  return root
}

const testOf = (assertions: string): string => `
  import { expect, it } from 'vitest'
  import { isPositive } from '../src/positive.ts'
  it('knows positive numbers', () => { ${assertions} })
`
const sources = {
  'package.json': '{ "type": "module" }',
  'src/positive.ts': 'export const isPositive = (n: number): boolean => n > 0\n',
}
const program = fileURLToPath(new URL('../scripts/run-mutants.ts', import.meta.url))
const options = { within: ['src'], count: 9, seed: 1, minutes: 60 }

describe('a mutation run', () => {
  needs(requireCommand('unshare'))('a mutation run finds a change that no test sees', async () => {
    const root = projectOf({
      ...sources,
      'test/positive.test.ts': testOf(
        'expect(isPositive(1)).toBe(true); expect(isPositive(-1)).toBe(false)',
      ),
      'test/broken.test.ts': testOf('expect(isPositive(1)).toBe(false)'),
    })
    const lines: string[] = []
    const print = (line: string): unknown => lines.push(line)
    const { killed, survived } = await runMutants({ ...options, root, print })
    expect(survived.map(({ after }) => after)).toEqual(['n >= 0'])
    expect(killed.map(({ after }) => after).toSorted()).toEqual(['false', 'true'])
    const output = lines.join('\n')
    expect(output).toContain('killed by test/positive.test.ts: knows positive numbers')
    expect(output).toContain('left out, because it fails without a mutant: test/broken.test.ts')
    expect(readdirSync(join(root, '.cache'))).toEqual([])
  })

  needs(requireCommand('unshare'))('a mutation run ends with tests further away', async () => {
    const near = Array.from({ length: 7 }, (_, at) => [
      `test/near-${at}.test.ts`,
      testOf('expect(isPositive(1)).toBe(true)'),
    ])
    const root = projectOf({
      ...sources,
      ...(Object.fromEntries(near) as Record<string, string>),
      'test/use.ts': "export { isPositive } from '../src/positive.ts'",
      'test/far.test.ts': testOf(
        'expect(isPositive(0)).toBe(false); expect(isPositive(-1)).toBe(false)',
      ).replace('../src/positive.ts', './use.ts'),
    })
    const lines: string[] = []
    const print = (line: string): unknown => lines.push(line)
    const { survived } = await runMutants({ ...options, root, print })
    expect(survived).toEqual([])
    expect(lines.filter((line) => line.includes('killed by test/far.test.ts'))).toHaveLength(2)
  })

  needs(requireCommand('unshare'))('a mutation run counts no test failing only once', async () => {
    const fails = `if (!existsSync('seen')) { writeFileSync('seen', ''); throw new Error('once') }`
    const imports = `import { existsSync, writeFileSync } from 'node:fs'`
    const root = projectOf({
      ...sources,
      'test/positive.test.ts': imports + testOf(`${fails} expect(isPositive).toBeDefined()`),
    })
    const lines: string[] = []
    const print = (line: string): unknown => lines.push(line)
    const { killed, survived } = await runMutants({ ...options, root, print })
    expect(killed).toEqual([])
    expect(survived).toHaveLength(3)
    const found = lines.filter((line) => line.includes('then passed with the same mutant'))
    expect(found).toEqual([expect.stringContaining('test/positive.test.ts: knows positive')])
  })

  needs(requireCommand('unshare'))("a mutation run's copy is readable for others", async () => {
    const asserted = `expect([statSync('.').mode & 0o777, isPositive]).toContain(0o755)`
    const root = projectOf({
      ...sources,
      'test/positive.test.ts': `import { statSync } from 'node:fs'${testOf(asserted)}`,
    })
    const lines: string[] = []
    const print = (line: string): unknown => lines.push(line)
    await runMutants({ ...options, count: 1, root, print })
    expect(lines.filter((line) => line.startsWith('left out'))).toEqual([])
  })

  needs(requireCommand('unshare'))('a mutation run does not use a removed build', async () => {
    const asserted = `expect([existsSync('dist/index.js'), isPositive]).toContain(true)`
    const root = projectOf({
      ...sources,
      'dist/index.js': '',
      'test/positive.test.ts': `import { existsSync } from 'node:fs'${testOf(asserted)}`,
    })
    const lines: string[] = []
    const print = (line: string): void => {
      lines.push(line)
      if (line.startsWith('[1/3]')) rmSync(join(root, 'dist'), { recursive: true })
    }
    await runMutants({ ...options, root, print })
    expect(lines.slice(1).map((line) => line.split('\n').at(-1)?.trim())).toEqual(
      Array.from({ length: 3 }, () => 'SURVIVED'),
    )
  })

  needs(requireCommand('unshare'))('a mutation run ends and cleans up on SIGTERM', async () => {
    const root = projectOf({
      ...sources,
      'test/positive.test.ts': `
        import { connect } from 'node:net'
        import { it } from 'vitest'
        import { isPositive } from '../src/positive.ts'
        it('hangs', async () => {
          connect(process.env['TEST_SOCKET'])
          await new Promise(() => isPositive)
        })
      `,
    })
    const path = join(root, 'socket')
    const server = createServer().listen(path)
    onTestFinished(() => void server.close())
    await once(server, 'listening')
    const runner = spawn(process.execPath, [program, 'src'], {
      cwd: root,
      env: { ...process.env, TEST_SOCKET: path },
      stdio: ['ignore', 'ignore', 'pipe'],
    })
    onTestFinished(() => void runner.kill('SIGKILL'))
    const errors = runner.stderr.setEncoding('utf8').toArray()
    const [test] = (await once(server, 'connection')) as [Socket]
    const testEnded = once(test.resume(), 'close')
    runner.kill('SIGTERM')
    expect(await once(runner, 'exit')).toEqual([1, null])
    await testEnded
    expect((await errors).join('')).toContain('stopped by SIGTERM')
    expect(readdirSync(join(root, '.cache'))).toEqual([])
  })

  it('a mutation run without a mutant fails', async () => {
    const root = projectOf({ 'src/empty.ts': 'export const none = 0\n' })
    const run = runMutants({ ...options, root, print: () => {} })
    await expect(run).rejects.toThrow('found none')
  })
})

describe('the sample of a mutation run', () => {
  const text = 'export const f = () => a && b && c && d && e\n'
  const files = ['src/a.ts', 'src/b.ts', 'src/c.ts', 'src/d.ts'].map((path) => ({ path, text }))
  const empty = { path: 'src/empty.ts', text: '' }
  const draw = (seed: number, count: number, from = files): string[] =>
    sampleOf(from, count, seed).map(({ path, after }) => `${path} ${after}`)

  it('the sample of a mutation run follows from the seed, with three mutants of a file', () => {
    expect(draw(1, 10)).toHaveLength(10)
    expect(draw(1, 10)).toEqual(draw(1, 10))
    expect(draw(1, 10)).not.toEqual(draw(2, 10))
    const pathsOf = (drawn: readonly string[]) => drawn.map((one) => one.slice(0, 8))
    expect(new Set(pathsOf(draw(1, 6))).size).toBe(2)
    expect(draw(1, 8, [...files.slice(0, 1), empty])).toHaveLength(8)
  })

  it('the sample of a file stays the same when another file changes', () => {
    const ofFirst = (from: typeof files) =>
      draw(1, 12, from).filter((one) => one.startsWith('src/a.ts'))
    const changed = files.with(1, { path: 'src/b.ts', text: `${text}export const g = h && i\n` })
    expect(ofFirst(changed)).toEqual(ofFirst(files))
  })
})

describe('the tests of a mutant', () => {
  it('the tests of a mutant are those of the folders of its users before others', () => {
    const texts = {
      'src/a/one.ts': '',
      'src/b/c/user.ts': "import '../../a/one.ts'",
      'test/b/any.test.ts': "import '../../src/b/c/user.ts'",
      'test/b/c/any.test.ts': "import '../../../src/b/c/user.ts'",
    }
    const files = Object.entries(texts).map(([path, text]) => ({ path, text }))
    expect(testsFor('src/a/one.ts', files, new Set())).toEqual([
      'test/b/c/any.test.ts',
      'test/b/any.test.ts',
    ])
  })

  it("the tests of a mutant are its own, then its folder's, then others by imports", () => {
    const texts = {
      'src/a/one.ts': '',
      'src/a/program.ts': "import './one.ts'",
      'src/b/user.ts': "siblingProgram(import.meta.url, 'starter')",
      'src/b/starter.ts': "import '../a/program.ts'",
      'test/a/one.test.ts': "new URL('../../src/a/one.ts', import.meta.url)",
      'test/a/program.test.ts': "import '../../src/a/program.ts'",
      'test/b/starter.test.ts': "import '../../src/b/starter.ts'",
      'test/b/user.test.ts': "import '../../src/b/user.ts'",
      'test/a/slow.test.ts': "import '../../src/a/program.ts'",
      'test/c/types.test.ts': "import type { One } from '../../src/a/one.ts'",
      'test/c/one-by-one.test.ts': "import '../../src/a/one.ts'",
      'test/c/a-slow.test.ts': "import '../../src/a/one.ts'",
    }
    const files = Object.entries(texts).map(([path, text]) => ({ path, text }))
    const quick = new Set(Object.keys(texts).filter((path) => !/slow|one-by-one/.test(path)))
    expect(testsFor('src/a/one.ts', files, quick)).toEqual([
      'test/a/one.test.ts',
      'test/a/program.test.ts',
      // Their names say that they are about the folder or the file.
      'test/c/a-slow.test.ts',
      'test/c/one-by-one.test.ts',
      'test/b/starter.test.ts',
      'test/a/slow.test.ts',
      'test/b/user.test.ts',
    ])
  })
})
