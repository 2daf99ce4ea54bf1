import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, describe, expect, it } from 'vitest'
import { recordFolder, writeRecord } from '../reading/record-file.ts'
import { runHere, startCommandIn } from '../run-command.ts'

const folder = recordFolder()
afterAll(() => folder.remove())
const path = writeRecord(folder.path, {
  nodes: [{ nodeId: 'n1', cores: 4, gpus: 0 }],
  tasks: [{ uid: 'sim-1', start: 1, end: 4, worker: 'n1/local/w1', endType: 'TaskFailed' }],
  end: 10,
})
writeFileSync(join(folder.path, 'tasks.jsonl'), '{"executable":"/bin/true"}\n')

const document = readFileSync(new URL('../../../docs/commands.md', import.meta.url), 'utf8')
const keysIn = (text: string): string[] =>
  Array.from(text.replaceAll(/\([^)]*\)/g, '').matchAll(/`([a-z_]+)(?::[^`]*)?`/g), ([, key]) =>
    String(key),
  ).filter((key) => key !== 'null')

/** The keys that the table names for a command. */
function documentedKeys(command: string): string[] {
  const start = `| \`${command}\` | `
  const row = document.split('\n').find((line) => line.startsWith(start)) ?? ''
  const cell = row.slice(start.length).split('; of a script')[0] ?? ''
  const told = keysIn(cell).filter((key) => key !== 'status')
  return command === 'top' ? [...documentedKeys('status'), ...told] : told
}

const common = keysIn(/ have these keys in common: [^|]*/.exec(document)?.[0] ?? '')

const expectKeys = (stdout: string, expected: readonly string[]): void =>
  expect(Object.keys(JSON.parse(stdout) as object).toSorted()).toEqual(expected.toSorted())

describe('the form of --json', () => {
  it.each([
    ['status', ['status', path], common],
    ['top', ['top', path], common],
    ['tasks', ['tasks', path], common],
    ['failures', ['failures', path], common],
    ['explain', ['explain', 'sim-1', path], common],
    ['journal verify', ['journal', 'verify', path], []],
    ['journal repair', ['journal', 'repair', path], []],
    ['journal compress', ['journal', 'compress', path], []],
    ['doctor', ['doctor'], []],
  ])('--json of `%s` has the keys of docs/commands.md', async (command, args, further) => {
    const { stdout } = await runHere(folder.path, [...args, '--json'])
    expectKeys(stdout, [...further, ...documentedKeys(command)])
  })

  it('--json of `run` has the keys of docs/commands.md', async () => {
    const { stdout } = await startCommandIn(folder.path, ['run', 'tasks.jsonl', '--json']).ended
    expectKeys(stdout, documentedKeys('run'))
  })
})
