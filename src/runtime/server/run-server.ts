/** The promises of a `ServerProcess`: `launched` and `ended`. */

import { messageOf } from '../../foundation/errors.ts'
import type { ServerAddress, ServerProcess } from './node-servers.ts'

type Launch = PromiseWithResolvers<ServerAddress>

/**
 * Calls `run` immediately. `run` must settle `launch` when the program runs or cannot be started,
 * and resolve with the reason when the program has ended. If `run` throws, both promises report the
 * error.
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
