/** Which address of this machine other nodes can reach. */

import { createSocket } from 'node:dgram'
import { lookup } from 'node:dns/promises'
import { BackendError, messageOf } from '../foundation/errors.ts'
import { isLoopbackHost } from '../foundation/options.ts'
import type { AllocatedNode } from './allocation.ts'

/** Any: nothing is sent. */
const port = 9

/** Loopback only where no node is elsewhere. */
export async function addressSharedWith(nodes: readonly AllocatedNode[]): Promise<string> {
  let own = '127.0.0.1'
  // This machine is often the first node, whose name may mean loopback here.
  for (const node of nodes.toReversed()) {
    own = await addressTowards(node)
    if (!isLoopbackHost(own)) break
  }
  return own
}

/** The address from which packets to that node would come. */
export async function addressTowards({
  name,
  address: host,
}: Pick<AllocatedNode, 'name' | 'address'>): Promise<string> {
  try {
    const { address, family } = await lookup(host)
    const socket = createSocket(family === 6 ? 'udp6' : 'udp4')
    const { promise: connected, resolve, reject } = Promise.withResolvers<void>()
    socket.on('error', reject)
    socket.connect(port, address, resolve)
    try {
      await connected
      return socket.address().address
    } finally {
      socket.close()
    }
  } catch (error) {
    throw new BackendError(`node ${name} cannot be reached at ${host}: ${messageOf(error)}`, {
      code: 'NodeUnreachableError',
      cause: error,
    })
  }
}
