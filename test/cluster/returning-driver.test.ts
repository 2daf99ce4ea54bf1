import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { describe, expect, it, onTestFinished } from 'vitest'
import { startProgram } from '../cli/run-command.ts'
import { eventually } from '../eventually.ts'
import { startTestCluster } from './agents.ts'
import { storedObjects } from './stored-names.ts'

const driver = fileURLToPath(new URL('fixtures/returning-driver.ts', import.meta.url))
const count = 40

function lines(file: string): string[] {
  try {
    return readFileSync(file, 'utf8').trim().split('\n')
  } catch {
    return []
  }
}

describe('a driver that is killed and started again with its session id', () => {
  it('begins nothing that runs or has ended, and gets all results', async () => {
    const cluster = await startTestCluster()
    await cluster.agent('first', '--cores', '1')
    await cluster.agent('second', '--cores', '1')
    const start = () => {
      const program = startProgram(driver, [cluster.server.url, cluster.folder])
      onTestFinished(() => void program.child.kill('SIGKILL'))
      return program
    }
    const begun = join(cluster.folder, 'begun')
    for (const enough of [5, 15]) {
      const killed = start()
      await eventually(() => expect(lines(begun).length).toBeGreaterThanOrEqual(enough))
      killed.child.kill('SIGKILL')
      await killed.ended
    }
    const last = await start().ended
    expect(last.stderr).toBe('')
    expect(JSON.parse(last.stdout)).toEqual(Array.from({ length: count }, () => 'DONE'))
    expect(lines(begun).toSorted()).toEqual([...new Set(lines(begun))].toSorted())
    expect(lines(begun)).toHaveLength(count)
  })
})

it('runs a task again whose large value an earlier start of the driver has taken', async () => {
  const cluster = await startTestCluster()
  await cluster.agent('first', '--cores', '1')
  const program = fileURLToPath(new URL('fixtures/large-driver.ts', import.meta.url))
  const values = join(cluster.folder, 'values')
  for (const expected of [1, 2]) {
    const driverProcess = startProgram(program, [cluster.server.url, cluster.folder])
    onTestFinished(() => void driverProcess.child.kill('SIGKILL'))
    await eventually(() => expect(lines(values)).toHaveLength(expected))
    await eventually(async () => expect(await storedObjects(cluster.server.url)).toEqual([]))
    driverProcess.child.kill('SIGKILL')
    await driverProcess.ended
  }
  expect(lines(values)).toEqual(['2000000', '2000000'])
  expect(lines(join(cluster.folder, 'begun'))).toHaveLength(2)
})
