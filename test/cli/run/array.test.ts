import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { linesOf, recordIn, tuttiHere, workFolder } from './work-folder.ts'

const uidsOf = async (folder: string): Promise<string[]> => {
  const { stdout } = await tuttiHere(folder, 'tasks', '--json')
  const { tasks } = JSON.parse(stdout) as { tasks: { uid: string }[] }
  return tasks.map(({ uid }) => uid)
}

it('run --array: the program runs once per number, which {} and TUTTI_ARRAY_ID are', async () => {
  const folder = workFolder()
  const text = 'echo "$0 $1 $TUTTI_ARRAY_ID" >> ran'
  const words = ['--array', '1-3,10,2-9:4', '--', 'sh', '-c', text, 'n{}', '{}-{}']
  const run = await tuttiHere(folder, 'run', ...words)
  expect(run).toMatchObject({ code: 0 })
  const ran = [1, 2, 3, 6, 10].map((one) => `n${one} ${one}-${one} ${one}`)
  expect(linesOf(join(folder, 'ran')).toSorted()).toEqual(ran.toSorted())
  const uids = [1, 2, 3, 6, 10].map((one) => `sh-c-echo-${one}`)
  expect(await uidsOf(folder)).toEqual(uids)
  const { stdout } = await tuttiHere(folder, 'status', '--json')
  expect(JSON.parse(stdout)).toMatchObject({ names: [{ name: 'sh -c echo', total: 5 }] })
})

it('run --array: the word after -- is a program, whatever its extension', async () => {
  const folder = workFolder()
  writeFileSync(join(folder, 'x.mjs'), '#!/bin/sh\necho "$1" >> ran\n', { mode: 0o755 })
  const run = await tuttiHere(folder, 'run', '--array=7', '--', './x.mjs', '{}')
  expect(run).toMatchObject({ code: 0 })
  expect(linesOf(join(folder, 'ran'))).toEqual(['7'])
  expect(await uidsOf(folder)).toEqual(['x.mjs-7'])
})

it('run --array: a resume runs only the numbers that failed', async () => {
  const folder = workFolder()
  const text = 'echo "$0" >> ran; test "$0" != 2 || test -e fixed'
  const run = await tuttiHere(folder, 'run', '--array', '1-3', '--', 'sh', '-c', text, '{}')
  expect(run).toMatchObject({ code: 1 })
  expect(run.stderr).toContain('2 done, 1 failed, 0 canceled')
  writeFileSync(join(folder, 'fixed'), '')
  const resumed = await tuttiHere(folder, 'resume', recordIn(folder))
  expect(resumed).toMatchObject({ code: 0 })
  expect(resumed.stderr).toContain('skipping 2 of 3 recorded tasks; 1 run again: 1 failed')
  expect(linesOf(join(folder, 'ran')).toSorted()).toEqual(['1', '2', '2', '3'])
  const { stdout } = await tuttiHere(folder, 'report', '-o', '-')
  expect(stdout).toContain('npx tutti run --array 1-3 -- sh -c')
})

it('run --array: a secret argument is not kept, and a resume asks for it', async () => {
  const folder = workFolder()
  const words = ['sh', '-c', 'test -e fixed', '--token', 'hunter2-{}']
  expect(await tuttiHere(folder, 'run', '--array', '1', '--', ...words)).toMatchObject({ code: 1 })
  const record = recordIn(folder)
  expect(readFileSync(record.replace('.telemetry.jsonl', '.run'), 'utf8')).not.toContain('hunter2')
  const refused = await tuttiHere(folder, 'resume', record)
  expect(refused).toMatchObject({ code: 2 })
  expect(refused.stderr).toContain('-- <argument 4>')
  writeFileSync(join(folder, 'fixed'), '')
  const resumed = await tuttiHere(folder, 'resume', record, '--', 'hunter2-{}')
  expect(resumed).toMatchObject({ code: 0 })
})

const wrong: readonly [text: string, problem: string][] = [
  ['', '"" is neither a whole number nor a range'],
  ['a', '"a" is neither a whole number nor a range'],
  ['1-10,', '"" is neither a whole number nor a range'],
  ['1,-3', '"-3" is neither a whole number nor a range'],
  ['1-2-3', '"1-2-3" is neither a whole number nor a range'],
  ['5:2', '"5:2" is neither a whole number nor a range'],
  ['1.5', '"1.5" is neither a whole number nor a range'],
  ['10-1', '10-1 ends before it begins'],
  ['1-10:0', 'the step of 1-10:0 is not 1 or more'],
  ['1-10%2', 'A limit such as %4 is not supported'],
  ['1-1000001', 'more than 1000000 numbers'],
  ['0-999999999999', 'more than 1000000 numbers'],
]

it.each(wrong)('run --array: %j is refused with its text, and nothing runs', async (text, why) => {
  const folder = workFolder()
  const run = await tuttiHere(folder, 'run', `--array=${text}`, '--', 'touch', 'ran')
  expect(run).toMatchObject({ code: 2, stdout: '' })
  expect(run.stderr).toContain(`--array ${JSON.stringify(text)}: `)
  expect(run.stderr).toContain(why)
  expect(existsSync(join(folder, 'ran'))).toBe(false)
  expect(existsSync(join(folder, 'telemetry'))).toBe(false)
})
