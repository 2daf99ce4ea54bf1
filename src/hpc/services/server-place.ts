/** Finds an address and a free port for a server. Runs on the node of the server. */

import type { ServerAddress } from '../../runtime/server/node-servers.ts'
import { findFreePort } from '../../runtime/server/guarded-server.ts'
import { defineTask } from '../../tasks/define-task.ts'
import { findLocalAddress } from '../shared-address.ts'

/** Returns the address from which this node reaches the driver, and a free port. */
export const findServerAddress = defineTask(
  import.meta.url,
  async function findServerAddress(driver: string): Promise<ServerAddress> {
    const host = await findLocalAddress({ name: 'of the driver', address: driver })
    return { host, port: await findFreePort(host) }
  },
)
