import { spawn, spawnSync } from 'node:child_process'
import {
  chmodSync,
  existsSync,
  mkdtempSync,
  readFileSync,
  realpathSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { describe, expect, it, onTestFinished } from 'vitest'
import { errorTypeOf, ExecutableFailedError } from '../../../../src/foundation/task-errors.ts'
import { explainRefusal } from '../../../../src/backends/local/programs/program-lookup.ts'
import { expectCompleted, expectFailed, launchersOf, processes, sharedPool } from './pool-driver.ts'
import { eventually } from '../../../eventually.ts'
import { byRun } from '../../../long-run.ts'

function tempFolder(): string {
  const folder = realpathSync(mkdtempSync(join(tmpdir(), 'tutti-programs-')))
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }))
  return folder
}

const shell = (script: string) => ({ executable: 'sh', arguments: ['-c', script] })

describe('why the system refuses a program', () => {
  it.each([
    ['EACCES', /noexec/],
    ['EPERM', /noexec/],
    ['ENOEXEC', /#!\/bin\/sh/],
  ])('a refused program has a hint for %s', (errno, hint) => {
    const fault = explainRefusal(process.execPath, tempFolder(), errno)
    expect(fault.name).toBe('ExecutableNotPermittedError')
    expect(fault.hint).toMatch(hint)
  })
})

describe.each(['auto', 'plain'] as const)('programs with the %s spawner', (spawner) => {
  const shared = sharedPool({ spawner, launchers: 1 })

  it('row 7: a missing program, a forbidden one, a missing folder: different errors', async () => {
    const folder = tempFolder()
    const [plain, lost] = [join(folder, 'plain.sh'), join(folder, 'lost.sh')]
    writeFileSync(plain, '#!/bin/sh\n', { mode: 0o644 })
    writeFileSync(lost, '#!/no/such/interpreter\n', { mode: 0o755 })
    const driver = shared()
    const spaced = /executable: 'echo', arguments: \['hello', 'all'\]\. .*PATH is /
    const cases: [Parameters<typeof driver.run>[0], string, RegExp][] = [
      [{ executable: 'grepp' }, 'ExecutableNotFoundError', /"grep".*PATH is /],
      [{ executable: join(folder, 'plian.sh') }, 'ExecutableNotFoundError', /"plain\.sh"/],
      [{ executable: 'echo hello all' }, 'ExecutableNotFoundError', spaced],
      [{ executable: join(folder, 'no such.sh') }, 'ExecutableNotFoundError', /arguments: \[/],
      [{ executable: lost }, 'ExecutableNotFoundError', /#!\/no\/such\/interpreter/],
      [{ executable: '/bin/true/' }, 'ExecutableNotFoundError', /Remove the slash/],
      [{ executable: folder }, 'ExecutableNotPermittedError', /program in it/],
      [{ executable: plain }, 'ExecutableNotPermittedError', /chmod \+x/],
      [{ executable: 'plain.sh', env: { PATH: folder } }, 'ExecutableNotPermittedError', /chmod/],
      [{ executable: 'true', cwd: join(folder, 'no') }, 'CwdNotFoundError', /Make the folder/],
      [{ executable: 'true', cwd: plain }, 'CwdNotFoundError', /name another/],
      [{ executable: 'true', cwd: plain, shell: true }, 'CwdNotFoundError', /name another/],
      [{ executable: 'true', cwd: folder, shell: true }, '', /^$/],
    ]
    for (const [options, type, hint] of cases) {
      const run = driver.submit(options)
      const report = await run.ended
      if (type === '') {
        expectCompleted(report)
        continue
      }
      const error = expectFailed(report)
      expect(errorTypeOf(error)).toBe(type)
      expect(error.code).toBe(type)
      expect(error.hint ?? '').toMatch(hint)
      expect(driver.reportsOf(run.job)).toEqual([report])
    }
    chmodSync(plain, 0o755)
    expectCompleted(await driver.run({ executable: plain }))
  })

  it('row 107: a program that cannot be looked up fails its task alone', async () => {
    const folder = tempFolder()
    const [loop, closed] = [join(folder, 'loop'), join(folder, 'closed')]
    symlinkSync(loop, loop)
    writeFileSync(closed, '')
    const longName = 'n'.repeat(300)
    const longPath = `/${'folder/'.repeat(2000)}`
    const driver = shared()
    const bystander = driver.submit({ executable: 'sleep', arguments: ['1011'] })
    await bystander.started
    const cases: [Parameters<typeof driver.run>[0], string, RegExp][] = [
      [{ executable: longName }, 'ExecutableNotFoundError', /n… was not found in PATH/],
      [{ executable: `./${longName}` }, 'ExecutableNotFoundError', /longer than the system allows/],
      [{ executable: loop }, 'ExecutableNotFoundError', /loop of links/],
      [{ executable: 'loop', env: { PATH: folder } }, 'ExecutableNotFoundError', /not found/],
      [{ executable: join(closed, 'x') }, 'ExecutableNotFoundError', /does not exist/],
      [{ executable: `${longPath}x` }, 'ExecutableNotFoundError', /longer than the system allows/],
      [{ executable: 'true', cwd: longPath }, 'CwdNotFoundError', /longer than the system allows/],
      [{ executable: 'true', cwd: join(folder, longName) }, 'CwdNotFoundError', /longer/],
      [{ executable: 'true', cwd: loop }, 'CwdNotFoundError', /loop of links/],
      [{ executable: 'true', cwd: join(closed, 'x') }, 'CwdNotFoundError', /does not exist/],
    ]
    for (const [options, type, message] of cases) {
      const error = expectFailed(await driver.run(options))
      expect(error.code).toBe(type)
      expect(error.message).toMatch(message)
      expect(error.message.length).toBeLessThan(300)
    }
    expectCompleted(await driver.run({ executable: 'true' }))
    expect(driver.notices).toEqual([])
    driver.pool.cancel(bystander.job, 'over')
    expect((await bystander.ended).facts).toMatchObject({ workerId: 'n/p1' })
  })

  it('an executable with spaces gets a hint to use arguments, a path too', async () => {
    const driver = shared()
    const named = expectFailed(await driver.run({ executable: 'echo hello' }))
    expect(named.hint).toContain("executable: 'echo', arguments: ['hello']")
    const path = expectFailed(await driver.run({ executable: '/bin/echo hello you' }))
    expect(path.hint).toContain("executable: '/bin/echo', arguments: ['hello', 'you']")
  })

  it('row 108: captureStdio refuses by name what would block or is no file', async () => {
    const folder = tempFolder()
    const fifo = join(folder, 'fifo')
    expect(spawnSync('mkfifo', [fifo]).status).toBe(0)
    const driver = shared()
    const bystander = driver.submit({ executable: 'sleep', arguments: ['1012'] })
    await bystander.started
    const cases: [string, RegExp][] = [
      [fifo, /fifo has no reader$/],
      [folder, /is a folder$/],
      ['/dev/ptmx', /\/dev\/ptmx is a device$/],
      [join(folder, 'no/such.txt'), /the folder of .*such\.txt does not exist$/],
      [join(folder, 'n'.repeat(300)), /ENAMETOOLONG$/],
    ]
    for (const [path, message] of cases) {
      for (const captureStdio of [{ stdout: path }, { stderr: path }]) {
        const error = expectFailed(await driver.run({ executable: 'true', captureStdio }))
        expect(error.code).toBe('OutputFileError')
        expect(error.message).toMatch(message)
      }
    }
    expect(driver.notices).toEqual([])
    driver.pool.cancel(bystander.job, 'over')
    expect((await bystander.ended).kind).toBe('cancel')
  })

  it('row 108: captureStdio writes to a FIFO that is read, and to /dev/null', async () => {
    const fifo = join(tempFolder(), 'fifo')
    expect(spawnSync('mkfifo', [fifo]).status).toBe(0)
    const reader = spawn('wc', ['-c', fifo], { stdio: ['ignore', 'pipe', 'inherit'] })
    const counted = text(reader.stdout)
    const driver = shared()
    // It refuses until the reader has opened its end.
    await eventually(async () => {
      const many = shell('head -c 3000000 /dev/zero')
      expectCompleted(await driver.run({ ...many, captureStdio: { stdout: fifo } }))
    })
    expect(await counted).toMatch(/^ *3000000 /)
    const captureStdio = { stdout: '/dev/null' }
    expect(expectCompleted(await driver.run({ ...shell('echo x'), captureStdio })).stdout).toBe('')
  })

  it('row 7: a program that was replaced is found again', async () => {
    const folder = tempFolder()
    const [first, second] = [join(folder, '1'), join(folder, '2')]
    const env = { PATH: `${first}:${second}:${process.env['PATH']}` }
    const driver = shared()
    await driver.run({ executable: 'mkdir', arguments: [first, second] })
    writeFileSync(join(first, 'moving'), '#!/bin/sh\necho first', { mode: 0o755 })
    const run = () => driver.run({ executable: 'moving', env })
    expect(expectCompleted(await run()).stdout).toBe('first\n')
    rmSync(join(first, 'moving'))
    writeFileSync(join(second, 'moving'), '#!/bin/sh\necho second', { mode: 0o755 })
    expect(expectCompleted(await run()).stdout).toBe('second\n')
  })

  it('row 8: characters that a shell would interpret are passed as they are', async () => {
    const canary = join(tempFolder(), 'canary')
    const driver = shared()
    const hostile = [`; touch ${canary}`, `$(touch ${canary})`, `\`touch ${canary}\``, '&& false']
    const format = { executable: 'printf', arguments: ['%s\\n', ...hostile] }
    expect(expectCompleted(await driver.run(format)).stdout).toBe(`${hostile.join('\n')}\n`)
    expectFailed(await driver.run({ executable: `true; touch ${canary}` }))
    expect(existsSync(canary)).toBe(false)
  })

  it('a program that fails is reported with exit code and the end of both outputs', async () => {
    const driver = shared()
    const report = await driver.run(shell('yes é | head -n 3000; echo why >&2; exit 3'))
    const error = expectFailed(report)
    expect(error).toBeInstanceOf(ExecutableFailedError)
    expect(error).toMatchObject({ exitCode: 3, signal: null, stderr: 'why\n' })
    expect(error.message).toBe('sh exited with code 3')
    expect(report.facts).toMatchObject({ exitCode: 3, workerId: 'n/p1', stderrTail: 'why\n' })
    const tail = report.facts?.stdoutTail ?? ''
    expect(Buffer.byteLength(tail)).toBeLessThanOrEqual(2048)
    expect(tail).toMatch(/^\n?(?:é\n){600,}$/)
  })

  it('row 10: a killed program fails with the name of the signal', async () => {
    const driver = shared()
    const fault = await driver.run(shell('kill -SEGV $$'))
    expect(expectFailed(fault)).toMatchObject({ code: 'ProcessSignalError', signal: 'SIGSEGV' })
    expect(errorTypeOf(expectFailed(fault))).toBe('ExecutableFailedError')
    expect(fault.facts).toMatchObject({ signal: 'SIGSEGV' })
    expect(fault.facts).not.toHaveProperty('exitCode')
    const killed = expectFailed(await driver.run(shell('kill -KILL $$')))
    expect(killed.message).toBe('sh was killed by SIGKILL: often out of memory')
    expect(killed.hint).toMatch(/^Often memory ran out: ask for more/)
    const aborted = await driver.run(shell('kill -ABRT $$'))
    expect(aborted.facts).toMatchObject({ signal: 'SIGABRT' })
  })

  it('row 12: output of any size keeps its beginning and its end, with memory flat', async () => {
    const driver = shared()
    await driver.run({ executable: 'true' })
    const [launcher] = launchersOf(process.pid)
    // More than the launcher may have.
    const volume = byRun(400_000_000, 10_000_000_000)
    const script = `echo first; head -c ${volume} /dev/zero; echo last`
    const { stdout } = expectCompleted(await driver.run(shell(script)))
    const leftOut = Number(/\n\[\.\.\. (\d+) bytes left out \.\.\.\]\n/.exec(stdout)?.[1])
    expect(leftOut).toBe(volume + 11 - 131_072)
    expect(stdout.startsWith('first\n\0')).toBe(true)
    expect(stdout.endsWith('\0last\n')).toBe(true)
    const status = readFileSync(`/proc/${launcher?.pid}/status`, 'utf8')
    expect(Number(/VmHWM:\s+(\d+) kB/.exec(status)?.[1])).toBeLessThan(256_000)
  })

  it('row 12: binary output and one endless line are accepted', async () => {
    const driver = shared()
    const binary = expectCompleted(await driver.run(shell("printf 'a\\377\\200b\\000'")))
    expect(binary.stdout).toBe('a\uFFFD\uFFFDb\0')
    const line = expectCompleted(await driver.run(shell("yes | tr -d '\\n' | head -c 5000000")))
    expect(line.stdout.split('\n').map(({ length }) => length)).toEqual([65_536, 32, 65_536])
  })

  it('row 12: a program waits for its reader instead of filling the memory', async () => {
    const driver = shared()
    const runs = [1, 2, 3].map(() => driver.submit({ executable: 'yes' }))
    await Promise.all(runs.map(({ started }) => started))
    for (const { job } of runs) driver.pool.cancel(job, 'enough')
    for (const { ended } of runs) expect((await ended).kind).toBe('cancel')
  })

  it('the pool neither waits for nor ends processes that a program leaves behind', async () => {
    const driver = shared()
    const quiet = expectCompleted(await driver.run(shell('sleep 1000 & echo $!')))
    const early = Number(quiet.stdout)
    expect(processes().map(({ pid }) => pid)).toContain(early)
    process.kill(early, 'SIGKILL')
    // It ends when some noise is written, however busy the machine is.
    const noise = '(echo noise; : > written; while :; do echo noise || exit; done)'
    const noisy = `trap "" PIPE; ${noise} & until [ -e written ]; do sleep 0.02; done`
    const { stdout } = expectCompleted(await driver.run({ ...shell(noisy), cwd: tempFolder() }))
    expect(stdout).toContain('noise')
  })

  it('row 13: a program that does not read its stdin is not disturbed', async () => {
    const driver = shared()
    const stdin = 'x'.repeat(1_000_000)
    const runs = await Promise.all([
      driver.run({ executable: 'true', stdin }),
      driver.run({ executable: 'head', arguments: ['-c', '3'], stdin }),
      driver.run({ ...shell('exec <&-; sleep 0.05; echo closed'), stdin }),
      driver.run({ ...shell('sleep 0.05; exit 4'), stdin }),
    ])
    expect(runs.map(({ kind }) => kind)).toEqual(['complete', 'complete', 'complete', 'fail'])
    const outputs = runs.slice(0, 3).map((report) => expectCompleted(report).stdout)
    expect(outputs).toEqual(['', 'xxx', 'closed\n'])
  })
})
