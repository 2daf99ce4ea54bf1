/**
 * A guard process, which starts one server program. It ends the server with all child processes on
 * request, when the server exits, or when the parent is gone. Then it removes the server's folder.
 */

import { spawn } from 'node:child_process'
import { rmSync } from 'node:fs'
import { systemClock } from '../../foundation/clock.ts'
import { errnoOf, messageOf } from '../../foundation/errors.ts'
import { boundedWait } from '../../foundation/promises.ts'
import { retry } from '../retry.ts'
import { connectToParent } from '../child-program.ts'
import { endProgram, programVariable } from '../process-group.ts'

export interface GuardCommand {
  readonly kind: 'launch'
  readonly command: readonly string[]
  readonly env: Readonly<Record<string, string>>
  /** Identifies the server and all its child processes through their environment. */
  readonly mark: string
  /** The time between SIGTERM and SIGKILL. */
  readonly graceMs: number
  readonly folder: string | null
  /** Whether to keep the folder for the parent's next server if this server exits by itself. */
  readonly isFolderKept: boolean
}

export type GuardMessage =
  /** The server is running. Its process group has the same id. */
  | { readonly kind: 'launched'; readonly pid: number }
  | { readonly kind: 'failed'; readonly errno: string; readonly message: string }
  /** The server has exited. Its child processes are being ended. */
  | { readonly kind: 'ended'; readonly code: number | null; readonly signal: string | null }

/** How long to wait for the server's exit event and for the last message. */
const exitWaitMs = 1000
/**
 * How long to wait for the parent's exit after the server's exit. If both are killed, the server
 * may exit first.
 */
const parentNoticeMs = 100
const maxRemovals = 50
const removalDelayMs = 100
const parentIsGone = new Promise<void>((resolve) => process.once('disconnect', resolve))
let pid: number | undefined
let mark: string | null = null
let graceMs = 0
let folder: string | null = null
let isFolderKept = false
let isEnding = false
let exited: Promise<void> = Promise.resolve()

const parent = connectToParent<GuardCommand, GuardMessage>({
  onMessage: launch,
  onEnd: () => void end(graceMs),
})

// Ignores a SIGTERM to the whole job: the parent gets it too and ends this process.
process.on('SIGTERM', () => {})

function launch(order: GuardCommand): void {
  const [program = '', ...args] = order.command
  graceMs = order.graceMs
  mark = order.mark
  folder = order.folder
  try {
    const server = spawn(program, args, {
      env: { ...order.env, [programVariable]: order.mark },
      detached: true,
      stdio: ['ignore', 'inherit', 'inherit'],
    })
    server.on('error', fail)
    exited = new Promise((resolve) => {
      server.on('exit', (code, signal) => {
        isFolderKept = order.isFolderKept && !isEnding
        parent.send({ kind: 'ended', code, signal })
        resolve()
        void end(0)
      })
    })
    pid = server.pid
    if (pid !== undefined) parent.send({ kind: 'launched', pid })
  } catch (error) {
    fail(error)
  }
}

function fail(error: unknown): void {
  parent.send({ kind: 'failed', errno: errnoOf(error), message: messageOf(error) })
  void end(0)
}

/** Removes the folder. Retries, because exiting processes may still write to it. */
async function removeFolder(): Promise<void> {
  const removedFolder = folder
  if (removedFolder === null || (isFolderKept && process.connected)) return
  const remove = (): void => rmSync(removedFolder, { recursive: true, force: true })
  const policy = { delayMs: removalDelayMs, maxAttempts: maxRemovals }
  await retry(policy, remove, { clock: systemClock }).catch(() => {})
}

/** Ends the server once. A later call has no effect, so it cannot shorten the grace period. */
async function end(patienceMs: number): Promise<void> {
  if (isEnding) return
  isEnding = true
  if (pid !== undefined) {
    await endProgram(systemClock, { pid, mark }, patienceMs)
    // The exit event follows a little after the group has ended.
    await boundedWait(systemClock, exitWaitMs, exited).catch(() => {})
  }
  if (isFolderKept) await boundedWait(systemClock, parentNoticeMs, parentIsGone).catch(() => {})
  await removeFolder()
  await boundedWait(systemClock, exitWaitMs, parent.drain()).catch(() => {})
  process.exit(0)
}
