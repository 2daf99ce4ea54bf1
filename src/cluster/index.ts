/** `tutti/cluster`: tasks on many machines. */

import '../foundation/require-node.ts'

export type { NatsTls } from './broker/nats.ts'
export type { NodeFacts } from './wire/messages.ts'
export { ClusterBackend } from './cluster-backend.ts'
export type { ClusterBackendOptions } from './cluster-options.ts'
export type { LocalClusterOptions } from './local-cluster.ts'
