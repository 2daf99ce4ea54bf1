/** The `sbatch` options and the batch script of a launch. Pure. */

import { ValueError } from '../../foundation/errors.ts'
import { expectInteger } from '../../foundation/options.ts'
import { quoteForShell } from '../quote.ts'
import { expectTimeLimit } from '../slurm/time-limit.ts'
import { beginLine, type LaunchFolder, runLine } from './launch-folder.ts'

/** The user's request for a job. */
export interface BatchRequest {
  readonly nodes?: number
  readonly gpusPerNode?: number
  readonly coresPerNode?: number
  /** Memory per node in the notation of `sbatch --mem`. */
  readonly mem?: string
  readonly time?: string
  readonly partition?: string
  readonly account?: string
  readonly qos?: string
  readonly constraint?: string
  /** Further options of sbatch, such as `--reservation=x`. */
  readonly more: readonly string[]
  /** Whether Slurm may requeue the job and run it again. Default `false`. */
  readonly mayRequeue?: boolean
  /** The id of the job after whose end this one may start. */
  readonly after?: string
}

/** Options of `sbatch` that users must not set, because the launcher depends on them. */
const reserved = (
  'wrap parsable output error array requeue wait export export-file chdir input test-only ' +
  'open-mode'
).split(' ')
/** The short forms of reserved options, and short options without a value (combinable). */
const reservedLetters = 'oeaWDi'
const plainLetters = 'HhkOQsvV'

/** Returns arguments of `sbatch`, not lines of a script, so that no text is interpreted. */
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
    output: toFilePattern(folder.file('log')),
  }
  const given = Object.entries(options).flatMap(([key, value]) =>
    value === undefined ? [] : [`--${key}=${expectLine(`--${key}`, value)}`],
  )
  for (const option of more) expectExtraOption(option)
  const requeue = request.mayRequeue === true ? '--requeue' : '--no-requeue'
  // Whole nodes, unless only some cores were requested.
  const exclusive = coresPerNode === undefined ? ['--exclusive'] : []
  const own = ['--parsable', requeue, '--open-mode=append', ...exclusive]
  // `afterany` also covers a lost job. The last `--dependency` takes precedence.
  const after = request.after === undefined ? [] : [`--dependency=afterany:${request.after}`]
  return [...own, ...given, ...more, ...after]
}

/** Escapes `%`, which Slurm replaces in file names. A backslash cannot be escaped there at all. */
function toFilePattern(file: string): string {
  if (!file.includes('\\')) return file.replaceAll('%', '%%')
  throw new ValueError(`folder: Slurm takes no file whose path has a backslash: ${file}`, {
    field: 'folder',
    hint: 'Start it in another folder.',
  })
}

/** Throws a `ValueError` for an option that the launcher sets itself. */
export function expectExtraOption(option: string, field = 'an option of sbatch'): void {
  expectLine(field, option)
  if (!isOneOf(option, reserved, reservedLetters)) return
  const text = `${option}: tutti launch sets this option of sbatch itself`
  throw new ValueError(text, { field, got: option })
}

/** Parses options as sbatch does: long names may be shortened, short options may share a dash. */
export function isOneOf(option: string, names: readonly string[], letters: string): boolean {
  if (option.startsWith('--')) {
    const [name = ''] = option.slice(2).split('=')
    return name !== '' && names.some((one) => one.startsWith(name))
  }
  for (const letter of option.slice(1)) {
    if (letters.includes(letter)) return true
    if (!plainLetters.includes(letter)) return false
  }
  return false
}

/** Rejects line ends, which would break a message or a listing into several lines. */
export function expectLine(field: string, value: string): string {
  quoteForShell(field, value)
  return value
}

export interface ScriptCommand {
  /** Node's executable, the script, and its arguments. */
  readonly words: readonly string[]
  readonly cwd: string
  /**
   * The names of the variables for the files with the launch's facts and the first session's
   * request.
   */
  readonly variables: { readonly facts: string; readonly request: string }
  /**
   * Called with the folder before every run of a launch except the first. Tells the script to
   * continue the record, and prints `stop` if nothing is left to do.
   */
  readonly begin: readonly string[]
  /** Called with the folder and the exit code if the run can be continued. */
  readonly end: readonly string[]
}

/** The batch script, which runs the user's script on the first node and writes its exit code. */
export function toBatchScript(
  { words, cwd, variables, begin, end }: ScriptCommand,
  folder: LaunchFolder,
): string {
  const quote = (text: string): string => quoteForShell('a path or an argument', text)
  const file = (name: Parameters<LaunchFolder['file']>[0]): string => quote(folder.file(name))
  const call = (program: readonly string[]): string =>
    [...program, folder.path].map(quote).join(' ')
  const { place, chain } = folder
  const hasRun = place > 0 ? 'true' : `[ -e ${file('started')} ]`
  const mayEnd = place + 1 < chain.length ? 'true' : `[ "$code" -ne 0 ] || [ -e ${file('ended')} ]`
  return `#!/bin/sh
# Written by tutti launch.
cd ${quote(cwd)} || exit 1
code=0
# The job was put back into the queue, or goes on where the one before had to stop.
if ${hasRun}; then
  next=$(${call(begin)} < /dev/null 2>> ${file('stderr')}) || code=$?
  [ "$next" != stop ] || exit 0
fi
rm -f ${file('exit')} ${file('ended')} ${file('signaled')}
echo ${quote(beginLine)}
echo ${runLine.trim()} >> ${file('started')}
export ${variables.facts}=${file('facts')}
export ${variables.request}=${file('request')}
# Signals are for the script, which ends its tasks; this shell waits for it. Slurm sends them to
# both most of the time, and a second one would end the script at once.
pass_on() {
  sleep 1
  [ -e ${file('signaled')} ] || kill -TERM "$child" 2> /dev/null
}
trap pass_on TERM INT
if [ "$code" -eq 0 ]; then
  ${words.map(quote).join(' ')} < /dev/null >> ${file('stdout')} 2>> ${file('stderr')} &
  child=$!
  wait "$child"
  code=$?
  while kill -0 "$child" 2> /dev/null; do wait "$child"; code=$?; done
fi
if ${mayEnd}; then
  ${call(end)} "$code" < /dev/null >> ${file('stderr')} 2>&1
fi
echo "$code" > ${quote(`${folder.file('exit')}.new`)}
mv ${quote(`${folder.file('exit')}.new`)} ${file('exit')}
exit "$code"
`
}
