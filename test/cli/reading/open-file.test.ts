import { execFileSync, spawn } from 'node:child_process'
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect } from 'vitest'
import { needs, requireCommand } from '../../require.ts'
import type { SyntheticRun } from '../../views/synthetic-run.ts'
import { builtMain, type CommandEnd, startCommandIn, watch } from '../run-command.ts'
import { recordFolder, writeRecord } from './record-file.ts'

const script = requireCommand('script')
const run: SyntheticRun = {
  nodes: [{ nodeId: 'n1', cores: 4, gpus: 1 }],
  tasks: [{ uid: 'sim-1', start: 1, end: 4, worker: 'n1/local/w1' }],
  end: 10,
}

describe('a report in the browser', () => {
  needs(script)('report --open: the browser gets the file, from a terminal only', async () => {
    const other = recordFolder()
    const path = writeRecord(other.path, run)
    const browser = join(other.path, 'xdg-open')
    const opened = join(other.path, 'opened')
    // Reading the pipe waits for the browser, which outlives the command.
    execFileSync('mkfifo', [opened])
    writeFileSync(browser, `#!/bin/sh\necho "$1" > "${opened}"\n`, { mode: 0o755 })
    const page = join(other.path, 'a b.html')
    const words = [process.execPath, builtMain, 'report', path, '--open', '-o']
    const quoted = (target: string): string =>
      [...words, target].map((word) => `'${word}'`).join(' ')
    const inTerminal = (target: string, folders: string): Promise<CommandEnd> =>
      watch(
        spawn('script', ['-qec', `PATH='${folders}' ${quoted(target)}`, '/dev/null'], {
          stdio: 'pipe',
        }),
      ).ended
    const [end, told] = await Promise.all([
      inTerminal(page, `${other.path}:${process.env['PATH']}`),
      readFile(opened, 'utf8'),
    ])
    expect([end.code, told]).toEqual([0, `${page}\n`])
    expect(readFileSync(page, 'utf8')).toContain('<html')
    const without = await inTerminal(page, '/nowhere')
    expect(without.code).toBe(0)
    expect(without.stdout).toContain('the report is not opened: xdg-open')
    expect(await inTerminal('-', '/nowhere')).toMatchObject({ code: 2 })
    const alone = await startCommandIn(other.path, ['report', path, '--open', '-o', 'alone.html'])
      .ended
    expect([alone.code, alone.stderr]).toEqual([2, expect.stringContaining('needs a terminal')])
    expect(existsSync(join(other.path, 'alone.html'))).toBe(false)
    other.remove()
  })
})
