import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, dirname, join } from 'node:path'
import { afterEach, expect, it, onTestFinished, vi } from 'vitest'
import { startNatsServer } from '../../../src/cluster/broker/nats-server.ts'
import { connectToNats } from '../../../src/cluster/broker/nats.ts'
import { systemClock } from '../../../src/foundation/clock.ts'
import { processLog } from '../../../src/foundation/log.ts'
import { eventually } from '../../eventually.ts'
import { token } from '../test-token.ts'

afterEach(() => void vi.unstubAllEnvs())

/** A folder for temporary files of this test alone. */
function ownTemporaryFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'tutti-test-'))
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }))
  vi.stubEnv('TMPDIR', folder)
  return folder
}

/** The process with that configuration. */
function pidOf(folder: string): number {
  const isServer = (pid: string): boolean => {
    try {
      return readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes(join(folder, 'server.conf'))
    } catch {
      return false
    }
  }
  return Number(readdirSync('/proc').find((name) => /^\d+$/.test(name) && isServer(name)))
}

it('a private server that is killed is started again with its port and store', async () => {
  const temporary = ownTemporaryFolder()
  const warnings: string[] = []
  const log = { warn: (code: string, text: string) => void warnings.push(`${code}: ${text}`) }
  const server = await startNatsServer({ token, clock: systemClock, log })
  onTestFinished(() => server.close())
  const options = { servers: [server.url], name: 'test', token, log: processLog }
  const broker = await connectToNats(options)
  onTestFinished(() => broker.close())
  await broker.store.openStream('kept', {
    subjects: ['kept.>'],
    maxAgeSeconds: 600,
    label: 'test',
  })
  await broker.store.append('kept.one', Buffer.from('before'), 60_000)
  const pid = pidOf(server.folder)
  process.kill(pid, 'SIGKILL')
  await eventually(async () => {
    await broker.store.append('kept.one', Buffer.from('after'), 1000)
  })
  const { messages } = await broker.store.read('kept', 'kept.one', null)
  const [first, second] = messages.map(({ data }) => Buffer.from(data).toString())
  expect([first, second]).toEqual(['before', 'after'])
  expect(pidOf(server.folder)).not.toBe(pid)
  expect(warnings).toEqual([
    expect.stringMatching(/^NatsServerRestarted: .*SIGKILL.*\(restart 1 of at most 5 in a row\)/),
  ])
  await broker.close()
  await server.close()
  expect(readdirSync(temporary)).toEqual([])
})

it('a private server removes the folders of dead processes, and no others', async () => {
  const temporary = ownTemporaryFolder()
  const first = await startNatsServer({ token, clock: systemClock })
  const name = basename(first.folder)
  // Its process number is that of a process that lives, its start is not.
  const earlier = name.replace(/^(tutti-nats-\d+)-\d+-/, '$1-1-')
  const elsewhere = earlier.replace(/[0-9a-f]{24}/, '0'.repeat(24))
  for (const one of [earlier, elsewhere, 'tutti-nats-mine']) mkdirSync(join(temporary, one))
  expect(dirname(first.folder)).toBe(temporary)
  const second = await startNatsServer({ token, clock: systemClock })
  expect(readdirSync(temporary).toSorted()).toEqual(
    [name, basename(second.folder), elsewhere, 'tutti-nats-mine'].toSorted(),
  )
  await Promise.all([first.close(), second.close()])
})
