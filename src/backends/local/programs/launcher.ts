/** The code of a launcher process. A launcher starts programs for the pool. */

import { constants } from 'node:os'
import { connectToParent } from '../../../runtime/child-program.ts'
import { KoffiSpawner } from './koffi-spawner.ts'
import { PlainSpawner } from './plain-spawner.ts'
import { mergeEnvironment, ProgramRunner } from './program-runner.ts'
import type { LauncherMessage, LauncherSetup, LauncherCommand } from './protocol.ts'
import type { Spawner } from './spawner.ts'

let runner: ProgramRunner | undefined
let ready = Promise.resolve()

// Programs must not outlive this process, however it ends.
process.on('exit', () => runner?.killAll())
for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP'] as const) {
  process.on(signal, () => process.exit(128 + constants.signals[signal]))
}

const outbox = connectToParent<LauncherCommand, LauncherMessage>({
  onMessage(message) {
    if (message.kind === 'setup') ready = setUp(message.setup)
    else if (runner === undefined) void ready.then(() => handle(message))
    else handle(message)
  },
  onEnd() {
    // If the parent is gone, the programs are killed without a grace period.
    if (process.connected) void end()
    else process.exit(0)
  },
})

async function end(): Promise<void> {
  await runner?.endBackground(null)
  process.exit(0)
}

async function setUp(setup: LauncherSetup): Promise<void> {
  const environment = mergeEnvironment(process.env, setup.environment)
  const spawner = await chooseSpawner(setup, environment)
  runner = new ProgramRunner({ spawner, setup, environment, outbox })
  // Sent before the first program is started, because a program may kill this process.
  outbox.send({ kind: 'pong' })
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

function handle(message: Exclude<LauncherCommand, { kind: 'setup' }>): void {
  switch (message.kind) {
    case 'start':
      return runner?.start(message.request)
    case 'stop':
      return runner?.stop(message.id)
    case 'output':
      return runner?.sendOutput(message.id)
    case 'ping':
      return outbox.post({ kind: 'pong' })
    case 'endBackground':
      return void endBackground(message.owner)
  }
}

async function endBackground(owner: string): Promise<void> {
  await runner?.endBackground(owner)
  outbox.post({ kind: 'backgroundEnded', owner })
}
