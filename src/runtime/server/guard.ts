/**
 * The process between an engine's process and its server. It ends the server and all its child
 * processes on request, when the server exits, and when the parent is gone. Then it removes what
 * the server has written.
 */

import { spawn } from 'node:child_process'
import { rmSync } from 'node:fs'
import { systemClock } from '../../foundation/clock.ts'
import { errnoOf, messageOf } from '../../foundation/errors.ts'
import { boundedWait } from '../../foundation/promises.ts'
import { retry } from '../retry.ts'
import { connectToParent } from '../child-program.ts'
import { endProgram, programVariable } from '../process-group.ts'

export interface ToGuard {
  readonly kind: 'launch'
  readonly command: readonly string[]
  readonly env: Readonly<Record<string, string>>
  /** Identifies the server and all its child processes through their environment. */
  readonly mark: string
  /** The time between SIGTERM and SIGKILL. */
  readonly graceMs: number
  /** The folder to remove when the server has ended; `null` for none. */
  readonly folder: string | null
  /**
   * Keeps the folder if the server exits by itself while the parent is alive, because the parent
   * may start another server with it.
   */
  readonly isFolderKept: boolean
}

export type FromGuard =
  /** The server is running. Its process group has the same id. */
  | { readonly kind: 'launched'; readonly pid: number }
  | { readonly kind: 'failed'; readonly errno: string; readonly message: string }
  /** The server itself has exited; its child processes are being ended. */
  | { readonly kind: 'ended'; readonly code: number | null; readonly signal: string | null }

/** How long to wait for the server's exit event and the last message after the group has ended. */
const lastMs = 1000
/** If the parent dies, the server may exit shortly before this process notices. */
const noticeMs = 100
const maxRemovals = 50
const removalMs = 100
const parentIsGone = new Promise<void>((resolve) => process.once('disconnect', resolve))
let pid: number | undefined
let mark: string | null = null
let graceMs = 0
let folder: string | null = null
let isFolderKept = false
let isEnding = false
let exited: Promise<void> = Promise.resolve()

const parent = connectToParent<ToGuard, FromGuard>({
  onMessage: launch,
  onEnd: () => void end(graceMs),
})

// A signal to all processes of a job also reaches the parent, which then ends this process.
process.on('SIGTERM', () => {})

function launch(order: ToGuard): void {
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

/**
 * Repeated, because processes that exit with the parent may still write to the folder or remove it.
 */
async function removeFolder(): Promise<void> {
  const left = folder
  if (left === null || (isFolderKept && process.connected)) return
  const remove = (): void => rmSync(left, { recursive: true, force: true })
  const policy = { delayMs: removalMs, maxAttempts: maxRemovals }
  await retry(policy, remove, { clock: systemClock }).catch(() => {})
}

/** Only the first call takes effect, so that a grace period is not shortened. */
async function end(patienceMs: number): Promise<void> {
  if (isEnding) return
  isEnding = true
  if (pid !== undefined) {
    await endProgram(systemClock, { pid, mark }, patienceMs)
    // The exit of the group's first member is reported a little after the group has ended.
    await boundedWait(systemClock, lastMs, exited).catch(() => {})
  }
  if (isFolderKept) await boundedWait(systemClock, noticeMs, parentIsGone).catch(() => {})
  await removeFolder()
  await boundedWait(systemClock, lastMs, parent.drain()).catch(() => {})
  process.exit(0)
}
