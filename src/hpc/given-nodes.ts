/** Finds the nodes of an HPC backend: a list of hosts, or the nodes of a Slurm job. */

import type { Clock } from '../foundation/clock.ts'
import { StateError, ValueError } from '../foundation/errors.ts'
import type { Allocation } from './allocation.ts'
import { HostListAllocation, sshCommand } from './host-list-allocation.ts'
import { expectHosts, type ResolvedHpcOptions } from './hpc-options.ts'
import { toBatchOptions } from './launch/batch-job.ts'
import { PlaceholderJob } from './launch/placeholder-job.ts'
import { newAllocationFolder } from './launch/launch-folder.ts'
import { findSources, type PilotSource } from './pilots/pilot-sources.ts'
import { SlurmAllocation } from './slurm/slurm-allocation.ts'
import { SlurmCommands } from './slurm/slurm-commands.ts'
import { leaveMark, useStartMethod } from './start-method.ts'

/** The nodes of the launch, and the sources of further nodes. */
export interface LaunchNodes {
  readonly allocation: Allocation | null
  readonly sources: readonly PilotSource[]
  /** The job of `allocation` if this process submitted it; otherwise `null`. */
  readonly placeholder: PlaceholderJob | null
}

/** Finds the nodes. Throws if the options do not fit the launch or the time limit is too short. */
export async function findNodes(resolved: ResolvedHpcOptions): Promise<LaunchNodes> {
  const given = await openNodes(resolved)
  try {
    if (given.allocation !== null) expectEnoughTime(given.allocation, resolved.graceSeconds)
    return given
  } catch (error) {
    await given.placeholder?.close()
    throw error
  }
}

async function openNodes(resolved: ResolvedHpcOptions): Promise<LaunchNodes> {
  const { hosts, allocations, clock, graceSeconds } = resolved
  const { method, facts } = useStartMethod()
  if (method === 'hosts') {
    if (allocations !== null) throw invalidOption('allocations', 'there is no scheduler to ask')
    return { allocation: openHosts(hosts ?? expectHosts(facts.hosts), clock), ...noSources }
  }
  if (hosts !== null) {
    const hint = "Use setStartMethod('hosts')."
    throw invalidOption('hosts', 'Slurm names the nodes; they cannot be given', hint)
  }
  const commands = new SlurmCommands()
  const jobId = facts.jobId ?? (facts.driver === 'here' ? '' : process.env['SLURM_JOB_ID']) ?? ''
  if (allocations === null) {
    if (jobId !== '') {
      return { allocation: await SlurmAllocation.open(jobId, commands, clock), ...noSources }
    }
    const placeholder = await holdOneNode(commands, clock)
    return { allocation: placeholder.allocation, sources: [], placeholder }
  }
  if (facts.driver !== 'here') {
    const text = 'the script runs in an allocation, and would end with it'
    throw invalidOption('allocations', text, 'Start it with tutti launch --driver here.')
  }
  const sources = await findSources(allocations, commands, graceSeconds)
  leaveMark('elastic')
  const allocation = jobId === '' ? null : await SlurmAllocation.open(jobId, commands, clock)
  return { allocation, sources, placeholder: null }
}

const noSources = { sources: [], placeholder: null } as const

const invalidOption = (field: string, text: string, hint?: string): ValueError =>
  new ValueError(`${field}: ${text}`, { field, ...(hint === undefined ? {} : { hint }) })

function openHosts(hosts: readonly string[], clock: Clock): Allocation {
  const shell = process.env['TUTTI_REMOTE_SHELL']?.trim() ?? ''
  const remoteShell = shell === '' ? sshCommand : shell.split(/\s+/)
  return new HostListAllocation({ hosts, remoteShell, clock })
}

/**
 * Requests one node. Called for a script that runs on this machine and was launched without nodes.
 */
async function holdOneNode(commands: SlurmCommands, clock: Clock): Promise<PlaceholderJob> {
  const folder = newAllocationFolder()
  const placeholder = await PlaceholderJob.open({
    batch: toBatchOptions({ nodes: 1, more: [] }, 'tutti', folder),
    folder,
    commands,
    clock,
    onStatus: () => {},
    signal: new AbortController().signal,
  })
  if (placeholder === null) throw new StateError('the allocation was given up')
  return placeholder
}

/** Throws if the allocation is too short for the announcements of its end. */
function expectEnoughTime({ label, limitSeconds }: Allocation, graceSeconds: number): void {
  const min = 2 * graceSeconds
  if (limitSeconds === null || limitSeconds >= min) return
  const text = `${label} has ${limitSeconds} s, which is less than twice graceSeconds`
  throw new ValueError(`graceSeconds: ${text} (${graceSeconds})`, {
    field: 'graceSeconds',
    hint: `Ask for at least ${min} s, or give a shorter graceSeconds.`,
  })
}
