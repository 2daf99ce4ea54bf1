/** Opens writers in a folder of their own, and keeps their warnings and callbacks for the test. */

import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { onTestFinished } from 'vitest'
import { CheckpointWriter } from '../../src/checkpoint/writer.ts'
import type { CheckpointWriterOptions } from '../../src/checkpoint/writing/writer-options.ts'
import { ManualClock } from '../../src/testing/manual-clock.ts'

/** A folder that is removed when the test has finished. */
export function tempFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'tutti-checkpoint-'))
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }))
  return folder
}

export interface OpenedWriter {
  readonly writer: CheckpointWriter
  readonly clock: ManualClock
  /** The codes of the warnings, in order. */
  readonly warnings: string[]
  /** `degraded ENOSPC 3`, `recovered 0`, in order. */
  readonly reports: string[]
}

export function openWriter(options: Partial<CheckpointWriterOptions> = {}): OpenedWriter {
  const clock = new ManualClock()
  const warnings: string[] = []
  const reports: string[] = []
  const writer = CheckpointWriter.open({
    folder: options.folder ?? tempFolder(),
    sessionId: 'session-1',
    clock,
    log: { warn: (code) => warnings.push(code) },
    ...options,
    onDegraded(facts) {
      reports.push(`degraded ${facts.errno} ${facts.lines_pending}`)
      options.onDegraded?.(facts)
    },
    onRecovered(facts) {
      reports.push(`recovered ${facts.lost}`)
      options.onRecovered?.(facts)
    },
  })
  return { writer, clock, warnings, reports }
}

/** The lines of a text that must end with a newline, or be empty. */
export function wholeLines(text: string): string[] {
  const lines = text.split('\n')
  const tail = lines.pop()
  if (tail !== '') throw new Error(`the text ends in the middle of a line: ${tail}`)
  return lines
}

/** The error that `action` throws, or an error that it threw none. */
export function thrownBy(action: () => unknown): unknown {
  try {
    action()
  } catch (error) {
    return error
  }
  throw new Error('nothing was thrown')
}
