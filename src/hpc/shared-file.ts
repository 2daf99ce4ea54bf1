/** A file in the folder of the launch, by which nodes check whether they can read that folder. */

import { randomBytes } from 'node:crypto'
import { rmSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import type { Clock } from '../foundation/clock.ts'
import { readTextFileSync } from '../foundation/regular-file.ts'
import { poll } from '../runtime/retry.ts'
import { launchVariable } from './start-method.ts'

/** The file's path and content. */
export interface SharedFile {
  readonly path: string
  readonly content: string
}

/** Writes the file beside the facts of the launch. `removeSharedFile` removes it. */
export function writeSharedFile(): SharedFile {
  const content = randomBytes(12).toString('hex')
  const path = join(dirname(process.env[launchVariable] ?? ''), `seen-by-nodes-${content}`)
  writeFileSync(path, content)
  return { path, content }
}

export const removeSharedFile = ({ path }: SharedFile): void => rmSync(path, { force: true })

/** How long a network file system may take to show a new file. */
const maxMs = 5000
const pollMs = 100

/** The line by which an agent reports whether its node can read the file. */
export async function reportSharedFolder(
  name: string,
  file: SharedFile,
  clock: Clock,
): Promise<string> {
  const policy = { delayMs: pollMs, timeoutMs: maxMs }
  const isFound = await poll(policy, () => isSeen(file), { clock })
  return `${seenMark} ${name} ${isFound === true ? 'yes' : 'no'}\n`
}

const seenMark = 'tutti: folder seen by'

/** Parses the lines of `reportSharedFolder`: whether each node can read the file. */
export function parseSeen(text: string): Map<string, boolean> {
  const lines = text.split('\n').filter((line) => line.startsWith(`${seenMark} `))
  return new Map(
    lines.map((line) => {
      const [name = '', answer = ''] = line.slice(seenMark.length + 1).split(' ')
      return [name, answer === 'yes']
    }),
  )
}

/** The output of an agent without the lines that are meant for the driver. */
export const withoutOwnLines = (text: string): string =>
  text
    .split('\n')
    .filter((line) => !line.startsWith('tutti: '))
    .join('\n')
    .trim()

function isSeen({ path, content }: SharedFile): boolean {
  try {
    return readTextFileSync(path) === content
  } catch {
    return false
  }
}
