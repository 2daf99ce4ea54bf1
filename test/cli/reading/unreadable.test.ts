import { spawn, spawnSync } from 'node:child_process'
import { chmodSync, mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, describe, expect } from 'vitest'
import { needs, requirement } from '../../require.ts'
import { builtMain, type CommandEnd, watch } from '../run-command.ts'
import { recordFolder, writeRecord } from './record-file.ts'

const folder = recordFolder()
afterAll(() => {
  for (const closed of ['telemetry', 'closed']) chmodSync(join(folder.path, closed), 0o700)
  folder.remove()
})

const isRoot = process.getuid?.() === 0
const capabilities = '-dac_override,-dac_read_search'
/** Root reads everything, unless it drops its capabilities. */
const ordinary = isRoot
  ? ['setpriv', `--inh-caps=${capabilities}`, `--bounding-set=${capabilities}`, process.execPath]
  : [process.execPath]
const [command = '', ...options] = ordinary
const tutti = (...args: readonly string[]): Promise<CommandEnd> =>
  watch(spawn(command, [...options, builtMain, ...args], { cwd: folder.path })).ended

const run = { nodes: [{ nodeId: 'n1', cores: 1 }], tasks: [{ uid: 'a', start: 0, end: 1 }], end: 2 }
const record = writeRecord(folder.path, run)
const tasks = join(folder.path, 'tasks.jsonl')
writeFileSync(tasks, '{"executable":"true"}')
for (const file of [record, tasks]) chmodSync(file, 0o000)
for (const closed of ['telemetry', 'closed']) {
  mkdirSync(join(folder.path, closed))
  writeRecord(join(folder.path, closed), run, { sessionId: 's-9' })
  chmodSync(join(folder.path, closed), 0o000)
}

const modes = requirement(process.platform !== 'win32', 'needs file modes')
const mayDrop = spawnSync(command, [...options, '--version']).status === 0
const here = needs(modes, requirement(mayDrop, 'needs setpriv, which may drop capabilities'))

describe('what this user may not read', () => {
  const cases: readonly (readonly [string, readonly string[], string])[] = [
    ['a record', ['status', record], `CheckpointError  Cannot read the record ${record}: EACCES`],
    ['a folder', ['tasks', 'closed'], 'CheckpointError  Cannot read the folder closed: EACCES'],
    ['the folder of a session', ['failures', 's-9'], 'Cannot read the folder ./telemetry: EACCES'],
    ['a file of tasks', ['run', 'tasks.jsonl'], `ValueError  Cannot read ${tasks}: EACCES`],
  ]
  for (const [what, args, message] of cases) {
    here(`row 95: ${what} ends with 2, and is not said to need write access`, async () => {
      const { code, stdout, stderr } = await tutti(...args)
      expect([code, stdout]).toEqual([2, ''])
      expect(stderr).toContain(message)
      expect(stderr).toContain('hint: Give this user read access to it, or ask its owner.')
    })
  }
})
