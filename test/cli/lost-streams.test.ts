import { existsSync } from 'node:fs'
import { mkdtemp, readdir, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { needs, requirement } from '../require.ts'
import { runHere, runRedirected, startCommand, startProgram } from './run-command.ts'

const program = fileURLToPath(new URL('fixtures/live-run.ts', import.meta.url))
const fullDevice = requirement(existsSync('/dev/full'), 'needs /dev/full')
let folder = ''
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'tutti-streams-'))
})
afterAll(async () => {
  await rm(folder, { recursive: true })
})

async function verdictOn(place: string): Promise<unknown> {
  const name = (await readdir(place)).find((one) => one.endsWith('.jsonl')) ?? ''
  return JSON.parse((await runHere(place, ['--json', 'journal', 'verify', name])).stdout)
}

describe('a command whose reader is gone', () => {
  it('row 96: a command without stderr runs to its end and prints the result', async () => {
    const place = join(folder, 'no-stderr')
    const command = startCommand(['demo', '--simulations', '20', '--folder', place])
    command.child.stderr?.destroy()
    const end = await command.ended
    expect(end.code).toBe(0)
    expect(end.stdout).toContain('pi is about ')
    expect(await verdictOn(place)).toMatchObject({ sound: true, has_ended: true, tasks: 22 })
  })

  it('row 96: a command without stdout closes the session quietly', async () => {
    const place = join(folder, 'no-stdout')
    const run = startProgram(program, ['talk', place])
    await run.seen('running')
    run.child.stdout?.destroy()
    const end = await run.ended
    expect(end.code).toBe(0)
    expect(end.stderr).toMatch(/^running\nsession .*\n1 task in .*, 1 canceled\n$/)
    expect(await verdictOn(place)).toMatchObject({ sound: true, has_ended: true, tasks: 1 })
  })

  it('row 96: a command is quiet about a result that nobody reads', async () => {
    const command = startCommand(['--help'])
    command.child.stdout?.destroy()
    const end = await command.ended
    expect([end.code, end.stderr]).toEqual([0, ''])
  })

  it('a server whose output nobody reads ends', async () => {
    const config = join(folder, 'echo.yaml')
    await writeFile(config, 'required:\n  model_name: tiny\nengine:\n  kind: echo\n')
    const command = startCommand(['serve', '--config', config, '--port', '0'])
    command.child.stdout?.destroy()
    const end = await command.ended
    expect([end.code, end.stderr]).toEqual([0, ''])
  })
})

describe('a command on a full disk', () => {
  const told = 'OutputFileError  stdout cannot be written: ENOSPC: no space left on device, write\n'
  needs(fullDevice)(
    'a command on a full disk reports its lost result in one line, and exits with 1',
    async () => {
      const record = join(folder, 'empty.1.telemetry.jsonl')
      await writeFile(record, '')
      for (const args of [['--help'], ['journal', 'verify', record]]) {
        const end = await runRedirected('> /dev/full', ...args)
        expect([end.code, end.stderr]).toEqual([1, told])
      }
    },
  )

  needs(fullDevice)(
    'row 95: a command on a full disk reports the loss as JSON under --json',
    async () => {
      const end = await runRedirected('> /dev/full', '--json', 'doctor')
      const message = told.slice('OutputFileError  '.length).trim()
      const error = { code: 'OutputFileError', message }
      expect([end.code, JSON.parse(end.stderr)]).toEqual([1, { error }])
    },
  )

  needs(fullDevice)(
    'a command that loses its progress finishes the run and exits with 1',
    async () => {
      const place = join(folder, 'full')
      const args = ['demo', '--simulations', '20', '--folder', place]
      const end = await runRedirected('2> /dev/full', ...args)
      expect(end.code).toBe(1)
      expect(end.stdout).toContain('pi is about ')
    },
  )
})
