/** A file by which nodes check whether they can read the folder of the launch. */

import { randomBytes } from 'node:crypto'
import { rmSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import type { Clock } from '../foundation/clock.ts'
import { readTextFileSync } from '../foundation/regular-file.ts'
import { poll } from '../runtime/retry.ts'
import { launchVariable } from './start-method.ts'

export interface SharedFile {
  readonly path: string
  readonly content: string
}

/** Writes the file into the folder of the launch. The caller must remove it. */
export function writeSharedFile(): SharedFile {
  const content = randomBytes(12).toString('hex')
  const path = join(dirname(process.env[launchVariable] ?? ''), `seen-by-nodes-${content}`)
  writeFileSync(path, content)
  return { path, content }
}

export const removeSharedFile = ({ path }: SharedFile): void => rmSync(path, { force: true })

/** How long a network file system may take to show a new file. */
const visibilityTimeoutMs = 5000
const pollIntervalMs = 100

/** Returns the line by which an agent reports whether its node can read the file. */
export async function reportSharedFolder(
  name: string,
  file: SharedFile,
  clock: Clock,
): Promise<string> {
  const policy = { delayMs: pollIntervalMs, timeoutMs: visibilityTimeoutMs }
  const isReadable = await poll(policy, () => canRead(file), { clock })
  return `${reportPrefix} ${name} ${isReadable === true ? 'yes' : 'no'}\n`
}

const reportPrefix = 'tutti: folder seen by'

/** Returns whether each reported node can read the file. */
export function parseFolderReport(text: string): Map<string, boolean> {
  const lines = text.split('\n').filter((line) => line.startsWith(`${reportPrefix} `))
  return new Map(
    lines.map((line) => {
      const [name = '', answer = ''] = line.slice(reportPrefix.length + 1).split(' ')
      return [name, answer === 'yes']
    }),
  )
}

/** Removes the lines that are meant for the driver. */
export const withoutDriverLines = (text: string): string =>
  text
    .split('\n')
    .filter((line) => !line.startsWith('tutti: '))
    .join('\n')
    .trim()

function canRead({ path, content }: SharedFile): boolean {
  try {
    return readTextFileSync(path) === content
  } catch {
    return false
  }
}
