/**
 * Starts programs with Node's `child_process`. Their resource usage is unknown, and each has a
 * session of its own: after the launcher's death, only `launcherVariable` identifies them.
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

/** After this many turns without output, the pipe of an ended program counts as empty. */
const quietTurns = 3
/** More than any pipe holds: bytes beyond it come from a process that the program left behind. */
const maxRestLength = 1_048_576

/** Descriptors that a start needs: three socket pairs and Node's own pipe. */
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
        stdio: [plan.stdin === null ? 'ignore' : 'pipe', target(plan.stdout), target(plan.stderr)],
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
    // Ignored, because a program need not read its input.
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

  settle(): void {}
}

const target = (output: number | OutputCapture): number | 'pipe' =>
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

/** Waits until the pipes are at their end or, if other processes hold them open, empty. */
function whenDrained(
  child: ChildProcess,
  captures: readonly OutputCapture[],
  onDrained: () => void,
): void {
  const totalOf = (): number => captures.reduce((sum, { total }) => sum + total, 0)
  const limit = totalOf() + maxRestLength
  let seen = totalOf()
  let quiet = 0
  const isAtEnd = (): boolean =>
    (child.stdout?.readableEnded ?? true) && (child.stderr?.readableEnded ?? true)
  const look = (): void => {
    const total = totalOf()
    quiet = total === seen ? quiet + 1 : 0
    seen = total
    if (!isAtEnd() && quiet < quietTurns && total < limit) return clock.nextTurn(look)
    child.stdout?.destroy()
    child.stderr?.destroy()
    onDrained()
  }
  look()
}
