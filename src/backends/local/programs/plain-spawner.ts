/**
 * Starts programs with Node's `child_process`. Their resource usage is unknown. After the
 * launcher's death, only `launcherVariable` identifies them.
 */

import { type ChildProcess, spawn } from 'node:child_process'
import type { Readable } from 'node:stream'
import { systemClock as clock } from '../../../foundation/clock.ts'
import { errnoOf } from '../../../foundation/errors.ts'
import { signalGroup } from '../../../runtime/process-group.ts'
import { expectDescriptors } from '../../../runtime/supervised-child.ts'
import { machineMs } from '../machine-time.ts'
import type { OutputCapture } from './output-capture.ts'
import type { ProgramWatcher, SpawnPlan, Spawner } from './spawner.ts'

/** The number of turns without output after which the pipe of an ended program counts as empty. */
const quietTurns = 3
/**
 * The maximum number of bytes to read after the exit. A pipe holds fewer, so any further bytes come
 * from a background process.
 */
const maxRestLength = 1_048_576

/** The number of descriptors that a start needs, for three socket pairs and Node's own pipe. */
const neededDescriptors = 10

export class PlainSpawner implements Spawner {
  readonly #environment: NodeJS.ProcessEnv

  constructor(environment: NodeJS.ProcessEnv) {
    this.#environment = environment
  }

  spawn(plan: SpawnPlan, watcher: ProgramWatcher): number {
    let child: ChildProcess
    try {
      expectDescriptors(neededDescriptors)
      child = spawn(plan.file, plan.argv.slice(1), {
        argv0: plan.argv[0] ?? plan.file,
        env: plan.env ?? this.#environment,
        detached: true,
        stdio: [
          plan.stdin === null ? 'ignore' : 'pipe',
          toStdio(plan.stdout),
          toStdio(plan.stderr),
        ],
        cwd: plan.cwd,
      })
    } catch (error) {
      watcher.failed(errnoOf(error))
      return 0
    }
    child.on('error', (error) => {
      if (child.pid === undefined) watcher.failed(errnoOf(error))
    })
    if (child.pid === undefined) return 0
    // Ignores the error, because a program need not read its input.
    child.stdin?.on('error', () => {})
    if (plan.stdin !== null) child.stdin?.end(plan.stdin)
    const captures = [
      captureFrom(child.stdout, plan.stdout),
      captureFrom(child.stderr, plan.stderr),
    ].filter((capture) => capture !== undefined)
    child.on('exit', (exitCode, signal) => {
      const hasBackground = signalGroup(child.pid ?? 0, 0)
      const status = { exitCode, signal, at: machineMs(), hasBackground }
      child.stdin?.destroy()
      whenDrained(child, captures, () => watcher.ended(status))
    })
    return child.pid
  }

  streamOutput(): void {}
}

const toStdio = (output: number | OutputCapture): number | 'pipe' =>
  typeof output === 'number' ? output : 'pipe'

function captureFrom(
  stream: Readable | null,
  output: number | OutputCapture,
): OutputCapture | undefined {
  if (stream === null || typeof output === 'number') return undefined
  stream.on('data', (bytes: Buffer) => output.push(bytes))
  stream.on('error', () => {})
  return output
}

/** Calls `onDrained` when the pipes are closed or, if other processes hold them open, empty. */
function whenDrained(
  child: ChildProcess,
  captures: readonly OutputCapture[],
  onDrained: () => void,
): void {
  const totalOf = (): number => captures.reduce((sum, { total }) => sum + total, 0)
  const limit = totalOf() + maxRestLength
  let lastTotal = totalOf()
  let quiet = 0
  const isAtEnd = (): boolean =>
    (child.stdout?.readableEnded ?? true) && (child.stderr?.readableEnded ?? true)
  const checkOutput = (): void => {
    const total = totalOf()
    quiet = total === lastTotal ? quiet + 1 : 0
    lastTotal = total
    if (!isAtEnd() && quiet < quietTurns && total < limit) return clock.nextTurn(checkOutput)
    child.stdout?.destroy()
    child.stderr?.destroy()
    onDrained()
  }
  checkOutput()
}
