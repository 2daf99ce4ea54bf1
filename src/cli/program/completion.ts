/** Completion scripts for shells, generated from the declared commands. Pure. */

import type { Argument, Command, Option } from 'commander'
import { taskStates } from '../../tasks/lifecycle.ts'

export type Shell = 'bash' | 'zsh' | 'fish'

interface Choice {
  readonly word: string
  readonly description: string
}

interface OptionChoice extends Choice {
  /** The short form, such as `-o`. */
  readonly short: string | null
  /** The option's values: empty if any is allowed, such as a file; `null` if it takes none. */
  readonly values: readonly string[] | null
}

/** A command, given by its words, and what may follow it. */
interface CommandChoices {
  readonly words: readonly string[]
  readonly commands: readonly Choice[]
  readonly options: readonly OptionChoice[]
  /** Values of the command's first argument. */
  readonly values: readonly string[]
  /** The number of arguments before a record; `null` if the command takes no record. */
  readonly recordAt: number | null
}

export function completionScript(program: Command, shell: Shell): string {
  const all = choicesOf(program, [])
  return { bash, zsh, fish }[shell](all)
}

/** Values that commander does not know, by the words of the command. */
const knownValues: Readonly<Record<string, readonly string[]>> = {
  'tasks --state': taskStates,
  'tasks --sort': ['ran', 'waited'],
  'tail --type': ['TaskCreated', 'TaskStarted', 'TaskCompleted', 'TaskFailed', 'TaskCanceled'],
  'export --format': ['otlp', 'perfetto', 'csv', 'prometheus'],
  'model get': ['stories15M', 'tinyllama-1.1b-chat'],
}

function choicesOf(command: Command, words: readonly string[]): CommandChoices[] {
  const name = words.join(' ')
  const own = command.options.flatMap((option) => optionChoice(option, name) ?? [])
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
      options: [...own, ...common, help],
      values: knownValues[name] ?? choicesFor(first),
      recordAt: recordAt === -1 ? null : recordAt,
    },
    ...command.commands.flatMap((one) => choicesOf(one, [...words, one.name()])),
  ]
}

function optionChoice(option: Option, command: string): OptionChoice | null {
  const { long, short, description, required, optional } = option
  if (long === undefined || long === null) return null
  const given = knownValues[`${command} ${long}`] ?? choicesFor(option)
  const values = required || optional ? given : null
  return { word: long, short: short ?? null, description, values }
}

const choicesFor = (given: Argument | Option | undefined): readonly string[] =>
  given?.argChoices ?? []

const commonOptions: readonly OptionChoice[] = [
  { word: '--json', short: null, description: 'Print results as JSON', values: null },
  { word: '--quiet', short: null, description: 'Print problems only', values: null },
]

/** Options are not included: they are offered once a word starts with `-`. */
const wordsAt = ({ commands, values }: CommandChoices): string =>
  [...values, ...commands.map(({ word }) => word)].join(' ')

const optionsAt = ({ options }: CommandChoices): string => options.map(({ word }) => word).join(' ')

/** Case patterns that follow the words of the line to a command. */
const steps = (all: readonly CommandChoices[]): string =>
  all
    .filter(({ words }) => words.length > 0)
    .map(({ words }) => `'${words.slice(0, -1).join(' ')} ${words.at(-1)}'`)
    .join('|')

const cases = (all: readonly CommandChoices[], variable: string): string =>
  all
    .map((place) => {
      const { words, recordAt } = place
      const records = recordAt === null ? '' : ` records=${recordAt}`
      const given = `${variable}='${wordsAt(place)}' options='${optionsAt(place)}'${records}`
      return `    '${words.join(' ')}') ${given} ;;`
    })
    .join('\n')

/** Cases for the value of an option. */
const valueCases = (all: readonly CommandChoices[], variable: string): string =>
  all
    .flatMap(({ words, options }) =>
      options.flatMap(({ word, short, values }) => {
        if (values === null) return []
        const names = short === null ? [word] : [word, short]
        const patterns = names.map((one) => `'${words.join(' ')} ${one}'`).join('|')
        return [`    ${patterns}) ${variable}='${values.join(' ')}' ;;`]
      }),
    )
    .join('\n')

