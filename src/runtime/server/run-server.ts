/** The promises of a `ServerProcess`: that its program runs, and how it ended. */

import { messageOf } from '../../foundation/errors.ts'
import type { ServerAddress, ServerProcess } from './node-servers.ts'

type Launch = PromiseWithResolvers<ServerAddress>

/**
 * Calls `run` at once. It settles `launch` when the program runs or cannot be started, and resolves
 * with the reason of the program's end. If it throws, both promises tell why.
 */
export function runServer(
  run: (launch: Launch) => Promise<string>,
): Pick<ServerProcess, 'launched' | 'ended'> {
  const launch: Launch = Promise.withResolvers()
  // A server that is stopped before anybody has asked for its address raises no rejection.
  launch.promise.catch(() => {})
  const ended = run(launch).catch((error: unknown) => {
    launch.reject(error)
    return messageOf(error)
  })
  return { launched: launch.promise, ended }
}
