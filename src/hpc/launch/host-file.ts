/** Reads the file of `tutti launch --hosts`, which has one host per line. */

import { messageOf, ValueError } from '../../foundation/errors.ts'
import { readTextFileSync } from '../../foundation/regular-file.ts'
import { isHostName } from '../host-list-allocation.ts'

/** Ignores empty lines and comments (`#`). Throws a `ValueError` that names the line. */
export function readHostFile(file: string): readonly string[] {
  let text: string
  try {
    text = readTextFileSync(file)
  } catch (cause) {
    throw badFile(`cannot be read: ${messageOf(cause)}`, file)
  }
  const lineOf = new Map<string, number>()
  for (const [index, line] of text.split('\n').entries()) {
    const host = line.replace(/#.*/, '').trim()
    if (host === '') continue
    const at = `${file}:${index + 1}`
    if (!isHostName(host)) throw badFile(`${JSON.stringify(host)} is no name of a host`, at)
    const before = lineOf.get(host)
    if (before !== undefined) throw badFile(`${host} is on line ${before} as well`, at)
    lineOf.set(host, index + 1)
  }
  if (lineOf.size === 0) throw badFile('names no host', file)
  return [...lineOf.keys()]
}

const badFile = (message: string, at: string): ValueError =>
  new ValueError(`--hosts: ${at}: ${message}`, {
    field: '--hosts',
    expected: 'one host name or address per line',
  })
