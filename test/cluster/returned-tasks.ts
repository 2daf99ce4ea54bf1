/** The tasks of a driver that died, submitted again by the next one. */

import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect } from 'vitest'
import type { Session } from '../../src/session/session.ts'
import { eventually } from '../eventually.ts'
import { type KeptTask, toTask } from './fixtures/kept-tasks.ts'
import { continueRecord } from './fixtures/records.ts'

/** They still run, and end once they are let go. */
export async function endReturned(
  session: Session,
  folder: string,
  tasks: readonly KeptTask[],
): Promise<void> {
  await continueRecord(session, folder)
  const returned = tasks.map((one) => toTask(folder, one))
  await session.submitTasks(returned)
  await eventually(() => {
    expect(returned.map(({ state }) => state)).toEqual(tasks.map(() => 'RUNNING'))
  })
  writeFileSync(join(folder, 'go'), '')
  await session.waitTasks(returned)
  expect(returned.map(({ state }) => state)).toEqual(tasks.map(() => 'DONE'))
}
