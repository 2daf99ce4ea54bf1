/** The program of an agent that `ClusterBackend.local` starts. */

import { messageOf } from '../../foundation/errors.ts'
import { connectToParent } from '../../runtime/child-program.ts'
import type { Agent } from './agent.ts'
import { startAgent, type StartAgentOptions } from './agent-options.ts'

export type ToAgentProgram = { readonly kind: 'start'; readonly options: StartAgentOptions }

export type FromAgentProgram =
  | { readonly kind: 'started' }
  | { readonly kind: 'failed'; readonly message: string }

let agent: Agent | null = null

const parent = connectToParent<ToAgentProgram, FromAgentProgram>({
  onMessage: ({ options }) => start(options).catch(exitWith),
  onEnd: () => end().catch(exitWith),
})

async function start(options: StartAgentOptions): Promise<void> {
  try {
    agent = await startAgent(options)
    parent.send({ kind: 'started' })
  } catch (error) {
    parent.send({ kind: 'failed', message: messageOf(error) })
  }
}

/** The parent process reports the exit code together with the stderr output. */
function exitWith(error: unknown): void {
  process.stderr.write(`${messageOf(error)}\n`)
  process.exit(1)
}

/** The driver and its server exit as well, so task results need not be stored. */
async function end(): Promise<void> {
  await agent?.close({ needsEnds: false })
  process.exit(0)
}