/** A shell function that lists sessions by their file names; also valid in zsh. */
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

/** Counts the arguments that follow the command. */
const followLine = (all: readonly CommandChoices[]): string => `    case "$place $word" in
    ${steps(all)}) place="\${place:+$place }$word"; given=0 ;;
    *' -'*) ;;
    *) given=$((given + 1)) ;;
    esac`

/** Completes files if no word fits, and in addition to records. */
const bash = (all: readonly CommandChoices[]): string => `# source <(tutti completion bash)
${sessionsFunction('')}
_tutti() {
  local current="\${COMP_WORDS[COMP_CWORD]}" place='' words='' options='' records='' given=0 word
  for word in "\${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
${followLine(all)}
  done
  case "$place \${COMP_WORDS[COMP_CWORD-1]}" in
${valueCases(all, 'words')}
    *) case "$place" in
${cases(all, 'words')}
    esac ;;
  esac
  if [ -n "$records" ] && [ "$given" -ge "$records" ]; then
    words="$words latest $(_tutti_sessions)"
  else records=''; fi
  case "$current" in -*) words="$words $options" ;; esac
  COMPREPLY=($(compgen -W "$words" -- "$current"))
  if [ -n "$records" ] || [ \${#COMPREPLY[@]} -eq 0 ]; then
    COMPREPLY+=($(compgen -f -- "$current"))
  fi
}
complete -o filenames -F _tutti tutti
`

const zsh = (all: readonly CommandChoices[]): string => `#compdef tutti
# source <(tutti completion zsh)
${sessionsFunction('(N)')}
_tutti() {
  local place='' choices='' options='' records='' given=0 word
  for word in "\${(@)words[2,CURRENT-1]}"; do
${followLine(all)}
  done
  case "$place \${words[CURRENT-1]}" in
${valueCases(all, 'choices')}
    *) case "$place" in
${cases(all, 'choices')}
    esac ;;
  esac
  if [ -n "$records" ] && [ "$given" -ge "$records" ]; then
    choices="$choices latest $(_tutti_sessions)"
  fi
  case "\${words[CURRENT]}" in -*) choices="$choices $options" ;; esac
  compadd -- \${=choices}
  _files
}
compdef _tutti tutti
`

const quoted = (text: string): string => `'${text.replaceAll(/['\\]/g, String.raw`\$&`)}'`

function fish(all: readonly CommandChoices[]): string {
  const lines = all.flatMap(({ words, commands, options, values, recordAt }) => {
    const seen = words.map((word) => `__fish_seen_subcommand_from ${word}`)
    const others = commands.map(({ word }) => word).join(' ')
    const isHere =
      words.length === 0
        ? ['__fish_use_subcommand']
        : [...seen, ...(others === '' ? [] : [`not __fish_seen_subcommand_from ${others}`])]
    const condition = quoted(isHere.join('; and '))
    const list = quoted(values.join(' '))
    const isRecord = quoted([...isHere, `__tutti_given ${words.length} ${recordAt}`].join('; and '))
    return [
      ...(recordAt === null
        ? []
        : [`complete -c tutti -n ${isRecord} -a 'latest (__tutti_sessions)' -d 'Record'`]),
      ...(values.length === 0 ? [] : [`complete -c tutti -n ${condition} -f -a ${list}`]),
      ...commands.map(
        ({ word, description }) =>
          `complete -c tutti -n ${condition} -f -a ${word} -d ${quoted(description)}`,
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
  const listed = values === null || values.length === 0 ? '' : ` -x -a ${quoted(values.join(' '))}`
  const value = values?.length === 0 ? ' -r' : listed
  const name = `-l ${word.slice(2)}${letter}${value}`
  return `complete -c tutti -n ${condition} ${name} -d ${quoted(description)}`
}
