/** Programs whose output is in memory, and `tutti logs` while they run. */

import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { expect } from 'vitest'
import { type Backend, ComputeTask, Session } from '../../../src/index.ts'
import { eventually } from '../../eventually.ts'
import { runHere, startCommand } from '../run-command.ts'
import { workFolder } from '../run/work-folder.ts'

export const waiting = 'until test -e "$0"; do sleep 0.05; done'

/** A program that writes into memory, waits for the file `go`, and writes again. */
export async function startInMemory(
  session: Session,
  text: string,
): Promise<{ record: string; go: () => Promise<void> }> {
  const folder = workFolder()
  const telemetry = await session.startTelemetry({ checkpointPath: folder })
  const file = join(folder, 'go')
  const task = new ComputeTask({ uid: 'a.b', executable: 'sh', arguments: ['-c', text, file] })
  await session.submitTasks([task])
  const record = telemetry.checkpointFile ?? ''
  await eventually(async () => {
    await telemetry.flush()
    expect(readFileSync(record, 'utf8')).toContain('"TaskStarted"')
  })
  const go = async (): Promise<void> => {
    writeFileSync(file, '')
    await Promise.allSettled([task])
    await telemetry.flush()
  }
  return { record, go }
}

/** One command shows what there is, two follow the program until it ends. */
export async function showFromMemory(backend: Backend): Promise<void> {
  await using session = new Session([backend])
  const text = `echo one; echo two >&2; ${waiting}; echo three; printf four >&2`
  const { record, go } = await startInMemory(session, text)
  const folder = dirname(record)
  await eventually(async () => {
    const now = await runHere(folder, ['logs', 'a.b', record])
    expect(now).toEqual({ code: 0, stdout: 'one\n', stderr: 'two\n' })
  })
  const following = [1, 2].map(() => startCommand(['logs', 'a.b', record, '-f']))
  await Promise.all(following.map((one) => one.seen('one\n')))
  await go()
  const ends = await Promise.all(following.map(({ ended }) => ended))
  const all = { code: 0, stdout: 'one\nthree\n', stderr: 'two\nfour\n' }
  expect(ends).toEqual([all, all])
  await session.close()
  expect(readdirSync(folder).filter((name) => name.endsWith('.follow'))).toEqual([])
}
