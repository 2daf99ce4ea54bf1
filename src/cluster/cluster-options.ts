/** Validates the options of a cluster backend and fills in defaults. */

import { networkInterfaces } from 'node:os'
import { type Clock, clockMethods, systemClock } from '../foundation/clock.ts'
import { ValueError } from '../foundation/errors.ts'
import { type Log, resolveLog } from '../foundation/log.ts'
import {
  expectBoolean,
  expectInteger,
  expectKnownKeys,
  expectMethods,
  expectNumber,
  expectObject,
  expectOneOf,
  expectString,
  invalid,
  isLoopbackHost,
} from '../foundation/options.ts'
import { registerSecret } from '../foundation/secrets.ts'
import { expectLabels } from '../tasks/resources.ts'
import { isPemText, type NatsOptions, type NatsTls } from './broker/nats.ts'
import {
  expectCertificateFile,
  expectCertificates,
  expectPrivateKeyFile,
  readCredentials,
  readSecretFile,
} from './credentials.ts'
import type { NodeFacts } from './wire/messages.ts'

/** How to reach the broker. */
export interface BrokerOptions {
  /** A URL such as `nats://host:4222`, or the URLs of several servers of one NATS cluster. */
  readonly servers: string | readonly string[]
  /**
   * The secret of the cluster: whoever has it can run code on every agent. All messages are signed
   * with it. It is also the broker's authentication token if neither `credentials` nor `user` is
   * given.
   */
  readonly token?: string
  /** The path of a file with the token. Only the file's owner may have access to it. */
  readonly tokenFile?: string
  /** The paths of PEM files. An empty object trusts the system's certificate authorities. */
  readonly tls?: NatsTls
  /** The path of a `.creds` file, or of a file with an NKey seed. */
  readonly credentials?: string
  readonly user?: string
  readonly passwordFile?: string
  /** Allows connections without TLS to a server on another machine. Default `false`. */
  readonly plaintext?: boolean
}

/** How a `ClusterBackend` reaches its broker, and when it gives up on agents and results. */
export interface ClusterBackendOptions extends BrokerOptions {
  /** Default `cluster`. */
  readonly name?: string
  /**
   * With `bundle`, the driver sends the modules. Default `shared`: agents have them at the same
   * paths.
   */
  readonly modules?: 'shared' | 'bundle'
  /**
   * How long tasks wait for an agent, and how long the broker may refuse a large value. Default 60.
   */
  readonly agentTimeoutSeconds?: number
  /** An agent counts as lost after this time of silence. Default 10. */
  readonly lossSeconds?: number
  /** How long agents continue the tasks of a driver that has disappeared. Default 60. */
  readonly ownerTtlSeconds?: number
  /** How long the broker keeps results for a driver that is restarted. Default 86,400. */
  readonly resultTtlSeconds?: number
  /** The largest node that may still join. Tasks that fit on it are not refused at submission. */
  readonly largestNode?: Partial<NodeFacts>
  /** `all` adds network and GPU readings to the samples of agents. Default `default`. */
  readonly sampling?: 'default' | 'all'
  readonly clock?: Clock
  readonly log?: Log
}

export interface ResolvedClusterOptions extends Required<
  Omit<ClusterBackendOptions, keyof BrokerOptions | 'largestNode'>
> {
  readonly broker: NatsOptions
  readonly token: string
  readonly largestNode: NodeFacts | null
}

const loginKeys = ['token', 'tokenFile', 'credentials', 'user', 'passwordFile']
export const brokerKeys = ['servers', ...loginKeys, 'tls', 'plaintext']
const timeKeys = ['agentTimeoutSeconds', 'lossSeconds', 'ownerTtlSeconds', 'resultTtlSeconds']
const ownKeys = ['name', 'modules', 'largestNode', 'sampling', 'clock', 'log']
const knownKeys = [...brokerKeys, ...timeKeys, ...ownKeys]

export function resolveClusterOptions(options: ClusterBackendOptions): ResolvedClusterOptions {
  expectKnownKeys('ClusterBackend', expectObject('options', options), knownKeys)
  const { name = 'cluster', modules = 'shared', sampling = 'default', largestNode } = options
  const { agentTimeoutSeconds = 60, lossSeconds = 10 } = options
  const { ownerTtlSeconds = 60, resultTtlSeconds = 86_400 } = options
  const log = resolveLog(options.log)
  const range = { above: 0, max: 30 * 86_400 }
  return {
    name: expectString('name', name),
    ...resolveBrokerOptions(options, `session backend ${name}`, log),
    modules: expectOneOf('modules', modules, ['shared', 'bundle']),
    sampling: expectOneOf('sampling', sampling, ['default', 'all']),
    agentTimeoutSeconds: expectNumber('agentTimeoutSeconds', agentTimeoutSeconds, range),
    lossSeconds: expectNumber('lossSeconds', lossSeconds, range),
    ownerTtlSeconds: expectNumber('ownerTtlSeconds', ownerTtlSeconds, range),
    resultTtlSeconds: expectNumber('resultTtlSeconds', resultTtlSeconds, range),
    largestNode: largestNode === undefined ? null : resolveNodeFacts('largestNode', largestNode),
    clock: expectMethods('clock', options.clock ?? systemClock, clockMethods),
    log,
  }
}

