/** Runs on a node: finds an address and a free port for a server there. */

import { findFreePort } from '../../runtime/server/free-port.ts'
import type { ServerAddress } from '../../runtime/server/node-servers.ts'
import { defineTask } from '../../tasks/define-task.ts'
import { addressTowards } from '../shared-address.ts'

/**
 * Returns the address from which this node sends packets to the driver, so that the driver can
 * reach it.
 */
export const findServerPlace = defineTask(
  import.meta.url,
  async function findServerPlace(driver: string): Promise<ServerAddress> {
    const host = await addressTowards({ name: 'of the driver', address: driver })
    return { host, port: await findFreePort(host) }
  },
)
