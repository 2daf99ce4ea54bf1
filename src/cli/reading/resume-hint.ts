/** Tells the user how to resume an unfinished run. */

import { expectNotContinued, isPipe } from '../../checkpoint/chain.ts'
import { readCommandOf } from '../../checkpoint/run-file.ts'
import { CheckpointError } from '../../foundation/errors.ts'
import { blockBackend } from '../../foundation/ids.ts'
import { nearestPath } from '../../record/find-record.ts'
import { counts } from '../../views/panels/counts.ts'
import { resumeCommand } from '../run/resume-command.ts'
import type { OpenRecord } from './open-record.ts'

export interface ResumeHint {
  /** The last file of the run. */
  readonly record: string
  /** `null` when the user's program has to call `session.resume` or `flow.resume`. */
  readonly command: string | null
  /** The hint as a line of text. */
  readonly line: string
}

/** Returns `null` if nothing is left to do, or if resuming would be refused. */
export async function resumeHintOf(open: OpenRecord): Promise<ResumeHint | null> {
  const { files, missing, bad, lines } = open
  const path = files.at(-1)
  if (path === undefined || isPipe(path) || missing !== null || bad > 0 || lines === 0) return null
  if (open.state === 'running' || isAllDone(open)) return null
  const record = await lastFileAfter(path)
  const made = readCommandOf([...files, record])
  const near = nearestPath(record)
  if (made === null) {
    const owner = isWorkflow(open) ? 'flow' : 'session'
    const line = `resume  start the program again with: await ${owner}.resume('${near}')`
    return { record, command: null, line }
  }
  const line = `resume  ${resumeCommand(near, made)}`
  return { record, command: resumeCommand(record, made), line }
}

/** Only workflows have tasks with dependencies, or blocks. */
function isWorkflow({ pass: { states } }: OpenRecord): boolean {
  const { requests } = states.bounds
  return states.graph.size > 0 || requests.some(({ backend }) => backend === blockBackend)
}

function isAllDone({ state, pass }: OpenRecord): boolean {
  const { tasks, completed } = counts.show(pass.counts)
  return state === 'ended' && tasks === completed
}

/** Finds the last file of the run, because a later file may continue the requested one. */
async function lastFileAfter(path: string): Promise<string> {
  try {
    await expectNotContinued(path)
  } catch (error) {
    const isContinued =
      CheckpointError.isInstance(error) && error.code === 'CheckpointContinuedError'
    return isContinued ? (error.path ?? path) : path
  }
  return path
}
