/** The certificate of a server and its key, from two files that may be renewed. */

import { createPrivateKey, X509Certificate } from 'node:crypto'
import { createSecureContext, type Server } from 'node:tls'
import type { Clock } from '../../foundation/clock.ts'
import { messageOf, ValueError } from '../../foundation/errors.ts'
import type { Log } from '../../foundation/log.ts'
import { expectKnownKeys, expectObject, expectString } from '../../foundation/options.ts'
import { WatchedFiles } from './watched-files.ts'

/** The files of a server with TLS, in PEM form. */
export interface TlsFiles {
  /** The certificate, followed by those of intermediate authorities. */
  readonly certFile: string
  /** The private key of the certificate. */
  readonly keyFile: string
}

export function expectTlsFiles(field: string, value: unknown): TlsFiles {
  const files = expectObject(field, value)
  expectKnownKeys(field, files, ['certFile', 'keyFile'], `${field}.`)
  return {
    certFile: expectString(`${field}.certFile`, files['certFile']),
    keyFile: expectString(`${field}.keyFile`, files['keyFile']),
  }
}

/**
 * Reads the files now and whenever they change. New connections then get the new certificate.
 * Unusable files are reported and otherwise ignored, because a new certificate may be written
 * before its key.
 */
export async function watchTlsFiles(
  server: Server,
  { certFile, keyFile }: TlsFiles,
  { clock, log }: { readonly clock: Clock; readonly log: Log },
): Promise<{ close(): void }> {
  const names = `the certificate ${certFile} and the key ${keyFile}`
  const watchedFiles = await WatchedFiles.open({
    files: [certFile, keyFile],
    parse([cert = Buffer.alloc(0), key = Buffer.alloc(0)]) {
      expectPair(cert, key)
      server.setSecureContext({ cert, key })
    },
    onError(error) {
      const text = `${names} have changed, but cannot be used: ${messageOf(error)}`
      log.warn('CertificateUnusable', `${text}. The certificate that was used before stays.`)
    },
    clock,
  }).catch((error: unknown) => {
    const message = `tls (--tls-cert, --tls-key): ${names} cannot be used: ${messageOf(error)}`
    throw new ValueError(message, { field: 'tls' })
  })
  return watchedFiles
}

/**
 * Throws if the key does not belong to the certificate. Replaces the unclear messages of OpenSSL.
 */
function expectPair(cert: Buffer, key: Buffer): void {
  const refuse = (text: string, cause: unknown): Error => new Error(text, { cause })
  try {
    createSecureContext({ cert })
  } catch (error) {
    throw refuse('the first file has no certificate in PEM form', error)
  }
  let known
  try {
    known = createPrivateKey(key)
  } catch (error) {
    throw refuse('the second file has no private key in PEM form without a password', error)
  }
  if (!new X509Certificate(cert).checkPrivateKey(known)) {
    throw refuse('the key is not that of the certificate', undefined)
  }
  createSecureContext({ cert, key })
}
