/** `tutti/hpc`: runs tasks on the nodes of a supercomputer. */

import '../foundation/require-node.ts'

export { HpcBackend } from './hpc-backend.ts'
export type { HpcBackendOptions } from './hpc-options.ts'
export type { AllocationsOptions } from './pilots/pilot-options.ts'
export { setStartMethod } from './start-method.ts'
export type { StartMethod } from './start-method.ts'
export { SchedulerError } from './slurm/slurm-commands.ts'
export type { SchedulerErrorDetails } from './slurm/slurm-commands.ts'
export type * from '../runtime/server/node-servers.ts'
