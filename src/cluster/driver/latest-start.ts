/** Asks agents for the latest start of a session's driver that they know. */

import { expectMessage } from '../wire/message-forms.ts'
import { type Challenge, silenceMs } from '../wire/messages.ts'
import type { AgentDirectory } from './directory/agent-directory.ts'

/** Returns the driver's epoch; 0 if none of the agents knows one, or answers. */
export async function askLatestStart(
  directory: Pick<AgentDirectory, 'request'>,
  agents: readonly string[],
  asked: Pick<Challenge, 'use' | 'run'>,
): Promise<number> {
  const ask = async (name: string): Promise<number> => {
    try {
      const answer = await directory.request(name, { kind: 'challenge', ...asked }, silenceMs)
      return expectMessage(answer, 'challenged').latestStart ?? 0
    } catch {
      // The agent refuses an earlier driver when that attaches to it.
      return 0
    }
  }
  return Math.max(0, ...(await Promise.all(agents.map(ask))))
}
