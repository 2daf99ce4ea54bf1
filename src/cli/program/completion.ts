/** Generates completion scripts for shells from the declared commands. */

import type { Argument, Command, Option } from 'commander'
import { taskStates } from '../../tasks/lifecycle.ts'

export type Shell = 'bash' | 'zsh' | 'fish'

interface Choice {
  readonly word: string
  readonly description: string
}

interface OptionChoice extends Choice {
  readonly short: string | null
  /**
   * The possible values. Empty if any value is allowed, such as a file; `null` if the option takes
   * no value.
   */
  readonly values: readonly string[] | null
}

interface CommandChoices {
  readonly words: readonly string[]
  readonly commands: readonly Choice[]
  readonly options: readonly OptionChoice[]
  readonly values: readonly string[]
  /** The number of arguments before a record; `null` if the command takes no record. */
  readonly recordAt: number | null
}

export function completionScript(program: Command, shell: Shell): string {
  const all = collectChoices(program, [])
  return { bash: bashScript, zsh: zshScript, fish: fishScript }[shell](all)
}

/** The possible values of some options and arguments. Commander does not know them. */
const knownValues: Readonly<Record<string, readonly string[]>> = {
  'tasks --state': taskStates,
  'tasks --sort': ['ran', 'waited'],
  'tail --type': ['TaskCreated', 'TaskStarted', 'TaskCompleted', 'TaskFailed', 'TaskCanceled'],
  'export --format': ['otlp', 'perfetto', 'csv', 'prometheus'],
  'model get': ['stories15M', 'tinyllama-1.1b-chat'],
}

function collectChoices(command: Command, words: readonly string[]): CommandChoices[] {
  const name = words.join(' ')
  const ownOptions = command.options.flatMap((option) => toOptionChoice(option, name) ?? [])
  const common = words.length === 0 ? [] : commonOptions
  const commands = command.commands.map((one) => ({
    word: one.name(),
    description: one.description(),
  }))
  const help = { word: '--help', short: '-h', description: 'Show help', values: null }
  const [first] = command.registeredArguments
  const recordAt = command.registeredArguments.findIndex((one) => one.name() === 'record')
  return [
    {
      words,
      commands,
      options: [...ownOptions, ...common, help],
      values: knownValues[name] ?? declaredValues(first),
      recordAt: recordAt === -1 ? null : recordAt,
    },
    ...command.commands.flatMap((one) => collectChoices(one, [...words, one.name()])),
  ]
}

function toOptionChoice(option: Option, command: string): OptionChoice | null {
  const { long, short, description, required, optional } = option
  if (long === undefined || long === null) return null
  const given = knownValues[`${command} ${long}`] ?? declaredValues(option)
  const values = required || optional ? given : null
  return { word: long, short: short ?? null, description, values }
}

const declaredValues = (given: Argument | Option | undefined): readonly string[] =>
  given?.argChoices ?? []

const commonOptions: readonly OptionChoice[] = [
  { word: '--json', short: null, description: 'Print results as JSON', values: null },
  { word: '--quiet', short: null, description: 'Print problems only', values: null },
]

/**
 * Returns the words that are always offered. Options are offered only for a word that starts with
 * `-`.
 */
const joinWords = ({ commands, values }: CommandChoices): string =>
  [...values, ...commands.map(({ word }) => word)].join(' ')

const joinOptions = ({ options }: CommandChoices): string =>
  options.map(({ word }) => word).join(' ')

const commandPatterns = (all: readonly CommandChoices[]): string =>
  all
    .filter(({ words }) => words.length > 0)
    .map(({ words }) => `'${words.slice(0, -1).join(' ')} ${words.at(-1)}'`)
    .join('|')

const commandCases = (all: readonly CommandChoices[]): string =>
  all
    .map((place) => {
      const { words, recordAt } = place
      const records = recordAt === null ? '' : ` records=${recordAt}`
      const assignments = `words='${joinWords(place)}' options='${joinOptions(place)}'${records}`
      return `    '${words.join(' ')}') ${assignments} ;;`
    })
    .join('\n')

const valueCases = (all: readonly CommandChoices[]): string =>
  all
    .flatMap(({ words, options }) =>
      options.flatMap(({ word, short, values }) => {
        if (values === null) return []
        const names = short === null ? [word] : [word, short]
        const patterns = names.map((one) => `'${words.join(' ')} ${one}'`).join('|')
        return [`    ${patterns}) words='${values.join(' ')}' ;;`]
      }),
    )
    .join('\n')

const sessionsFunction = (noMatch: string): string => `_tutti_sessions() {
  local file
  for file in *.telemetry.jsonl*${noMatch} telemetry/*.telemetry.jsonl*${noMatch}; do
    case "$file" in *.view|*.tmp|'*'*|'telemetry/*'*) continue ;; esac
    file="\${file##*/}"
    file="\${file%.telemetry.jsonl*}"
    file="\${file%.repaired}"
    echo "\${file%.*}"
  done | sort -u
}`

