/** What SessionStarted says about the run: the file's format, and where it was made. */

import { hostname } from 'node:os'
import { basename } from 'node:path'
import { checkpointFormat } from '../checkpoint/format.ts'
import { type JsonObject, toJsonObject } from '../foundation/json-value.ts'
import { version } from '../foundation/version.ts'

/** The program is named without its folder and its arguments, which may hold secrets. */
export function runFacts(): JsonObject {
  return toJsonObject({
    format: checkpointFormat,
    version,
    host: hostname(),
    pid: process.pid,
    program: basename(process.argv[1] ?? ''),
  })
}
