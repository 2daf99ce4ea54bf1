/** What is asked of Slurm for a launch: the options of `sbatch`, and the batch script. Pure. */

import { ValueError } from '../../foundation/errors.ts'
import { expectInteger } from '../../foundation/options.ts'
import { quoteForShell } from '../quote.ts'
import { expectTimeLimit } from '../slurm/time-limit.ts'
import type { LaunchFolder } from './launch-folder.ts'

/** What a person asks for. */
export interface BatchRequest {
  readonly nodes?: number
  readonly gpusPerNode?: number
  readonly coresPerNode?: number
  /** As `sbatch --mem` has it, for a node. */
  readonly mem?: string
  readonly time?: string
  readonly partition?: string
  readonly account?: string
  readonly qos?: string
  readonly constraint?: string
  /** Further options of sbatch, such as `--reservation=x`. */
  readonly more: readonly string[]
}

/** Those of `sbatch` that would take the launch out of the launcher's hands. */
const reserved =
  'wrap parsable output error array requeue wait export export-file chdir input test-only'.split(
    ' ',
  )
/** Their short forms, and short forms without a value, after which others may follow. */
const reservedLetters = 'oeaWDi'
const plainLetters = 'HhkOQsvV'

/** Arguments, not lines of a script: no text is interpreted. */
export function toBatchOptions(
  request: BatchRequest,
  name: string,
  folder: LaunchFolder,
): string[] {
  const { nodes = 1, gpusPerNode, coresPerNode, mem, time, more } = request
  if (time !== undefined) expectTimeLimit('--time', time)
  const options: Record<string, string | undefined> = {
    'job-name': name,
    nodes: String(expectInteger('--nodes', nodes, { min: 1 })),
    'ntasks-per-node': '1',
    'gpus-per-node': gpusPerNode === undefined ? undefined : String(gpusPerNode),
    'cpus-per-task': coresPerNode === undefined ? undefined : String(coresPerNode),
    mem: mem ?? (coresPerNode === undefined ? '0' : undefined),
    time,
    partition: request.partition,
    account: request.account,
    qos: request.qos,
    constraint: request.constraint,
    output: folder.file('log').replaceAll('%', '%%'),
  }
  const given = Object.entries(options).flatMap(([key, value]) =>
    value === undefined ? [] : [`--${key}=${expectLine(`--${key}`, value)}`],
  )
  for (const option of more) expectFurther(option)
  // Whole nodes, unless a part of them was asked for; a second run of the script is never wanted.
  const exclusive = coresPerNode === undefined ? ['--exclusive'] : []
  return ['--parsable', '--no-requeue', ...exclusive, ...given, ...more]
}

function expectFurther(option: string): void {
  expectLine('an option of sbatch', option)
  if (!isReserved(option)) return
  throw new ValueError(`${option}: tutti launch sets this option of sbatch itself`)
}

/** As sbatch reads it: names may be shortened, and short forms may share a dash. */
function isReserved(option: string): boolean {
  if (option.startsWith('--')) {
    const [name = ''] = option.slice(2).split('=')
    return name !== '' && reserved.some((one) => one.startsWith(name))
  }
  for (const letter of option.slice(1)) {
    if (reservedLetters.includes(letter)) return true
    if (!plainLetters.includes(letter)) return false
  }
  return false
}

/** A line end in a value would be another line of a message or a listing. */
function expectLine(field: string, value: string): string {
  quoteForShell(field, value)
  return value
}

export interface ScriptCommand {
  /** The program of Node, the script, its arguments. */
  readonly words: readonly string[]
  readonly cwd: string
  /** Of the file with the launch's facts, and of that with what is asked of the first session. */
  readonly variables: { readonly facts: string; readonly request: string }
  /** Prints how to go on, for a run that can be continued. */
  readonly resume: readonly string[]
}

/** Runs the script once, on the first node, and writes down how it ended. */
export function toBatchScript(
  { words, cwd, variables, resume }: ScriptCommand,
  folder: LaunchFolder,
): string {
  const quote = (text: string): string => quoteForShell('a path or an argument', text)
  const file = (name: Parameters<LaunchFolder['file']>[0]): string => quote(folder.file(name))
  return `#!/bin/sh
# Written by tutti launch.
# A job that Slurm has put back into the queue must not run the script again.
[ -e ${file('started')} ] && exit 1
cd ${quote(cwd)} || exit 1
: > ${file('started')}
export ${variables.facts}=${file('facts')}
export ${variables.request}=${file('request')}
# Signals are for the script, which ends its tasks; this shell waits for it. Slurm sends them to
# both most of the time, and a second one would end the script at once.
pass_on() {
  sleep 1
  [ -e ${file('signaled')} ] || kill -TERM "$child" 2> /dev/null
}
trap pass_on TERM INT
${words.map(quote).join(' ')} < /dev/null > ${file('stdout')} 2> ${file('stderr')} &
child=$!
wait "$child"
code=$?
while kill -0 "$child" 2> /dev/null; do wait "$child"; code=$?; done
if [ "$code" -ne 0 ] || [ -e ${file('ended')} ]; then
  ${resume.map(quote).join(' ')} < /dev/null >> ${file('stderr')} 2>&1
fi
echo "$code" > ${quote(`${folder.file('exit')}.new`)}
mv ${quote(`${folder.file('exit')}.new`)} ${file('exit')}
exit "$code"
`
}