export function resolveBrokerOptions(
  options: BrokerOptions,
  clientName: string,
  log: Log,
): { readonly broker: NatsOptions; readonly token: string } {
  const { credentials, user, passwordFile } = options
  const token = resolveToken(options)
  const servers = resolveServers(options)
  // For the NATS client, TLS is optional with tls:// URLs. Only its option `tls` requires TLS.
  const isTls = servers.some((one) => toUrl(one)?.protocol === 'tls:')
  const tls = options.tls === undefined && isTls ? {} : options.tls
  const usesToken = credentials === undefined && user === undefined
  if (passwordFile !== undefined && user === undefined) {
    throw invalid('passwordFile', 'given only with `user`', passwordFile)
  }
  if (user !== undefined && passwordFile === undefined) {
    throw new ValueError('passwordFile: is needed with `user`', { field: 'passwordFile' })
  }
  if (credentials !== undefined && user !== undefined) {
    throw invalid('user', 'left out if `credentials` is given', user)
  }
  if (options.plaintext === true && servers.some((one) => !isLocal(one))) warnOfPlaintext(log)
  return {
    token,
    broker: {
      servers,
      name: clientName,
      log,
      ...(usesToken ? { token } : {}),
      ...(user === undefined ? {} : { user: expectString('user', user) }),
      ...(passwordFile === undefined
        ? {}
        : { password: readSecretFile('passwordFile', passwordFile) }),
      ...(credentials === undefined
        ? {}
        : { credentials: readCredentials('credentials', credentials) }),
      ...(tls === undefined ? {} : { tls: resolveTls(tls) }),
    },
  }
}

const warnedLogs = new WeakSet<Log>()

function warnOfPlaintext(log: Log): void {
  if (warnedLogs.has(log)) return
  warnedLogs.add(log)
  log.warn('PlaintextBroker', 'messages to the broker are signed, but not encrypted (plaintext)')
}

function resolveToken({ token, tokenFile }: BrokerOptions): string {
  if (token !== undefined && tokenFile !== undefined) {
    throw invalid('tokenFile', 'left out if `token` is given', tokenFile)
  }
  if (tokenFile !== undefined) return readSecretFile('tokenFile', tokenFile)
  if (token === undefined) {
    throw new ValueError('token: a cluster needs `token` or `tokenFile`', { field: 'token' })
  }
  registerSecret(token, 'token')
  return token
}

function resolveServers({ servers, tls, plaintext = false }: BrokerOptions): readonly string[] {
  const list: readonly unknown[] = Array.isArray(servers) ? servers : [servers]
  if (list.length === 0) throw invalid('servers', 'a URL or a list of URLs', servers)
  expectBoolean('plaintext', plaintext)
  return list.map((one, at) => {
    const field = Array.isArray(servers) ? `servers[${at}]` : 'servers'
    const text = expectString(field, one)
    const url = toUrl(text)
    if (url === null || url.hostname === '' || !/^(?:nats|tls):$/.test(url.protocol)) {
      throw invalid(field, 'a URL such as nats://host:4222', one)
    }
    if (url.username !== '' || url.password !== '') {
      throw new ValueError(`${field}: expected a URL without credentials`, {
        field,
        hint: 'Use `tokenFile`, `user` with `passwordFile`, or `credentials`.',
      })
    }
    const isEncrypted = tls !== undefined || url.protocol === 'tls:'
    if (!isEncrypted && !plaintext && !isLocal(text)) {
      throw new ValueError(`${field}: ${url.host} is not on this machine and needs TLS`, {
        field,
        hint: 'Give `tls`, or `plaintext: true` on a network that you trust.',
      })
    }
    return text
  })
}

/** Whether the address belongs to this machine, so that messages do not leave it. */
function isLocal(server: string): boolean {
  const host = toUrl(server)?.hostname.replace(/^\[|\]$/g, '') ?? ''
  if (host === '' || isLoopbackHost(host)) return host !== ''
  const ownAddresses = Object.values(networkInterfaces()).flatMap((addresses = []) => addresses)
  return ownAddresses.some(({ address }) => address === host.toLowerCase())
}

const toUrl = (text: string): URL | null =>
  URL.parse(/^[a-z]+:\/\//i.test(text) ? text : `nats://${text}`)

function resolveTls(tls: NatsTls): NatsTls {
  expectKnownKeys('tls', expectObject('tls', tls), ['ca', 'cert', 'key'], 'tls.')
  const { ca, cert, key } = tls
  if ((cert === undefined) !== (key === undefined)) {
    const [missing, given] = cert === undefined ? ['cert', 'key'] : ['key', 'cert']
    const field = `tls.${missing}`
    throw new ValueError(`${field}: is needed with \`tls.${given}\``, { field })
  }
  if (ca !== undefined) {
    if (isPemText(expectString('tls.ca', ca))) expectCertificates('tls.ca', ca, 'the text')
    else expectCertificateFile('tls.ca', ca)
  }
  if (cert !== undefined) expectCertificateFile('tls.cert', cert)
  if (key !== undefined) expectPrivateKeyFile('tls.key', key)
  return tls
}

function resolveNodeFacts(field: string, node: Partial<NodeFacts>): NodeFacts {
  const keys = ['cores', 'gpus', 'memoryMb', 'labels']
  expectKnownKeys(field, expectObject(field, node), keys, `${field}.`)
  const { cores = 1, gpus = 0, memoryMb = 0, labels = {} } = node
  return {
    cores: expectInteger(`${field}.cores`, cores, { min: 1 }),
    gpus: expectInteger(`${field}.gpus`, gpus, { min: 0 }),
    memoryMb: expectNumber(`${field}.memoryMb`, memoryMb, { min: 0 }),
    labels: expectLabels(`${field}.labels`, labels),
  }
}
