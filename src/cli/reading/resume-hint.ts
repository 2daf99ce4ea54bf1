/** Finds out how an unfinished run can be resumed. */

import { expectNotContinued, isPipe } from '../../checkpoint/chain.ts'
import { readRunCommand } from '../../checkpoint/run-file.ts'
import { CheckpointError } from '../../foundation/errors.ts'
import { blockBackend } from '../../foundation/ids.ts'
import { toShortPath } from '../../record/find-record.ts'
import { counts } from '../../views/panels/counts.ts'
import { resumeCommand } from '../run/resume-command.ts'
import type { OpenRecord } from './open-record.ts'

export interface ResumeHint {
  /** The last file of the run. */
  readonly record: string
  /** `null` if the user's program must call `session.resume` or `flow.resume`. */
  readonly command: string | null
  readonly line: string
}

/** Returns how to resume the run; `null` if all tasks are done, or if a resume would be refused. */
export async function findResumeHint(open: OpenRecord): Promise<ResumeHint | null> {
  const { files, missing, bad, lines } = open
  const path = files.at(-1)
  if (path === undefined || isPipe(path) || missing !== null || bad > 0 || lines === 0) return null
  if (open.state === 'running' || isAllDone(open)) return null
  const record = await findLastFile(path)
  const startCommand = readRunCommand([...files, record])
  const shortPath = toShortPath(record)
  if (startCommand === null) {
    const owner = isWorkflow(open) ? 'flow' : 'session'
    const line = `resume  start the program again with: await ${owner}.resume('${shortPath}')`
    return { record, command: null, line }
  }
  const line = `resume  ${resumeCommand(shortPath, startCommand)}`
  return { record, command: resumeCommand(record, startCommand), line }
}

/** Only workflows have blocks, or tasks with dependencies. */
function isWorkflow({ pass: { states } }: OpenRecord): boolean {
  const { requests } = states.bounds
  return states.graph.size > 0 || requests.some(({ backend }) => backend === blockBackend)
}

function isAllDone({ state, pass }: OpenRecord): boolean {
  const { tasks, completed } = counts.show(pass.counts)
  return state === 'ended' && tasks === completed
}

/** Returns the last file of the run, because a later file may continue the requested one. */
async function findLastFile(path: string): Promise<string> {
  try {
    await expectNotContinued(path)
  } catch (error) {
    const isContinued =
      CheckpointError.isInstance(error) && error.code === 'CheckpointContinuedError'
    return isContinued ? (error.path ?? path) : path
  }
  return path
}
