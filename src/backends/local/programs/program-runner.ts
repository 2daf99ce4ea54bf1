/** Runs the programs of a launcher. Knows nothing about tasks. */

import { closeSync } from 'node:fs'
import { toErrorRecord } from '../../../foundation/error-record.ts'
import { errnoOf } from '../../../foundation/errors.ts'
import type { MessageBatcher } from '../../../runtime/channel.ts'
import { programVariable } from '../../../runtime/process-group.ts'
import { machineMs } from '../machine-time.ts'
import { BackgroundGroups } from './background-groups.ts'
import { openOutputs, type OpenedOutputs } from './output-capture.ts'
import { explainRefusal, ProgramLookup } from './program-lookup.ts'
import {
  type LauncherMessage,
  isResourceShortage,
  launcherVariable,
  type LauncherSetup,
  type ProgramRequest,
} from './protocol.ts'
import { RunningProgram } from './running-program.ts'
import type { ProgramWatcher, SpawnPlan, Spawner } from './spawner.ts'

interface ProgramRunnerOptions {
  readonly spawner: Spawner
  readonly setup: LauncherSetup
  readonly environment: Readonly<Record<string, string>>
  readonly outbox: MessageBatcher<LauncherMessage>
}

export class ProgramRunner {
  readonly #options: ProgramRunnerOptions
  readonly #lookup = new ProgramLookup()
  readonly #running = new Map<number, { program: RunningProgram; outputs: OpenedOutputs }>()
  readonly #background: BackgroundGroups

  constructor(parts: ProgramRunnerOptions) {
    this.#options = parts
    const mark = `${launcherVariable}=${parts.environment[launcherVariable]}`
    this.#background = new BackgroundGroups(mark)
  }

  /** Starts a program. A failure is reported for this request only. */
  start(request: ProgramRequest): void {
    try {
      this.#start(request)
    } catch (error) {
      const { id } = request
      if (this.#running.has(id)) return
      this.#options.outbox.post({ kind: 'failed', id, error: toErrorRecord(error) })
    }
  }

  #start(request: ProgramRequest): void {
    const env = this.#toEnvironment(request)
    const path = (env ?? this.#options.environment)['PATH']
    const name = request.shell ? '/bin/sh' : request.executable
    const file = this.#lookup.find(name, path)
    if (file === undefined) {
      const error = toErrorRecord(this.#lookup.explainMissing(name, path))
      return this.#options.outbox.post({ kind: 'failed', id: request.id, error })
    }
    const outputs = this.#openOutputs(request)
    if (outputs === undefined) return
    this.#spawn(request, outputs, { ...outputs.plan, ...toSpawnPlan(request, file), env })
    for (const opened of outputs.files) closeSync(opened)
  }

  stop(id: number): void {
    this.#running.get(id)?.program.stop('cancel')
  }

  sendOutput(id: number): void {
    const output = this.#running.get(id)?.outputs.captured() ?? null
    this.#options.outbox.post({ kind: 'output', id, output })
  }

  /** Ends background processes of an owner's programs; of all owners if `owner` is `null`. */
  endBackground(owner: string | null): Promise<void> {
    return this.#background.end(owner, this.#options.setup.graceMs)
  }

  killAll(): void {
    for (const { program } of this.#running.values()) program.kill()
    this.#background.killAll()
  }

  #spawn(request: ProgramRequest, outputs: OpenedOutputs, plan: SpawnPlan): void {
    const { spawner, setup, outbox } = this.#options
    const { id } = request
    const watcher: ProgramWatcher = {
      failed: (errno) => this.#fail(request, plan, errno),
      ended: (status) => this.#running.get(id)?.program.end(status),
    }
    const at = machineMs()
    const pid = spawner.spawn(plan, watcher)
    if (pid === 0) return
    outbox.enqueue({ kind: 'started', id, at, pid })
    this.#background.delete(pid)
    const { timeoutMs, killBackground, owner } = request
    const mark = this.#toMark(request)
    const limits = { timeoutMs, killBackground, mark, graceMs: setup.graceMs }
    const program = new RunningProgram(pid, limits, {
      onSettled() {
        spawner.streamOutput(pid)
        outbox.flushSoon()
      },
      onEnd: (status, stoppedBy) => {
        this.#running.delete(id)
        if (status.hasBackground) this.#background.add(pid, owner)
        outbox.post({ kind: 'ended', id, stoppedBy, ...status, ...outputs.captured() })
      },
    })
    this.#running.set(id, { program, outputs })
  }

  #fail(request: ProgramRequest, plan: SpawnPlan, errno: string): void {
    const { outbox } = this.#options
    const { id } = request
    if (isResourceShortage(errno)) return outbox.post({ kind: 'refused', id, errno })
    if (this.#hasMoved(request, plan)) return this.start(request)
    const error = toErrorRecord(explainRefusal(plan.file, plan.cwd, errno))
    outbox.post({ kind: 'failed', id, error })
  }

  #hasMoved({ shell, executable }: ProgramRequest, { file, env }: SpawnPlan): boolean {
    if (shell) return false
    this.#lookup.clear()
    return this.#lookup.find(executable, (env ?? this.#options.environment)['PATH']) !== file
  }

  #openOutputs(request: ProgramRequest): OpenedOutputs | undefined {
    const { outbox, setup } = this.#options
    try {
      return openOutputs(request, setup.capture)
    } catch (error) {
      const [id, errno] = [request.id, errnoOf(error)]
      if (isResourceShortage(errno)) outbox.post({ kind: 'refused', id, errno })
      else outbox.post({ kind: 'failed', id, error: toErrorRecord(error) })
      return undefined
    }
  }

  #toMark({ id, isFollowed }: ProgramRequest): string | null {
    return isFollowed ? `${this.#options.environment[launcherVariable]}-${id}` : null
  }

  #toEnvironment(request: ProgramRequest): Record<string, string> | null {
    const { env, cores } = request
    const mark = this.#toMark(request)
    if (env === null && cores === null && mark === null) return null
    const merged = mergeEnvironment(this.#options.environment, env ?? {})
    if (mark !== null) merged[programVariable] = mark
    if (cores === null) return merged
    merged['TUTTI_CORES'] = String(cores)
    if (env === null || !('OMP_NUM_THREADS' in env)) merged['OMP_NUM_THREADS'] ??= String(cores)
    return merged
  }
}

/** Applies changes to an environment. A change to `null` removes the variable. */
export function mergeEnvironment(
  environment: Readonly<Record<string, string | undefined>>,
  changes: Readonly<Record<string, string | null | undefined>>,
): Record<string, string> {
  const entries = Object.entries({ ...environment, ...changes })
  return Object.fromEntries(
    entries.filter((entry): entry is [string, string] => typeof entry[1] === 'string'),
  )
}

/** With `shell`, the arguments become `$1` and so on; only the command line is interpreted. */
function toSpawnPlan(
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
