import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { networkNeeds, TestNetwork } from '../cluster/hosts.ts'
import { needs, requireCommand } from '../require.ts'
import { createLauncher, scriptFile, toldRecord } from './launcher.ts'
import { writeRemoteShell } from './remote-shell.ts'

const script = scriptFile('hosts-script')

describe('tutti launch --hosts', () => {
  needs(
    ...networkNeeds,
    requireCommand('unshare'),
    requireCommand('nats-server'),
  )('a script here has its tasks on the hosts of the file, and its exit code counts', async () => {
    const network = new TestNetwork()
    onTestFinished(() => network.close())
    const there = [network.addHost(), network.addHost()]
    const hosts = there.map(({ address }) => address)
    const env = { ...process.env }
    const { folder, start, startJson } = createLauncher({ env })
    env['TUTTI_REMOTE_SHELL'] = writeRemoteShell(there)
    writeFileSync(join(folder, 'hosts'), `# two\n${hosts[0]}\n\n  ${hosts[1]} # the second\n`)
    const end = await start('--hosts', 'hosts', script, '5', `a 'b'`, '--nodes').ended
    expect([end.code, end.stdout]).toEqual([5, `h0 h1 ["a 'b'","--nodes"]\n`])
    expect(end.stderr).toMatch(/^record {2}telemetry\/.*\.telemetry\.jsonl$/m)
    const [line = ''] = readFileSync(toldRecord(end.stderr), 'utf8').split('\n')
    expect(JSON.parse(line)).toMatchObject({ attributes: { nodes: hosts } })
    const check = await startJson('--check', '--hosts', 'hosts').ended
    expect([check.code, JSON.parse(check.stdout)]).toMatchObject([0, { ok: true }])
    const { checks } = JSON.parse(check.stdout) as { checks: { name: string }[] }
    expect(checks.filter(({ name }) => name === 'record folder')).toHaveLength(1)
    // One that the remote shell does not reach.
    writeFileSync(join(folder, 'hosts'), `${hosts[0]}\n127.0.0.2\n`)
    const unreached = await start('--hosts', 'hosts', script).ended
    expect([unreached.code, unreached.stdout]).toEqual([1, ''])
    expect(unreached.stderr).toContain('no agent on 127.0.0.2 of 2 hosts: exit code 255')
  })

  it('a file that cannot be used is refused by its line, before anything is written', async () => {
    const { folder, start } = createLauncher({ env: process.env })
    const bad: Readonly<Record<string, string>> = {
      '/hosts:3: "-oProxyCommand=x" is no name of a host': 'a\n\n-oProxyCommand=x\n',
      '/hosts:2: "b c" is no name of a host': 'a\nb c\n',
      '/hosts:4: a is on line 1 as well': 'a\n#\nb\na # again\n',
      '/hosts: names no host': '# none\n',
    }
    for (const [message, text] of Object.entries(bad)) {
      writeFileSync(join(folder, 'hosts'), text)
      const end = await start('--hosts', 'hosts', script).ended
      expect([end.code, end.stdout], message).toEqual([2, ''])
      expect(end.stderr).toContain(message)
    }
    const missing = await start('--hosts', 'missing', script).ended
    expect([missing.code, missing.stderr.includes('cannot be read: ENOENT')]).toEqual([2, true])
    expect(readdirSync(folder)).toEqual(['hosts'])
    expect(existsSync(join(folder, 'telemetry'))).toBe(false)
  })
})