/**
 * A function of bash and zsh. Its arguments are the words of the command line, up to the word to
 * complete. It prints the words that are possible at that position.
 */
const choicesFunction = (all: readonly CommandChoices[]): string => `_tutti_choices() {
  local place='' words='' options='' records='' previous='' given=0
  while [ $# -gt 1 ]; do
    case "$place $1" in
    ${commandPatterns(all)}) place="\${place:+$place }$1"; given=0 ;;
    *' -'*) ;;
    *) given=$((given + 1)) ;;
    esac
    previous="$1"
    shift
  done
  case "$place $previous" in
${valueCases(all)}
    *) case "$place" in
${commandCases(all)}
    esac ;;
  esac
  if [ -n "$records" ] && [ "$given" -ge "$records" ]; then
    words="$words latest $(_tutti_sessions)"
  fi
  case "$1" in -*) words="$words $options" ;; esac
  echo "$words"
}`

/** Returns the script for bash. It completes files if no word fits, or if a record may follow. */
const bashScript = (all: readonly CommandChoices[]): string => `# source <(tutti completion bash)
${sessionsFunction('')}
${choicesFunction(all)}
_tutti() {
  local current="\${COMP_WORDS[COMP_CWORD]}" words
  words="$(_tutti_choices "\${COMP_WORDS[@]:1:COMP_CWORD}")"
  COMPREPLY=($(compgen -W "$words" -- "$current"))
  case " $words " in *' latest '*) ;; *) [ \${#COMPREPLY[@]} -eq 0 ] || return 0 ;; esac
  COMPREPLY+=($(compgen -f -- "$current"))
}
complete -o filenames -F _tutti tutti
`

const zshScript = (all: readonly CommandChoices[]): string => `#compdef tutti
# source <(tutti completion zsh)
${sessionsFunction('(N)')}
${choicesFunction(all)}
_tutti() {
  compadd -- \${=$(_tutti_choices "\${(@)words[2,CURRENT]}")}
  _files
}
compdef _tutti tutti
`

const quoteFish = (text: string): string => `'${text.replaceAll(/['\\]/g, String.raw`\$&`)}'`

function fishScript(all: readonly CommandChoices[]): string {
  const lines = all.flatMap(({ words, commands, options, values, recordAt }) => {
    const seen = words.map((word) => `__fish_seen_subcommand_from ${word}`)
    const others = commands.map(({ word }) => word).join(' ')
    const isHere =
      words.length === 0
        ? ['__fish_use_subcommand']
        : [...seen, ...(others === '' ? [] : [`not __fish_seen_subcommand_from ${others}`])]
    const condition = quoteFish(isHere.join('; and '))
    const list = quoteFish(values.join(' '))
    const isRecord = quoteFish(
      [...isHere, `__tutti_given ${words.length} ${recordAt}`].join('; and '),
    )
    return [
      ...(recordAt === null
        ? []
        : [`complete -c tutti -n ${isRecord} -a 'latest (__tutti_sessions)' -d 'Record'`]),
      ...(values.length === 0 ? [] : [`complete -c tutti -n ${condition} -f -a ${list}`]),
      ...commands.map(
        ({ word, description }) =>
          `complete -c tutti -n ${condition} -f -a ${word} -d ${quoteFish(description)}`,
      ),
      ...options.map((option) => fishOption(condition, option)),
    ]
  })
  return `# tutti completion fish | source\n${fishFunctions}${lines.join('\n')}\n`
}

const fishFunctions = String.raw`function __tutti_sessions
  for file in *.telemetry.jsonl* telemetry/*.telemetry.jsonl*
    string match -qr '\.(view|tmp)$' -- $file; and continue
    set -l name (string replace -r '\.telemetry\.jsonl.*$' '' -- (basename $file))
    string replace -r '\.\d+(-\d+)?(\.repaired)?$' '' -- $name
  end | sort -u
end
function __tutti_given
  set -l words (commandline -opc)
  set -l given (string match -v -- '-*' $words[2..-1])
  test (count $given) -ge (math $argv[1] + $argv[2])
end
`

function fishOption(condition: string, { word, short, description, values }: OptionChoice): string {
  const letter = short === null ? '' : ` -s ${short.slice(1)}`
  const listed =
    values === null || values.length === 0 ? '' : ` -x -a ${quoteFish(values.join(' '))}`
  const value = values?.length === 0 ? ' -r' : listed
  const name = `-l ${word.slice(2)}${letter}${value}`
  return `complete -c tutti -n ${condition} ${name} -d ${quoteFish(description)}`
}
