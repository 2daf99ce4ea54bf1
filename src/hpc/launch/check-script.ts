/** The script of `tutti launch --check`, and the parser of its results. */

import { fileURLToPath } from 'node:url'
import { readTextFileSync } from '../../foundation/regular-file.ts'
import { siblingProgram } from '../../runtime/supervised-child.ts'
import { quoteForShell } from '../quote.ts'
import { launchVariable } from '../start-method.ts'
import type { LaunchFolder } from './launch-folder.ts'

/** One requirement of a launch, and whether it is met. */
export interface LaunchCheck {
  readonly name: string
  readonly state: 'ok' | 'missing' | 'problem'
  /** `here`, or the name of a node. */
  readonly where: string
  readonly detail: string
  readonly hint: string | null
}

/** Exit codes for failures that the script cannot write to the folder. */
const unreadableCode = 41
const unwritableCode = 42

/** Returns a shell script, because Node may not work on the node that the scheduler chooses. */
export function toCheckScript(folder: LaunchFolder, cwd: string): string {
  const quote = (text: string): string => quoteForShell('a path', text)
  const file = (name: Parameters<LaunchFolder['file']>[0]): string => quote(folder.file(name))
  const node = quote(process.execPath)
  const program = fileURLToPath(siblingProgram(import.meta.url, 'check-program'))
  const missing = (name: string, path: string): string => {
    const check = { name, state: 'missing', detail: `${path} cannot be used`, hint: installHint }
    return `echo ${quote(JSON.stringify(check))} >> ${file('stdout')}`
  }
  return `#!/bin/sh
# Written by tutti launch --check.
{ [ -r ${file('facts')} ] && cd ${quote(cwd)}; } || exit ${unreadableCode}
( : > ${file('started')} ) 2> /dev/null || exit ${unwritableCode}
export ${launchVariable}=${file('facts')}
echo "{\\"where\\":\\"\${SLURMD_NODENAME:-here}\\"}" > ${file('stdout')}
if ! ${node} --version > /dev/null 2>&1; then
  ${missing('Node', process.execPath)}
elif ! [ -r ${quote(program)} ]; then
  ${missing('tutti', program)}
else
  ${node} ${quote(program)} < /dev/null >> ${file('stdout')} 2> ${file('stderr')}
fi
code=$?
echo "$code" > ${quote(`${folder.file('exit')}.new`)}
mv ${quote(`${folder.file('exit')}.new`)} ${file('exit')}
exit "$code"
`
}

const installHint = 'Install it on a file system that all nodes see.'

/** Returns the results. `code` is the script's exit code; `null` if it did not end in time. */
export function readChecks(
  folder: LaunchFolder,
  code: number | null,
  place: string,
): LaunchCheck[] {
  const name = 'shared folder'
  const common = { name, where: place, hint: 'Start it in a folder on a shared file system.' }
  if (code === unreadableCode) {
    return [{ ...common, state: 'missing', detail: `the node does not see ${folder.path}` }]
  }
  if (code === unwritableCode) {
    return [{ ...common, state: 'problem', detail: `the node cannot write to ${folder.path}` }]
  }
  const [first, ...others] = readText(folder, 'stdout').trim().split('\n').map(parseLine)
  const where = first?.where ?? place
  const folderCheck = { ...common, where, state: 'ok', detail: folder.path, hint: null } as const
  const checks = [folderCheck, ...others]
    .filter((one) => one !== null)
    .map((one) => ({ ...one, where }))
  if (code === 0) return checks
  const exitText = code === null ? 'it has not ended in time' : `exit code ${code}`
  const why = readText(folder, 'stderr').trim() || exitText
  return [...checks, { name: 'trial', state: 'problem', where, detail: why, hint: null }]
}

function readText(folder: LaunchFolder, name: 'stdout' | 'stderr'): string {
  try {
    return readTextFileSync(folder.file(name))
  } catch {
    return ''
  }
}

/** Returns `null` for the output of other programs, which may use the same stream. */
function parseLine(line: string): LaunchCheck | null {
  try {
    return JSON.parse(line) as LaunchCheck
  } catch {
    return null
  }
}
