/** Finds the address by which other nodes reach this machine. */

import { createSocket } from 'node:dgram'
import { lookup } from 'node:dns/promises'
import { BackendError, messageOf } from '../foundation/errors.ts'
import { isLoopbackHost } from '../foundation/options.ts'
import type { AllocatedNode } from './allocation.ts'

/** Any port works, because nothing is sent. */
const port = 9

/** Returns a loopback address only if all nodes are this machine. */
export async function findSharedAddress(nodes: readonly AllocatedNode[]): Promise<string> {
  let address = '127.0.0.1'
  // Starts with the last node. The first is often this machine, whose name may resolve to loopback.
  for (const node of nodes.toReversed()) {
    address = await findLocalAddress(node)
    if (!isLoopbackHost(address)) break
  }
  return address
}

/** Returns the source address of packets to this node. */
export async function findLocalAddress({
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
