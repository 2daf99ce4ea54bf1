/** What is asked of Slurm for a launch: the options of `sbatch`, and the batch script. Pure. */

import { ValueError } from '../../foundation/errors.ts'
import { expectInteger } from '../../foundation/options.ts'
import { quoteForShell } from '../quote.ts'
import { expectTimeLimit } from '../slurm/time-limit.ts'
import { beginLine, type LaunchFolder, runLine } from './launch-folder.ts'

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
  /** Whether Slurm may put the job back into the queue and begin it again. Default `false`. */
  readonly mayRequeue?: boolean
  /** The job whose end it waits for. */
  readonly after?: string
}

/** Those of `sbatch` that would take the launch out of the launcher's hands. */
const reserved = (
  'wrap parsable output error array requeue wait export export-file chdir input test-only ' +
  'open-mode'
).split(' ')
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
    output: toFilePattern(folder.file('log')),
  }
  const given = Object.entries(options).flatMap(([key, value]) =>
    value === undefined ? [] : [`--${key}=${expectLine(`--${key}`, value)}`],
  )
  for (const option of more) expectFurther(option)
  const requeue = request.mayRequeue === true ? '--requeue' : '--no-requeue'
  // Whole nodes, unless a part of them was asked for.
  const exclusive = coresPerNode === undefined ? ['--exclusive'] : []
  const own = ['--parsable', requeue, '--open-mode=append', ...exclusive]
  // It waits as well if the job before was lost. Of several such options the last one counts.
  const after = request.after === undefined ? [] : [`--dependency=afterany:${request.after}`]
  return [...own, ...given, ...more, ...after]
}

/** Slurm replaces parts of the names of files; a backslash cannot be written there at all. */
function toFilePattern(file: string): string {
  if (!file.includes('\\')) return file.replaceAll('%', '%%')
  throw new ValueError(`folder: Slurm takes no file whose path has a backslash: ${file}`, {
    field: 'folder',
    hint: 'Start it in another folder.',
  })
}

/** Throws `ValueError` for one that the launcher sets itself. */
export function expectFurther(option: string, field = 'an option of sbatch'): void {
  expectLine(field, option)
  if (!isOneOf(option, reserved, reservedLetters)) return
  const text = `${option}: tutti launch sets this option of sbatch itself`
  throw new ValueError(text, { field, got: option })
}

/** As sbatch reads it: names may be shortened, and short forms may share a dash. */
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

/** A line end in a value would be another line of a message or a listing. */
export function expectLine(field: string, value: string): string {
  quoteForShell(field, value)
  return value
}

export interface ScriptCommand {
  /** The program of Node, the script, its arguments. */
  readonly words: readonly string[]
  readonly cwd: string
  /** Of the file with the launch's facts, and of that with what is asked of the first session. */
  readonly variables: { readonly facts: string; readonly request: string }
  /**
   * Called with the folder before every run but the first of a launch. Asks the script to go on
   * with the record, and prints `stop` where nothing is left to do.
   */
  readonly begin: readonly string[]
  /** Called with the folder and the exit code when the run can be continued. */
  readonly end: readonly string[]
}

/** Runs the script on the first node, and writes down how it ended. */
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
