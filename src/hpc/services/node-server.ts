/**
 * A server on a node. The node's agent stops it on `stop`, or when the script or the agent ends.
 */

import type { Job, TaskReport } from '../../backends/backend.ts'
import { TaggedJob } from '../../backends/job-tag.ts'
import type { ClusterConnection } from '../../cluster/io/driver/cluster-connection.ts'
import type { ResultReport } from '../../cluster/wire/results.ts'
import { type Clock, sleep } from '../../foundation/clock.ts'
import { BackendError, messageOf, StateError, TuttiError } from '../../foundation/errors.ts'
import { unlessAborted } from '../../foundation/promises.ts'
import { maskSecrets } from '../../foundation/secrets.ts'
import { inheritedEnvironment } from '../../runtime/server/guarded-server.ts'
import { LaunchError } from '../../runtime/server/guarded-server.ts'
import type {
  ServerAddress,
  ServerOrder,
  ServerProcess,
} from '../../runtime/server/node-servers.ts'
import { runServer } from '../../runtime/server/guarded-server.ts'
import { definitionOf } from '../../tasks/define-task.ts'
import { defaultResources } from '../../tasks/resources.ts'
import type { FunctionSpec, ProgramSpec, TaskSpec } from '../../tasks/spec.ts'
import { findServerAddress } from './server-place.ts'

export interface NodeServerParts {
  readonly order: ServerOrder
  readonly node: string
  readonly connection: ClusterConnection
  readonly sessionId: string
  /** The prefix of the job uids. */
  readonly uid: string
  readonly hasRoom: () => boolean
  /** An address of this machine that the node can reach. */
  readonly driverAddress: () => Promise<string>
  readonly clock: Clock
}

const roomPollMs = 100
const maxOutputLength = 8192
const launchErrnos = new Map([
  ['ExecutableNotFoundError', 'ENOENT'],
  ['ExecutableNotPermittedError', 'EACCES'],
])

/** The constructor starts the server. */
export class NodeServer implements ServerProcess {
  readonly launched: Promise<ServerAddress>
  readonly ended: Promise<string>
  readonly nodeId: string
  readonly #parts: NodeServerParts
  readonly #stopping = new AbortController()
  #output = ''

  constructor(parts: NodeServerParts) {
    this.#parts = parts
    this.nodeId = parts.node
    const { launched, ended } = runServer((launch) => this.#run(launch))
    this.launched = launched
    this.ended = ended
  }

  get output(): string {
    return this.#output
  }

  /** Does nothing, because the backend keeps this process alive anyway. */
  unref(): void {}

  async stop(): Promise<void> {
    this.#stopping.abort(new StateError('the server was stopped'))
    await this.ended
  }

  async #run(launch: PromiseWithResolvers<ServerAddress>): Promise<string> {
    const address = await this.#findAddress()
    const command = this.#parts.order.toCommand(address)
    const spec = toServerSpec(command, this.#parts.order)
    const result = await this.#runJob(spec, 'server', () => launch.resolve(address))
    this.#output = toOutput(result)
    launch.reject(toLaunchError(result, spec.executable))
    return toExitReason(result)
  }

  async #findAddress(): Promise<ServerAddress> {
    const { node, clock, hasRoom, driverAddress, order } = this.#parts
    const { signal } = this.#stopping
    signal.throwIfAborted()
    if (!hasRoom()) order.onWait(`waits until tasks on node ${node} have ended`)
    while (!hasRoom()) await sleep(clock, roomPollMs, { signal })
    const driver = await unlessAborted(signal, driverAddress())
    const result = await this.#runJob(toAddressSpec(driver), 'place', () => {})
    signal.throwIfAborted()
    if (result.kind === 'complete') return result.value as ServerAddress
    throw result.kind === 'fail' ? result.error : new StateError(result.reason)
  }

  #runJob(spec: TaskSpec, what: string, onStart: () => void): Promise<ResultReport> {
    const { connection, node, sessionId, uid } = this.#parts
    const { signal } = this.#stopping
    const { promise, resolve } = Promise.withResolvers<ResultReport>()
    const onReport = (report: TaskReport): void => {
      if (report.kind === 'start') onStart()
      else resolve(report)
    }
    const job = new ServerJob({ sessionId, uid: `${uid}.${what}`, spec, onReport })
    const cancel = (): void => connection.cancel(job, 'the server was stopped')
    signal.addEventListener('abort', cancel, { once: true })
    connection.submitTogether([job], {
      jobsPerNode: null,
      avoidedNode: null,
      node,
      onPlaced: () => {},
    })
    if (signal.aborted) cancel()
    return promise.finally(() => signal.removeEventListener('abort', cancel))
  }
}

function toOutput(result: ResultReport): string {
  const value = result.kind === 'complete' ? (result.value as Partial<Record<string, string>>) : {}
  const { stdout = value['stdout'], stderr = value['stderr'] } = result.facts ?? {}
  const parts = [stdout, stderr].map((text) => (text ?? '').trim()).filter((text) => text !== '')
  return maskSecrets(parts.join('\n').slice(-maxOutputLength)).trim()
}

function toExitReason(result: ResultReport): string {
  const { exitCode, signal } = result.facts ?? {}
  if (signal !== undefined) return signal
  if (exitCode !== undefined) return `exit code ${exitCode}`
  if (result.kind === 'fail') return messageOf(result.error)
  return result.kind === 'complete' ? 'exit code 0' : result.reason
}

function toLaunchError(result: ResultReport, program: string): Error {
  const error = result.kind === 'fail' ? result.error : null
  const errno = TuttiError.isInstance(error) ? launchErrnos.get(error.name) : undefined
  if (errno !== undefined) return new LaunchError(program, errno, messageOf(error))
  return new BackendError(`the server program "${program}" has ended with ${toExitReason(result)}`)
}

/** A job that runs a server, or that finds an address for a server. */
export class ServerJob extends TaggedJob implements Job {
  readonly sessionId: string
  readonly uid: string
  readonly attempt = 1
  readonly spec: TaskSpec
  readonly onReport: (report: TaskReport) => void

  constructor(fields: Pick<ServerJob, 'sessionId' | 'uid' | 'spec' | 'onReport'>) {
    super()
    this.sessionId = fields.sessionId
    this.uid = fields.uid
    this.spec = fields.spec
    this.onReport = fields.onReport
  }
}

const commonSpec = { priority: 0, timeoutSeconds: null, workDir: null }

function toAddressSpec(driver: string): FunctionSpec {
  const definition = definitionOf(findServerAddress)
  if (definition === undefined) throw new TypeError('the function is not defined')
  const { name: executable } = definition
  const resources = defaultResources
  return { kind: 'function', executable, definition, args: [driver], resources, ...commonSpec }
}

function toServerSpec(
  [executable = '', ...words]: readonly string[],
  { env, cores, gpus }: Pick<ServerOrder, 'env' | 'cores' | 'gpus'>,
): ProgramSpec {
  return {
    kind: 'program',
    executable,
    arguments: words,
    cwd: null,
    env: { ...toRemovedVariables(process.env), ...env },
    stdin: null,
    shell: false,
    captureStdio: null,
    killBackground: true,
    isFollowed: true,
    namedCores: null,
    resources: { ...defaultResources, cores, gpus },
    ...commonSpec,
  }
}

/** Variables that the agent inherits from the script but a server must not inherit. */
function toRemovedVariables(own: NodeJS.ProcessEnv): Record<string, null> {
  const kept = inheritedEnvironment(own)
  const names = Object.keys(own).filter((name) => !(name in kept))
  return Object.fromEntries(names.map((name) => [name, null]))
}
