import { copyFileSync, readFileSync, writeFileSync } from 'node:fs'
import { once } from 'node:events'
import { request } from 'node:https'
import { connect } from 'node:net'
import { connect as connectTls } from 'node:tls'
import { expect, it } from 'vitest'
import { type Certificates, createCertificates } from '../../cluster/certificates.ts'
import { eventually } from '../../eventually.ts'
import { hello, raw, serve, type Served } from './served.ts'

const tlsOf = ({ cert, key }: Certificates) => ({ certFile: cert, keyFile: key })

/** Sends a request over TLS. The client trusts only the given authority. */
function send(
  { port }: Served,
  { ca }: Certificates,
  body: object,
): Promise<{ readonly status: number; readonly text: string }> {
  return new Promise((resolve, reject) => {
    const path = '/v1/chat/completions'
    const headers = { 'content-type': 'application/json', authorization: 'Bearer sk-canary' }
    const options = {
      host: '127.0.0.1',
      port,
      path,
      method: 'POST',
      headers,
      agent: false as const,
    }
    const sent = request({ ...options, ca: readFileSync(ca) }, (response) => {
      let text = ''
      response.on('data', (chunk: Buffer) => (text += String(chunk)))
      response.on('end', () => resolve({ status: response.statusCode ?? 0, text }))
    })
    sent.on('error', reject)
    sent.end(JSON.stringify(body))
  })
}

it('a server with a certificate answers over TLS, streams too', async () => {
  const certificates = createCertificates()
  await using served = await serve({ tls: tlsOf(certificates), apiKey: 'sk-canary' })
  expect(served.url).toMatch(/^https:/)
  const plain = await send(served, certificates, hello)
  expect([plain.status, JSON.parse(plain.text).choices[0].message.content]).toEqual([
    200,
    'hello there',
  ])
  const stream = await send(served, certificates, { ...hello, stream: true })
  expect(stream.text).toMatch(/data: \[DONE\]/)
  expect((await send(served, certificates, {})).status).toBe(400)
})

it('row 129: a renewed certificate is used by new connections, without a restart', async () => {
  const [first, second] = [createCertificates(), createCertificates()]
  await using served = await serve({ tls: tlsOf(first), apiKey: 'sk-canary' })
  const authority = { ...first }
  // A new certificate with the old key: the old certificate stays.
  copyFileSync(second.cert, first.cert)
  await eventually(() => expect(served.log.lines).toHaveLength(1))
  expect(served.log.lines[0]).toMatch(
    /^CertificateUnusable: .*: the key is not that of the certificate\. The/,
  )
  expect(served.log.lines[0]).not.toContain('BEGIN')
  expect((await send(served, authority, hello)).status).toBe(200)
  copyFileSync(second.key, first.key)
  await eventually(async () => expect((await send(served, second, hello)).status).toBe(200))
  await expect(send(served, authority, hello)).rejects.toThrow(/certificate/)
  writeFileSync(first.key, 'broken')
  await eventually(() => expect(served.log.lines).toHaveLength(2))
  expect((await send(served, second, hello)).status).toBe(200)
})

it('files that cannot be used are refused, without their text', async () => {
  const [first, second] = [createCertificates(), createCertificates()]
  const refused = async (certFile: string, keyFile: string): Promise<string> => {
    const error = await serve({ tls: { certFile, keyFile } }).then(
      () => null,
      (thrown: unknown) => thrown as Error & { field: string },
    )
    expect(error).toMatchObject({ name: 'ValueError', field: 'tls' })
    expect(error?.message).not.toContain('BEGIN')
    return error?.message ?? ''
  }
  expect(await refused(first.cert, second.key)).toMatch(/: the key is not that of the certificate$/)
  expect(await refused(first.cert, '/nowhere/key.pem')).toMatch(
    /: \/nowhere\/key\.pem does not exist$/,
  )
  expect(await refused(first.key, first.cert)).toMatch(/^tls \(--tls-cert.* no certificate in PEM/)
  expect(await refused(first.cert, first.cert)).toMatch(
    /: the second file has no private key in PEM/,
  )
})

it('row 74: clients that do not speak TLS, or stop in the handshake, disturb no one', async () => {
  const certificates = createCertificates()
  const served = await serve({ tls: tlsOf(certificates), limits: { headersTimeoutMs: 200 } })
  expect(await raw(served.port, 'GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n')).toBe('')
  const silent = connect(served.port, '127.0.0.1')
  await once(silent, 'connect')
  // The server closes it after the time limit of a handshake.
  silent.resume()
  await once(silent, 'close')
  const idle = connectTls({ port: served.port, host: '127.0.0.1', rejectUnauthorized: false })
  await once(idle, 'secureConnect')
  const unfinished = connect(served.port, '127.0.0.1')
  await once(unfinished, 'connect')
  expect((await send(served, certificates, hello)).status).toBe(200)
  const closed = [once(idle, 'close'), once(unfinished, 'close')]
  idle.resume()
  unfinished.resume()
  await served.server.stop()
  await Promise.all(closed)
  expect(served.log.lines).toEqual([])
})
