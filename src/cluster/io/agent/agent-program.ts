/** The program of an agent process that `ClusterBackend.local` starts. */

import { messageOf } from '../../../foundation/errors.ts'
import { connectToParent } from '../../../runtime/child-program.ts'
import type { Agent } from './agent.ts'
import { startAgent, type StartAgentOptions } from './agent-options.ts'

export type AgentProgramInput = { readonly kind: 'start'; readonly options: StartAgentOptions }

export type AgentProgramOutput = { readonly kind: 'started' }

let agent: Agent | null = null

const parent = connectToParent<AgentProgramInput, AgentProgramOutput>({
  onMessage: ({ options }) => start(options).catch(exitWithError),
  onEnd: () => closeAgent().catch(exitWithError),
})

async function start(options: StartAgentOptions): Promise<void> {
  agent = await startAgent(options)
  parent.send({ kind: 'started' })
}

/** Writes the error to stderr, which the parent process reports together with the exit code. */
function exitWithError(error: unknown): void {
  process.stderr.write(`${messageOf(error)}\n`)
  process.exit(1)
}

/** Does not wait until results are stored, because the driver and its server exit as well. */
async function closeAgent(): Promise<void> {
  await agent?.close({ waitForResults: false })
  process.exit(0)
}
