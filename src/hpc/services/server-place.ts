/** Runs on a node: finds an address for a server there. */

import { findFreePort } from '../../runtime/server/free-port.ts'
import type { ServerAddress } from '../../runtime/server/node-servers.ts'
import { defineTask } from '../../tasks/define-task.ts'
import { addressTowards } from '../shared-address.ts'

/** An address of this node from which packets to the driver come, so that the driver reaches it. */
export const findServerPlace = defineTask(
  import.meta.url,
  async function findServerPlace(driver: string): Promise<ServerAddress> {
    const host = await addressTowards({ name: 'of the driver', address: driver })
    return { host, port: await findFreePort(host) }
  },
)
