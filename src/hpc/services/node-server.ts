/**
 * A server program on a node. The node's agent starts it with its GPUs. The agent stops it and all
 * its child processes when `stop` is called, when the script ends and when the agent dies.
 */

import type { Job, TaskReport } from '../../backends/backend.ts'
import type { ClusterConnection } from '../../cluster/driver/cluster-connection.ts'
import { type Clock, sleep } from '../../foundation/clock.ts'
import { BackendError, messageOf, StateError, TuttiError } from '../../foundation/errors.ts'
import { unlessAborted } from '../../foundation/promises.ts'
import { maskSecrets } from '../../foundation/secrets.ts'
import { LaunchError } from '../../runtime/server/guarded-server.ts'
import type {
  ServerAddress,
  ServerOrder,
  ServerProcess,
} from '../../runtime/server/node-servers.ts'
import { runServer } from '../../runtime/server/run-server.ts'
import type { TaskSpec } from '../../tasks/spec.ts'
import { ServerJob, toPlaceSpec, toServerSpec } from './server-job.ts'

export interface NodeServerParts {
  readonly order: ServerOrder
  readonly node: string
  readonly connection: ClusterConnection
  readonly sessionId: string
  /** The prefix of the uids of the server's jobs. */
  readonly uid: string
  /** Whether the resources that the server needs are not used by tasks. */
  readonly hasRoom: () => boolean
  /** An address of this machine that the node can reach. */
  readonly driverAddress: () => Promise<string>
  readonly clock: Clock
}

type EndReport = Exclude<TaskReport, { kind: 'start' }>

const roomPollMs = 100
const maxOutputLength = 8192
/** The errno for each error of a program that could not be started, by error name. */
const launchErrors = new Map([
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
    const address = await this.#findPlace()
    const command = this.#parts.order.toCommand(address)
    const spec = toServerSpec(command, this.#parts.order)
    const end = await this.#runJob(spec, 'server', () => launch.resolve(address))
    this.#output = outputOf(end)
    launch.reject(toLaunchError(end, spec.executable))
    return reasonOf(end)
  }

  async #findPlace(): Promise<ServerAddress> {
    const { node, clock, hasRoom, driverAddress, order } = this.#parts
    const { signal } = this.#stopping
    signal.throwIfAborted()
    if (!hasRoom()) order.onWait(`waits until tasks on node ${node} have ended`)
    while (!hasRoom()) await sleep(clock, roomPollMs, { signal })
    const driver = await unlessAborted(signal, driverAddress())
    const end = await this.#runJob(toPlaceSpec(driver), 'place', () => {})
    signal.throwIfAborted()
    if (end.kind === 'complete') return end.value as ServerAddress
    throw end.kind === 'fail' ? end.error : new StateError(end.reason)
  }

  /** Resolves with the job's last report. */
  #runJob(spec: TaskSpec, what: string, onStart: () => void): Promise<EndReport> {
    const { connection, node, sessionId, uid } = this.#parts
    const { signal } = this.#stopping
    const { promise, resolve } = Promise.withResolvers<EndReport>()
    const job: Job = new ServerJob({ sessionId, uid: `${uid}.${what}` }, spec, (report) => {
      if (report.kind === 'start') onStart()
      else resolve(report)
    })
    const cancel = (): void => connection.cancel(job, 'the server was stopped')
    signal.addEventListener('abort', cancel, { once: true })
    connection.submitTogether([job], { perNode: null, avoid: null, node, onPlaced: () => {} })
    if (signal.aborted) cancel()
    return promise.finally(() => signal.removeEventListener('abort', cancel))
  }
}

function outputOf(end: EndReport): string {
  const value = end.kind === 'complete' ? (end.value as Partial<Record<string, string>>) : {}
  const { stdout = value['stdout'], stderr = value['stderr'] } = end.facts ?? {}
  const parts = [stdout, stderr].map((text) => (text ?? '').trim()).filter((text) => text !== '')
  return maskSecrets(parts.join('\n').slice(-maxOutputLength)).trim()
}

function reasonOf(end: EndReport): string {
  const { exitCode, signal } = end.facts ?? {}
  if (signal !== undefined) return signal
  if (exitCode !== undefined) return `exit code ${exitCode}`
  if (end.kind === 'fail') return messageOf(end.error)
  return end.kind === 'complete' ? 'exit code 0' : end.reason
}

/** The error of a server that exited before its start was reported. */
function toLaunchError(end: EndReport, program: string): Error {
  const error = end.kind === 'fail' ? end.error : null
  const errno = TuttiError.isInstance(error) ? launchErrors.get(error.name) : undefined
  if (errno !== undefined) return new LaunchError(program, errno, messageOf(error))
  return new BackendError(`the server program "${program}" has ended with ${reasonOf(end)}`)
}
