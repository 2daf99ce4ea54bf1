/** Creates the `sbatch` options and the batch script of a launch. Pure. */

import { ValueError } from '../../foundation/errors.ts'
import { expectInteger } from '../../foundation/options.ts'
import { quoteForShell } from '../quote.ts'
import { expectTimeLimit } from '../slurm/slurm-output.ts'
import { runBeginLine, type LaunchFolder, runLine } from './launch-folder.ts'

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
  /** Further `sbatch` options, such as `--reservation=x`. */
  readonly more: readonly string[]
  readonly mayRequeue?: boolean
  /** The id of the job that must end before this one starts. */
  readonly after?: string
}

/** Options of `sbatch` that users must not set, because the launcher depends on them. */
const reservedOptions = (
  'wrap parsable output error array requeue wait export export-file chdir input test-only ' +
  'open-mode'
).split(' ')
/** Short forms of the reserved options, and short options without a value. */
const reservedLetters = 'oeaWDi'
const flagLetters = 'HhkOQsvV'

/** Returns the arguments of `sbatch`. Unlike lines of the script, they need no quotes. */
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
  const exclusive = coresPerNode === undefined ? ['--exclusive'] : []
  const fixed = ['--parsable', requeue, '--open-mode=append', ...exclusive]
  // `afterany` also starts the job after a lost one. This option must come last, because `sbatch`
  // uses the last of several equal options.
  const after = request.after === undefined ? [] : [`--dependency=afterany:${request.after}`]
  return [...fixed, ...given, ...more, ...after]
}

/** Escapes `%` for Slurm. Throws for a backslash, which cannot be escaped. */
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
  if (!matchesOption(option, reservedOptions, reservedLetters)) return
  const text = `${option}: tutti launch sets this option of sbatch itself`
  throw new ValueError(text, { field, got: option })
}

/** Matches options as `sbatch` does: long names may be shortened, and letters may share a dash. */
export function matchesOption(option: string, names: readonly string[], letters: string): boolean {
  if (option.startsWith('--')) {
    const [name = ''] = option.slice(2).split('=')
    return name !== '' && names.some((one) => one.startsWith(name))
  }
  for (const letter of option.slice(1)) {
    if (letters.includes(letter)) return true
    if (!flagLetters.includes(letter)) return false
  }
  return false
}

/** Returns the value. Throws if it has a line break, which would split a message or a listing. */
export function expectLine(field: string, value: string): string {
  quoteForShell(field, value)
  return value
}

export interface ScriptCommand {
  readonly words: readonly string[]
  readonly cwd: string
  /** The environment variables that contain the paths of the facts file and the request file. */
  readonly variables: { readonly facts: string; readonly request: string }
  /**
   * A command that runs before a run that continues an earlier run or job. It prepares the record,
   * or prints `stop` if the script must not run.
   */
  readonly begin: readonly string[]
  /**
   * A command that runs after a run that can be continued. Its arguments are the folder and the
   * exit code.
   */
  readonly end: readonly string[]
}

/** Returns a script that runs the user's script on the first node and writes its exit code. */
export function toBatchScript(
  { words, cwd, variables, begin, end }: ScriptCommand,
  folder: LaunchFolder,
): string {
  const quote = (text: string): string => quoteForShell('a path or an argument', text)
  const file = (name: Parameters<LaunchFolder['file']>[0]): string => quote(folder.file(name))
  const call = (program: readonly string[]): string =>
    [...program, folder.path].map(quote).join(' ')
  const { chainIndex, chain } = folder
  const hasRun = chainIndex > 0 ? 'true' : `[ -e ${file('started')} ]`
  const mayEnd =
    chainIndex + 1 < chain.length ? 'true' : `[ "$code" -ne 0 ] || [ -e ${file('ended')} ]`
  return `#!/bin/sh
# Written by tutti launch.
cd ${quote(cwd)} || exit 1
code=0
# The job was put back into the queue, or continues where the previous job had to stop.
if ${hasRun}; then
  next=$(${call(begin)} < /dev/null 2>> ${file('stderr')}) || code=$?
  [ "$next" != stop ] || exit 0
fi
rm -f ${file('exit')} ${file('ended')} ${file('signaled')}
echo ${quote(runBeginLine)}
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
