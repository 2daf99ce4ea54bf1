import { X509Certificate } from 'node:crypto'
import { expect, it, onTestFinished } from 'vitest'
import { startNatsServer } from '../../src/cluster/broker/nats-server.ts'
import { ClusterBackend } from '../../src/cluster/cluster-backend.ts'
import { systemClock } from '../../src/foundation/clock.ts'
import { createRunCertificate } from '../../src/hpc/certificate.ts'

it('the certificate of a run names its addresses and is valid around now', () => {
  const now = Date.parse('2031-02-03T04:05:06Z') / 1000
  const { certificate } = createRunCertificate(['10.1.2.3', 'fe80::1:2', '::1'], now)
  const read = new X509Certificate(certificate)
  expect(read.verify(read.publicKey)).toBe(true)
  expect(['10.1.2.3', 'fe80::1:2', '::1'].map((one) => read.checkIP(one))).not.toContain(undefined)
  expect([read.checkIP('10.1.2.4'), read.subjectAltName?.split(', ').length]).toEqual([
    undefined,
    3,
  ])
  expect(Date.parse(read.validFrom) / 1000).toBe(now - 86_400)
  expect(Date.parse(read.validTo) / 1000).toBe(now + 400 * 86_400)
  const text = createRunCertificate(['10.1.2.3'], now).certificate
  expect(new X509Certificate(text).serialNumber).not.toBe(read.serialNumber)
})

it('only a client with the certificate of the run talks to its server', async () => {
  const tls = createRunCertificate(['127.0.0.1'], systemClock.now())
  const token = 'a token of the tests'
  const server = await startNatsServer({ token, clock: systemClock, tls })
  onTestFinished(() => server.close())
  const connect = (ca: string): Promise<ClusterBackend> =>
    ClusterBackend.create({ servers: server.url, token, tls: { ca } })
  await using backend = await connect(tls.certificate)
  expect(backend.nodes).toEqual([])
  const other = createRunCertificate(['127.0.0.1'], systemClock.now())
  await expect(connect(other.certificate)).rejects.toMatchObject({ code: 'BrokerUnavailableError' })
  const elsewhere = createRunCertificate(['127.0.0.2'], systemClock.now())
  const wrong = await startNatsServer({ token, clock: systemClock, tls: elsewhere })
  onTestFinished(() => wrong.close())
  const there = ClusterBackend.create({
    servers: wrong.url,
    token,
    tls: { ca: elsewhere.certificate },
  })
  await expect(there).rejects.toMatchObject({ code: 'BrokerUnavailableError' })
})
