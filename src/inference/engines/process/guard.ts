/**
 * The program that stands between an engine's process and its server: it ends the server's whole
 * process group when it is told to, when the server ends, and when its parent is gone.
 */

import { spawn } from 'node:child_process'
import { boundedWait } from '../../../foundation/promises.ts'
import { systemClock } from '../../../foundation/clock.ts'
import { errnoOf, messageOf } from '../../../foundation/errors.ts'
import type { FromGuard, ToGuard } from './guard-protocol.ts'
import { endGroup } from './end-group.ts'

const reapMs = 1000
let group: number | undefined
let graceMs = 0
let isEnding = false
let exited: Promise<void> = Promise.resolve()

process.on('message', (message: ToGuard) => {
  if (message.kind === 'launch') launch(message)
  else void end(graceMs)
})
// The parent's death closes the channel, however it died.
process.on('disconnect', () => void end(graceMs))

function launch(order: Extract<ToGuard, { kind: 'launch' }>): void {
  const [program = '', ...args] = order.command
  graceMs = order.graceMs
  try {
    const server = spawn(program, args, {
      env: order.env,
      detached: true,
      stdio: ['ignore', 'inherit', 'inherit'],
    })
    server.on('error', fail)
    exited = new Promise((resolve) => {
      server.on('exit', (code, signal) => {
        tell({ kind: 'ended', code, signal })
        resolve()
        void end(0)
      })
    })
    group = server.pid
    if (group !== undefined) tell({ kind: 'launched', pid: group })
  } catch (error) {
    fail(error)
  }
}

function fail(error: unknown): void {
  tell({ kind: 'failed', errno: errnoOf(error), message: messageOf(error) })
  void end(0)
}

/** The first reason counts: a grace once given is not taken back. */
async function end(patienceMs: number): Promise<void> {
  if (isEnding) return
  isEnding = true
  if (group !== undefined) {
    await endGroup(systemClock, group, patienceMs)
    // The system knows of the end a little earlier than we do.
    await boundedWait(systemClock, reapMs, exited).catch(() => {})
  }
  process.exit(0)
}

/** A parent that has just died must not take us along before the server is ended. */
function tell(news: FromGuard): void {
  if (process.connected) process.send?.(news, () => {})
}
