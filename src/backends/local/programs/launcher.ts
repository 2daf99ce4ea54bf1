/**
 * The program of a launcher process: starts other programs, so that the process that asks need not.
 */

import { KoffiSpawner } from './koffi-spawner.ts'
import { Outbox } from './outbox.ts'
import { PlainSpawner } from './plain-spawner.ts'
import { mergeEnvironment, ProgramRunner } from './program-runner.ts'
import type { LauncherSetup, ToLauncher } from './protocol.ts'
import type { Spawner } from './spawner.ts'

let runner: ProgramRunner | undefined
let ready = Promise.resolve()

process.on('message', (message: ToLauncher) => {
  if (message.setup !== undefined) ready = setUp(message.setup)
  if (runner === undefined) void ready.then(() => obey(message))
  else obey(message)
})

// Nobody is left to take results: the pool has closed, or its process is dead.
process.on('disconnect', () => {
  runner?.killAll()
  process.exit(0)
})

async function setUp(setup: LauncherSetup): Promise<void> {
  const environment = mergeEnvironment(process.env, setup.environment)
  const spawner = await chooseSpawner(setup, environment)
  const outbox = new Outbox((news) => process.send?.(news))
  runner = new ProgramRunner({ spawner, setup, environment, outbox })
}

async function chooseSpawner(
  { spawner }: LauncherSetup,
  environment: Readonly<Record<string, string>>,
): Promise<Spawner> {
  if (spawner === 'plain' || process.platform !== 'linux') return new PlainSpawner(environment)
  try {
    const chosen = await KoffiSpawner.create(environment)
    process.on('SIGCHLD', () => chosen.reap())
    return chosen
  } catch {
    return new PlainSpawner(environment)
  }
}

function obey({ requests = [], stops = [] }: ToLauncher): void {
  for (const request of requests) runner?.start(request)
  for (const id of stops) runner?.stop(id)
}
