/** One server and its agents for all tests of a file. */

import { afterAll } from 'vitest'
import { ClusterBackend } from '../../src/cluster/cluster-backend.ts'
import type { ClusterBackendOptions } from '../../src/cluster/cluster-options.ts'
import { type LocalClusterOptions, startLocalCluster } from '../../src/cluster/local-cluster.ts'

/** Started by the first call. Each backend is closed by the test that has connected it. */
export function sharedCluster(
  options: LocalClusterOptions,
): (more?: Partial<ClusterBackendOptions>) => Promise<ClusterBackend> {
  let starting: ReturnType<typeof startLocalCluster> | null = null
  afterAll(async () => {
    const cluster = await starting
    await cluster?.close()
  })
  return async (more = {}) => {
    starting ??= startLocalCluster(options)
    const { url, token, ready } = await starting
    await ready
    return ClusterBackend.create({ servers: url, token, ...more })
  }
}
