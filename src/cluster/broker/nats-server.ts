/** A private nats-server for this process, with a store and a token of its own. */

import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { delimiter, join, resolve } from 'node:path'
import { type Clock, sleep } from '../../foundation/clock.ts'
import { BackendError, messageOf } from '../../foundation/errors.ts'
import { GuardedServer } from '../../runtime/server/guarded-server.ts'

export interface NatsServer {
  readonly url: string
  /** Its store and its configuration; removed with the server. */
  readonly folder: string
  close(): Promise<void>
}

export interface NatsServerOptions {
  readonly token: string
  readonly clock: Clock
  /** Default 127.0.0.1. */
  readonly host?: string
  /** Encrypts; both in PEM form. */
  readonly tls?: { readonly certificate: string; readonly key: string }
}

const startMs = 10_000
const pollMs = 20

/** Where a project may keep the program, for machines that do not have it. */
const projectPath = join('node_modules', '.tutti', 'nats-server')

/** The server's program: `TUTTI_NATS_SERVER`, the first on PATH, or the one of the project. */
export function findNatsServer(): string {
  const named = process.env['TUTTI_NATS_SERVER']
  if (named !== undefined && named !== '') {
    if (!named.includes('/') || existsSync(named)) return named
    throw notFound(`at ${named}, which TUTTI_NATS_SERVER names`)
  }
  const folders = [...(process.env['PATH'] ?? '').split(delimiter), '/usr/sbin', '/usr/local/sbin']
  const files = [...folders.map((folder) => join(folder, 'nats-server')), resolve(projectPath)]
  const found = files.find((file) => existsSync(file))
  if (found !== undefined) return found
  throw notFound('on PATH')
}

const notFound = (where: string): BackendError =>
  new BackendError(`nats-server was not found ${where}`, {
    code: 'NatsServerMissingError',
    hint:
      'Install it so that it is on PATH (Debian: apt-get install nats-server), name it in ' +
      `TUTTI_NATS_SERVER, or put it at ${projectPath}.`,
  })

/** Ends with this process, also when it is killed. */
export async function startNatsServer(options: NatsServerOptions): Promise<NatsServer> {
  const { token, clock, host = '127.0.0.1', tls } = options
  const program = findNatsServer()
  const folder = mkdtempSync(join(tmpdir(), 'tutti-nats-'))
  const ports = join(folder, 'ports')
  const configuration = join(folder, 'server.conf')
  mkdirSync(ports)
  // In a file, because the arguments of a process can be read by everybody.
  const lines = [
    `listen: ${JSON.stringify(`${host}:-1`)}`,
    `jetstream { store_dir: ${JSON.stringify(join(folder, 'store'))} }`,
    `authorization { token: ${JSON.stringify(token)} }`,
    `ports_file_dir: ${JSON.stringify(ports)}`,
    ...(tls === undefined ? [] : [toTlsLine(tls, folder)]),
  ]
  writeFileSync(configuration, `${lines.join('\n')}\n`, { mode: 0o600 })
  const { PATH = '' } = process.env
  const server = new GuardedServer({
    command: [program, '-c', configuration],
    env: { PATH },
    guardEnv: { PATH },
    graceMs: 2000,
    clock,
    folder,
    onLine: () => {},
  })
  const close = async (): Promise<void> => {
    await server.stop()
    // Its guard has done that, unless somebody killed it.
    rmSync(folder, { recursive: true, force: true, maxRetries: 10 })
  }
  try {
    await server.launched
    const url = await findUrl(ports, server, clock)
    server.unref()
    return { url, folder, close }
  } catch (error) {
    await close()
    throw new BackendError(`nats-server cannot be started: ${messageOf(error)}`, {
      code: 'NatsServerFailedError',
      hint: `Check that ${program} is a nats-server which this user may execute.`,
      cause: error,
    })
  }
}

function toTlsLine(tls: { certificate: string; key: string }, folder: string): string {
  const [certificate, key] = [join(folder, 'certificate.pem'), join(folder, 'key.pem')]
  writeFileSync(certificate, tls.certificate)
  writeFileSync(key, tls.key, { mode: 0o600 })
  return `tls { cert_file: ${JSON.stringify(certificate)}, key_file: ${JSON.stringify(key)} }`
}

/** The server writes down which port it has. */
async function findUrl(folder: string, server: GuardedServer, clock: Clock): Promise<string> {
  let exit: string | null = null
  void server.ended.then((reason) => (exit = reason))
  const untilMs = clock.monotonicMs() + startMs
  while (clock.monotonicMs() < untilMs) {
    if (exit !== null) throw new Error(`it ended with ${exit as string}: ${server.output}`)
    const file = readdirSync(folder).find((name) => name.endsWith('.ports'))
    const text = file === undefined ? '' : readFileSync(join(folder, file), 'utf8')
    const url = /"((?:nats|tls):\/\/[^"]+)"/.exec(text)?.[1]
    if (url !== undefined) return url
    await sleep(clock, pollMs)
  }
  throw new Error(`it was not ready within ${startMs / 1000} s: ${server.output}`)
}
