/** The options of the HPC backend, and their validation. */

import { type Clock, clockMethods, systemClock } from '../foundation/clock.ts'
import { type Log, resolveLog } from '../foundation/log.ts'
import {
  expectKnownKeys,
  expectMethods,
  expectNumber,
  expectObject,
  expectString,
  invalid,
} from '../foundation/options.ts'
import { isHostName } from './host-list-allocation.ts'
import { type AllocationsOptions, resolveAllocations } from './pilots/pilot-options.ts'

/** The options of `HpcBackend.create`. */
export interface HpcBackendOptions {
  /** Default `hpc`. */
  readonly name?: string
  /** Host names for the start method `hosts`. Default: the hosts of `tutti launch --hosts`. */
  readonly hosts?: readonly string[]
  /** Kinds of allocations to request for waiting tasks, with `--driver here`. Default: none. */
  readonly allocations?: AllocationsOptions | readonly AllocationsOptions[]
  /** How many seconds before its time limit an allocation gets no more tasks. Default 60. */
  readonly graceSeconds?: number
  readonly clock?: Clock
  readonly log?: Log
}

export type ResolvedHpcOptions = ReturnType<typeof resolveHpcOptions>

export function resolveHpcOptions(options: HpcBackendOptions) {
  const keys = ['name', 'hosts', 'allocations', 'graceSeconds', 'clock', 'log']
  expectKnownKeys('HpcBackend', expectObject('options', options), keys)
  const { name = 'hpc', hosts, allocations } = options
  const grace = options.graceSeconds ?? 60
  const graceSeconds = expectNumber('graceSeconds', grace, { min: 0, max: 86_400 })
  return {
    name: expectString('name', name),
    hosts: hosts === undefined ? null : expectHosts(hosts),
    allocations: allocations === undefined ? null : resolveAllocations(allocations, graceSeconds),
    graceSeconds,
    clock: expectMethods('clock', options.clock ?? systemClock, clockMethods),
    log: resolveLog(options.log),
  }
}

export function expectHosts(hosts: unknown): readonly string[] {
  if (!Array.isArray(hosts) || hosts.length === 0) {
    throw invalid('hosts', 'a list of host names', hosts)
  }
  return hosts.map((one: unknown, at) => {
    const field = `hosts[${at}]`
    const host = expectString(field, one)
    if (isHostName(host) && hosts.indexOf(one) === at) return host
    throw invalid(field, 'the name of a host, given once', host)
  })
}
