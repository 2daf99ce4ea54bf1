/** A list of nodes that are reached by a remote shell, for clusters without a scheduler. */

import type { Clock } from '../foundation/clock.ts'
import { messageOf, ValueError } from '../foundation/errors.ts'
import type { JsonObject } from '../foundation/json-value.ts'
import { readTextFileSync } from '../foundation/regular-file.ts'
import type {
  AllocatedNode,
  Allocation,
  AllocationState,
  NodeCommand,
  RankCommand,
} from './allocation.ts'
import { quoteForShell } from './quote.ts'
import { RemoteProcess } from './remote-process.ts'

export interface HostListOptions {
  readonly hosts: readonly string[]
  /** A command such as `ssh`, to which a host and a command line are appended. */
  readonly remoteShell: readonly string[]
  readonly clock: Clock
}

/**
 * The default remote shell. It never asks for a password, and does not wait long for a host that is
 * down.
 */
export const sshCommand = ['ssh', '-o', 'BatchMode=yes', '-o', 'ConnectTimeout=10'] as const

/** Excludes text that a remote shell would parse as an option. */
export const isHostName = (text: string): boolean => /^[\w[][\w.:@\]-]*$/.test(text)

export class HostListAllocation implements Allocation {
  readonly label: string
  readonly nodes: readonly AllocatedNode[]
  readonly limitSeconds = null
  readonly hasThisProcess = false
  readonly facts: JsonObject
  readonly #options: HostListOptions

  constructor(options: HostListOptions) {
    const { hosts } = options
    this.label = `${hosts.length} hosts`
    this.nodes = hosts.map((name) => ({ name, address: name, memoryMb: null }))
    this.facts = { nodes: hosts }
    this.#options = options
  }

  state(): Promise<AllocationState> {
    return Promise.resolve({ endsAt: null, lost: null, isEnding: false })
  }

  start(nodes: readonly AllocatedNode[], given: NodeCommand): RemoteProcess[] {
    const { command, ...streams } = given
    const { remoteShell, clock } = this.#options
    return nodes.map(({ name }) => {
      const words = [...command, name].map((word) => quoteForShell('a command', word))
      const line = `exec ${words.join(' ')}`
      return new RemoteProcess({
        command: [...remoteShell, name, line],
        env: process.env,
        ...streams,
        clock,
      })
    })
  }

  /** Starts the ranks with `mpirun`, which must be on PATH on this machine and on the nodes. */
  startRanks({ nodes, command, onOutput }: RankCommand): RemoteProcess {
    const { remoteShell, clock } = this.#options
    const counts = new Map<string, number>()
    for (const name of nodes) counts.set(name, (counts.get(name) ?? 0) + 1)
    const hosts = Array.from(counts, ([name, count]) => `${name}:${count}`).join(',')
    const shell = ['--mca', 'plm_rsh_agent', remoteShell.join(' ')]
    const size = ['--host', hosts, '-n', String(nodes.length), '--map-by', 'slot']
    return new RemoteProcess({
      command: ['mpirun', ...shell, ...size, '--bind-to', 'none', ...command],
      // Allows `mpirun` to run as root, as in containers.
      env: { ...process.env, OMPI_ALLOW_RUN_AS_ROOT: '1', OMPI_ALLOW_RUN_AS_ROOT_CONFIRM: '1' },
      input: '',
      clock,
      onOutput,
    })
  }
}

/** Reads a file with one host per line and `#` comments. The error names an invalid line. */
export function readHostFile(file: string): readonly string[] {
  let text: string
  try {
    text = readTextFileSync(file)
  } catch (cause) {
    throw invalidFileError(`cannot be read: ${messageOf(cause)}`, file)
  }
  const lineNumbers = new Map<string, number>()
  for (const [index, line] of text.split('\n').entries()) {
    const host = line.replace(/#.*/, '').trim()
    if (host === '') continue
    const at = `${file}:${index + 1}`
    if (!isHostName(host))
      throw invalidFileError(`${JSON.stringify(host)} is no name of a host`, at)
    const firstLine = lineNumbers.get(host)
    if (firstLine !== undefined)
      throw invalidFileError(`${host} is on line ${firstLine} as well`, at)
    lineNumbers.set(host, index + 1)
  }
  if (lineNumbers.size === 0) throw invalidFileError('names no host', file)
  return [...lineNumbers.keys()]
}

const invalidFileError = (message: string, at: string): ValueError =>
  new ValueError(`--hosts: ${at}: ${message}`, {
    field: '--hosts',
    expected: 'one host name or address per line',
  })
