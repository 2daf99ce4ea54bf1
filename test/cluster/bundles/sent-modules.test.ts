import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { expect, it, onTestFinished } from 'vitest'
import type { Broker, BrokerStore } from '../../../src/cluster/broker/broker.ts'
import { StoredObjects } from '../../../src/cluster/broker/stored-objects.ts'
import { SentModules } from '../../../src/cluster/bundles/sent-modules.ts'
import { ManualClock } from '../../../src/testing/manual-clock.ts'
import { eventually } from '../../eventually.ts'
import { commandOf } from '../processes.ts'

const store: Partial<BrokerStore> = { putObject: () => Promise.resolve() }
const broker: Partial<Broker> = {
  store: store as BrokerStore,
  isConnected: true,
  onConnection: () => () => {},
}

/** Modules of a new session, a function that writes one, and the processes that imported them. */
function openModules() {
  const folder = mkdtempSync(join(tmpdir(), 'tutti-sent-'))
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }))
  const clock = new ManualClock()
  const objects = new StoredObjects({
    owner: 'the test',
    broker: broker as Broker,
    clock,
    stream: 'stream',
    objects: 'objects',
    refusalTimeoutMs: () => 60_000,
    openStream: () => Promise.resolve(),
    makeRoom() {},
    onProblem() {},
  })
  onTestFinished(() => objects.close())
  const pids = join(folder, 'pids')
  const create = (name: string, source: string): string => {
    const file = join(folder, `${name}.mjs`)
    const note = `appendFileSync(${JSON.stringify(pids)}, process.pid + '\\n')`
    writeFileSync(file, `import { appendFileSync } from 'node:fs'\n${note}\n${source}`)
    return pathToFileURL(file).href
  }
  const importedBy = (): number[] => readFileSync(pids, 'utf8').trim().split('\n').map(Number)
  return { clock, objects, create, importedBy, modules: new SentModules(objects, clock) }
}

const isRunning = (pid: number): boolean => commandOf(pid) !== ''

const hanging = 'await new Promise(() => {})'

it('row 120: an import that never ends fails its module only, and is not repeated', async () => {
  const { clock, create, importedBy, modules } = openModules()
  const endless = create('endless', hanging)
  const preparing = modules.prepare(endless)
  await eventually(() => expect(importedBy()).toHaveLength(1))
  const other = create('other', 'export const one = 1')
  await modules.prepare(other)
  expect(modules.find(other)).toContain('other.mjs')
  const message = 'its import did not end within 60 s'
  const failing = expect(preparing).rejects.toMatchObject({ name: 'UnbundleableError', message })
  await clock.advance(60_000)
  await failing
  await expect(modules.prepare(endless)).rejects.toMatchObject({ message })
  expect(importedBy()).toHaveLength(2)
  await eventually(() => expect(importedBy().filter(isRunning)).toEqual([]))
})

it('row 120: the end of the session ends an import that is under way', async () => {
  const { create, importedBy, modules, objects } = openModules()
  const preparing = modules.prepare(create('endless', hanging))
  await eventually(() => expect(importedBy().filter(isRunning)).toHaveLength(1))
  const failing = expect(preparing).rejects.toThrow('the session has ended')
  objects.close()
  await failing
  await eventually(() => expect(importedBy().filter(isRunning)).toEqual([]))
})
