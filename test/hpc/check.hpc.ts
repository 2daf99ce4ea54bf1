import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, onTestFinished } from 'vitest'
import { findNatsServer } from '../../src/cluster/broker/nats-program.ts'
import type { LaunchCheck } from '../../src/hpc/launch/check-script.ts'
import type { CommandEnd } from '../cli/run-command.ts'
import { needs, requireCommand } from '../require.ts'
import { createLauncher } from './launcher.ts'
import { sharedSlurm, slurmNeeds } from './slurm.ts'

interface Told {
  readonly ok: boolean
  readonly checks: readonly LaunchCheck[]
}

const allNeeds = [...slurmNeeds, requireCommand('nsenter')]
const options = ['--check', '--nodes', '4', '--time', '10']

/** The result of a check with `--json`: exit code, names of the passed checks, and the rest. */
function tellsOf({ code, stdout }: CommandEnd) {
  const { ok, checks } = JSON.parse(stdout) as Told
  const isOk = ({ state }: LaunchCheck): boolean => state === 'ok'
  return {
    code,
    ok,
    there: checks.filter(isOk).map(({ name, where }) => `${name} ${where}`),
    rest: checks.filter((one) => !isOk(one)),
  }
}

const here = ['nats-server here', 'request here']
const onNode = ['shared folder', 'Node', 'tutti', 'record folder', 'commands of Slurm']
const at = (node: string, ...names: readonly string[]): string[] =>
  names.map((name) => `${name} ${node}`)

describe('tutti launch --check', () => {
  const slurm = sharedSlurm()
  const queue = async (): Promise<string> => (await slurm()).run('squeue', '-h', '-o', '%i %T')

  needs(...allNeeds)('outside and inside: all is there, and nothing is left', async () => {
    const { folder, start, startBy, startJson } = createLauncher(await slurm())
    const text = await start(...options).ended
    expect(text.code).toBe(0)
    expect(text.stdout).toMatch(/^ok {7}agent .* n1: runs on n1 and reaches the server/m)
    expect(text.stdout.endsWith('a launch works\n')).toBe(true)
    const told = tellsOf(await startJson(...options).ended)
    const all = [...here, ...at('n1', ...onNode, 'nats-server', 'agent')]
    expect(told).toEqual({ code: 0, ok: true, there: all, rest: [] })
    const salloc = ['salloc', '--quiet', '-N2', '--exclusive', '--mem=0', '-t', '10']
    const inside = await startBy(salloc, '--check').ended
    expect([inside.code, inside.stdout]).toEqual([0, expect.stringContaining('a launch works\n')])
    expect(readdirSync(folder).flatMap((one) => readdirSync(`${folder}/${one}`))).toEqual([])
    await expect.poll(queue).toBe('')
  })

  needs(...allNeeds)(
    'tutti launch --check reports missing or refused parts here, exit 3',
    async () => {
      const { env } = await slurm()
      const without = createLauncher({ env: { ...env, TUTTI_NATS_SERVER: '/missing/nats-server' } })
      const end = await without.start(...options, '--partition', 'nope').ended
      expect(end.code).toBe(3)
      expect(end.stdout).toMatch(/^problem {2}nats-server .*\/missing\/nats-server/m)
      expect(end.stdout).toMatch(/^problem {2}request .*Invalid partition name specified/m)
      expect(end.stdout).not.toContain('u000a')
      expect(end.stdout.endsWith('a launch would fail: 2 checks above failed\n')).toBe(true)
      await expect.poll(queue).toBe('')
    },
  )

  needs(...allNeeds)('tutti launch --check reports missing parts on the node, exit 3', async () => {
    const { runAt } = await slurm()
    const { startJson } = createLauncher(await slurm())
    const check = async () => tellsOf(await startJson(...options).ended)
    const hide = async (file: string): Promise<() => Promise<void>> => {
      await runAt('n1', 'mount', '--bind', '/dev/null', file)
      return () => runAt('n1', 'umount', file)
    }
    const showServer = await hide(findNatsServer())
    expect(await check()).toMatchObject({
      code: 3,
      there: [...here, ...at('n1', ...onNode)],
      rest: [{ name: 'nats-server', where: 'n1', state: 'problem' }],
    })
    await showServer()
    const showNode = await hide(process.execPath)
    expect(await check()).toMatchObject({
      code: 3,
      there: [...here, ...at('n1', 'shared folder')],
      rest: [{ name: 'Node', where: 'n1', state: 'missing' }],
    })
    await showNode()
    await expect.poll(queue).toBe('')
  })

  needs(...allNeeds, requireCommand('script'))(
    'a program that hangs on the node is told in time, and progress before that',
    async () => {
      const { env } = await slurm()
      const folder = mkdtempSync(join(tmpdir(), 'tutti-hanging-'))
      onTestFinished(() => rmSync(folder, { recursive: true, force: true }))
      const program = join(folder, 'nats-server')
      writeFileSync(program, '#!/bin/sh\nexec sleep 100000\n', { mode: 0o755 })
      const launcher = createLauncher({ env: { ...env, TUTTI_NATS_SERVER: program } })
      const running = launcher.startInTerminal(...options)
      await running.seen('n1: commands of Slurm ok, continuing')
      const end = await running.ended
      // Lines of a terminal are broken at its width.
      expect([end.code, end.stdout.replaceAll(/\s+/g, ' ')]).toEqual([
        3,
        expect.stringMatching(/problem nats-server n1: \S+ did not answer within 10 s/),
      ])
      await expect.poll(queue).toBe('')
    },
  )

  needs(...allNeeds)('a folder that the node does not see or cannot write to is told', async () => {
    const { runAt } = await slurm()
    const { folder, startJson } = createLauncher(await slurm())
    const check = async () => tellsOf(await startJson(...options).ended)
    await runAt('n1', 'mount', '-t', 'tmpfs', 'none', folder)
    expect(await check()).toMatchObject({
      code: 3,
      there: here,
      rest: [{ name: 'shared folder', state: 'missing' }],
    })
    await runAt('n1', 'umount', folder)
    await runAt('n1', 'mount', '--bind', '-o', 'ro', folder, folder)
    expect(await check()).toMatchObject({
      code: 3,
      there: here,
      rest: [{ name: 'shared folder', state: 'problem' }],
    })
    await expect.poll(queue).toBe('')
  })
})
