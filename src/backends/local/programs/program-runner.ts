/** Runs the programs that a launcher is asked for. Knows nothing of tasks. */

import { closeSync, openSync } from 'node:fs'
import { toErrorRecord } from '../../../foundation/error-record.ts'
import { OutputFileError } from '../../../foundation/task-errors.ts'
import { errnoOf, withoutStack } from '../../../foundation/errors.ts'
import type { MessageBatcher } from '../../../runtime/message-batcher.ts'
import { machineMs } from '../machine-time.ts'
import { OutputCapture } from './output-capture.ts'
import { explainRefusal, ProgramLookup } from './program-lookup.ts'
import type { CaptureBounds, LauncherSetup, ProgramUpdate, ProgramRequest } from './protocol.ts'
import { RunningProgram } from './running-program.ts'
import type { ProgramWatcher, SpawnPlan, Spawner } from './spawner.ts'

/** The system lacks resources now; it may have them later. */
const isTransient = (errno: string): boolean =>
  errno === 'EMFILE' || errno === 'ENFILE' || errno === 'EAGAIN' || errno === 'ENOMEM'

interface RunnerParts {
  readonly spawner: Spawner
  readonly setup: LauncherSetup
  readonly environment: Readonly<Record<string, string>>
  readonly outbox: MessageBatcher<ProgramUpdate>
}

export class ProgramRunner {
  readonly #parts: RunnerParts
  readonly #lookup = new ProgramLookup()
  readonly #running = new Map<number, RunningProgram>()

  constructor(parts: RunnerParts) {
    this.#parts = parts
  }

  start(request: ProgramRequest): void {
    const env = this.#environmentOf(request)
    const path = (env ?? this.#parts.environment)['PATH']
    const name = request.shell ? '/bin/sh' : request.executable
    const file = this.#lookup.find(name, path)
    if (file === undefined) {
      const error = toErrorRecord(this.#lookup.explainMissing(name, path))
      return this.#parts.outbox.post({ kind: 'failed', id: request.id, error })
    }
    const outputs = this.#openOutputs(request)
    if (outputs === undefined) return
    this.#spawn(request, outputs, { ...outputs.plan, ...planOf(request, file), env })
    for (const opened of outputs.files) closeSync(opened)
  }

  /** Ends a program; nothing happens if it has ended. */
  stop(id: number): void {
    this.#running.get(id)?.stop('cancel')
  }

  /** SIGKILL to all programs and their groups. */
  killAll(): void {
    for (const program of this.#running.values()) program.kill()
  }

  #spawn(request: ProgramRequest, outputs: Outputs, plan: SpawnPlan): void {
    const { spawner, setup, outbox } = this.#parts
    const { id } = request
    const watcher: ProgramWatcher = {
      failed: (errno) => this.#fail(request, plan, errno),
      ended: (status) => this.#running.get(id)?.end(status),
    }
    const at = machineMs()
    const pid = spawner.spawn(plan, watcher)
    if (pid === 0) return
    outbox.hold({ kind: 'started', id, at, pid })
    const limits = { timeoutMs: request.timeoutMs, graceMs: setup.graceMs }
    const program = new RunningProgram(pid, limits, {
      settled() {
        spawner.settle(pid)
        outbox.flushSoon()
      },
      over: (status, stoppedBy) => {
        this.#running.delete(id)
        outbox.post({ kind: 'ended', id, stoppedBy, ...status, ...outputs.texts() })
      },
    })
    this.#running.set(id, program)
  }

  #fail(request: ProgramRequest, plan: SpawnPlan, errno: string): void {
    const { outbox } = this.#parts
    const { id } = request
    if (isTransient(errno)) return outbox.post({ kind: 'refused', id, errno })
    if (this.#hasMoved(request, plan)) return this.start(request)
    const error = toErrorRecord(explainRefusal(plan.file, plan.cwd, errno))
    outbox.post({ kind: 'failed', id, error })
  }

  /** Whether the executable is found elsewhere than in the cached lookup. */
  #hasMoved({ shell, executable }: ProgramRequest, { file, env }: SpawnPlan): boolean {
    if (shell) return false
    this.#lookup.forget()
    return this.#lookup.find(executable, (env ?? this.#parts.environment)['PATH']) !== file
  }

  /** The files that take output, or `undefined` when one cannot be opened, which is reported. */
  #openOutputs(request: ProgramRequest): Outputs | undefined {
    const { outbox, setup } = this.#parts
    try {
      return openOutputs(request.stdoutFile, request.stderrFile, setup.capture)
    } catch (error) {
      const [id, errno] = [request.id, errnoOf(error)]
      if (isTransient(errno)) outbox.post({ kind: 'refused', id, errno })
      else outbox.post({ kind: 'failed', id, error: toErrorRecord(toOutputError(error)) })
      return undefined
    }
  }

  #environmentOf({ env }: ProgramRequest): Record<string, string> | null {
    if (env === null) return null
    return mergeEnvironment(this.#parts.environment, env)
  }
}

/** The environment with changes; `undefined` removes. */
export function mergeEnvironment(
  environment: Readonly<Record<string, string | undefined>>,
  changes: Readonly<Record<string, string | undefined>>,
): Record<string, string> {
  const entries = Object.entries({ ...environment, ...changes })
  return Object.fromEntries(
    entries.filter((entry): entry is [string, string] => entry[1] !== undefined),
  )
}

/** A shell gets the arguments as `$1` and so on, and interprets nothing but the command line. */
function planOf(
  request: ProgramRequest,
  file: string,
): Omit<SpawnPlan, 'env' | 'stdout' | 'stderr'> {
  const { shell, executable, stdin } = request
  return {
    file,
    argv: shell
      ? ['/bin/sh', '-c', executable, 'sh', ...request.arguments]
      : [executable, ...request.arguments],
    cwd: request.cwd,
    stdin: typeof stdin === 'string' ? Buffer.from(stdin) : stdin,
  }
}

interface Outputs {
  readonly plan: Pick<SpawnPlan, 'stdout' | 'stderr'>
  readonly files: ReadonlySet<number>
  texts(): { stdout: string; stderr: string }
}

/** Both outputs may go to the same file, and then share it in the order of writing. */
function openOutputs(
  stdoutFile: string | null,
  stderrFile: string | null,
  bounds: CaptureBounds,
): Outputs {
  const stdout = stdoutFile === null ? new OutputCapture(bounds) : openSync(stdoutFile, 'w')
  let stderr: number | OutputCapture
  try {
    if (stderrFile === null) stderr = new OutputCapture(bounds)
    else stderr = stderrFile === stdoutFile ? stdout : openSync(stderrFile, 'w')
  } catch (error) {
    if (typeof stdout === 'number') closeSync(stdout)
    throw error
  }
  const textOf = (output: number | OutputCapture): string =>
    typeof output === 'number' ? '' : output.text()
  return {
    plan: { stdout, stderr },
    files: new Set([stdout, stderr].filter((output) => typeof output === 'number')),
    texts: () => ({ stdout: textOf(stdout), stderr: textOf(stderr) }),
  }
}

function toOutputError(error: unknown): OutputFileError {
  const message = `captureStdio: ${error instanceof Error ? error.message : errnoOf(error)}`
  return withoutStack(() => new OutputFileError(message, { hint: 'Its folder must exist.' }))
}
