/** An authority of our own, and a certificate of it for the loopback address and for a client. */

import { execFileSync } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { onTestFinished } from 'vitest'

export interface Certificates {
  readonly ca: string
  readonly cert: string
  readonly key: string
}

/** Files in PEM form, removed with the test. */
export function createCertificates(): Certificates {
  const folder = mkdtempSync(join(tmpdir(), 'tutti-tls-'))
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }))
  const file = (name: string): string => join(folder, name)
  const openssl = (...args: readonly string[]): void => {
    execFileSync('openssl', args, { stdio: ['ignore', 'ignore', 'pipe'] })
  }
  const newKey = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes']
  const ca = ['-keyout', file('ca.key'), '-out', file('ca.pem'), '-subj', '/CN=test authority']
  openssl('req', '-x509', ...newKey, '-days', '2', ...ca)
  const request = ['-keyout', file('key.pem'), '-out', file('request.pem'), '-subj', '/CN=broker']
  openssl('req', '-new', ...newKey, ...request)
  writeFileSync(file('names'), 'subjectAltName=IP:127.0.0.1')
  const signing = ['-CA', file('ca.pem'), '-CAkey', file('ca.key'), '-CAcreateserial']
  const result = ['-in', file('request.pem'), '-out', file('cert.pem'), '-extfile', file('names')]
  openssl('x509', '-req', '-days', '2', ...signing, ...result)
  return { ca: file('ca.pem'), cert: file('cert.pem'), key: file('key.pem') }
}
