/** The promises of a `ServerProcess`: that its program runs, and how it ended. */

import { messageOf } from '../../foundation/errors.ts'
import type { ServerAddress, ServerProcess } from './node-servers.ts'

type Launch = PromiseWithResolvers<ServerAddress>

/**
 * Calls `run` at once, which settles `launch` when the program runs or cannot be started, and
 * resolves with the reason of the program's end. If it throws, both promises report the error.
 */
export function runServer(
  run: (launch: Launch) => Promise<string>,
): Pick<ServerProcess, 'launched' | 'ended'> {
  const launch: Launch = Promise.withResolvers()
  // A server that is stopped before `launched` is awaited must not cause an unhandled rejection.
  launch.promise.catch(() => {})
  const ended = run(launch).catch((error: unknown) => {
    launch.reject(error)
    return messageOf(error)
  })
  return { launched: launch.promise, ended }
}
