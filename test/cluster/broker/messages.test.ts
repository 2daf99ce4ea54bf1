import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, it, onTestFinished, vi } from 'vitest'
import { connectToNats } from '../../../src/cluster/broker/nats.ts'
import { startNatsServer } from '../../../src/cluster/broker/nats-server.ts'
import { systemClock } from '../../../src/foundation/clock.ts'
import { processLog } from '../../../src/foundation/log.ts'
import { token } from '../test-token.ts'

it('errors of requests name no subjects', async () => {
  const server = await startNatsServer({ token, clock: systemClock })
  onTestFinished(() => server.close())
  const servers = [server.url]
  const broker = await connectToNats({ servers, token, name: 'asking', log: processLog })
  onTestFinished(() => broker.close())
  const nothing = new Uint8Array()
  await expect(broker.request('subject.nobody', nothing, 5000)).rejects.toThrow(
    /^no process answers: it has exited or is not connected$/,
  )
  broker.subscribe('subject.forger', (message) => message.respond(nothing))
  await expect(broker.requestAccepted('subject.forger', nothing, 200, () => false)).rejects.toThrow(
    /^no answer signed with the token came in time$/,
  )
})

it('a file that is no program is named with a hint', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'tutti-nats-program-'))
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }))
  const program = join(folder, 'nats-server')
  writeFileSync(program, 'no program', { mode: 0o755 })
  vi.stubEnv('TUTTI_NATS_SERVER', program)
  onTestFinished(() => void vi.unstubAllEnvs())
  await expect(startNatsServer({ token, clock: systemClock })).rejects.toMatchObject({
    code: 'NatsServerFailedError',
    hint: `Check that ${program} is a nats-server which this user may execute.`,
  })
})

it('a handler that throws is reported with its stack, and later messages come', async () => {
  const server = await startNatsServer({ token, clock: systemClock })
  onTestFinished(() => server.close())
  const warnings: string[] = []
  const log = { warn: (code: string, text: string) => void warnings.push(`${code}: ${text}`) }
  const broker = await connectToNats({ servers: [server.url], token, name: 'asking', log })
  onTestFinished(() => broker.close())
  broker.subscribe('subject.failing', function failingHandler(message) {
    if (message.data[0] === 1) throw new Error('of our own')
    message.respond(message.data)
  })
  broker.publish('subject.failing', Buffer.from([1]))
  const answer = await broker.request('subject.failing', Buffer.from([2]), 60_000)
  expect([...answer]).toEqual([2])
  expect(warnings).toEqual([
    expect.stringMatching(
      /^BrokerMessageFailed: a message could not .* is lost: Error: of our own\n.*failingHandler/,
    ),
  ])
})
