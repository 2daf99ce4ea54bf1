/** Completion scripts for shells, made from the commands themselves. Pure. */

import type { Command } from 'commander'

export type Shell = 'bash' | 'zsh' | 'fish'

interface Choice {
  readonly word: string
  readonly description: string
}

/** A command by its words, and what may follow them. */
interface CommandChoices {
  readonly words: readonly string[]
  readonly commands: readonly Choice[]
  readonly options: readonly Choice[]
}

export function completionScript(program: Command, shell: Shell): string {
  const all = choicesOf(program, [])
  return { bash, zsh, fish }[shell](all)
}

function choicesOf(command: Command, words: readonly string[]): CommandChoices[] {
  const own = command.options.flatMap(({ long, description }) =>
    long === undefined || long === null ? [] : [{ word: long, description }],
  )
  const common = words.length === 0 ? [] : commonOptions
  const commands = command.commands.map((one) => ({
    word: one.name(),
    description: one.description(),
  }))
  const help = { word: '--help', description: 'how it is used' }
  return [
    { words, commands, options: [...own, ...common, help] },
    ...command.commands.flatMap((one) => choicesOf(one, [...words, one.name()])),
  ]
}

const commonOptions: readonly Choice[] = [
  { word: '--json', description: 'results as JSON' },
  { word: '--quiet', description: 'no output except problems' },
]

const wordsAt = ({ commands, options }: CommandChoices): string =>
  [...commands, ...options].map(({ word }) => word).join(' ')

/** Patterns that follow the words of the line down to a command. */
const steps = (all: readonly CommandChoices[]): string =>
  all
    .filter(({ words }) => words.length > 0)
    .map(({ words }) => `'${words.slice(0, -1).join(' ')} ${words.at(-1)}'`)
    .join('|')

const cases = (all: readonly CommandChoices[]): string =>
  all.map((place) => `    '${place.words.join(' ')}') words='${wordsAt(place)}' ;;`).join('\n')

/** Files where no word fits. */
const bash = (all: readonly CommandChoices[]): string => `# source <(tutti completion bash)
_tutti() {
  local current="\${COMP_WORDS[COMP_CWORD]}" place='' words='' word
  for word in "\${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    case "$place $word" in
    ${steps(all)}) place="\${place:+$place }$word" ;;
    esac
  done
  case "$place" in
${cases(all)}
  esac
  COMPREPLY=($(compgen -W "$words" -- "$current"))
  if [ \${#COMPREPLY[@]} -eq 0 ]; then COMPREPLY=($(compgen -f -- "$current")); fi
}
complete -o filenames -F _tutti tutti
`

const zsh = (all: readonly CommandChoices[]): string => `#compdef tutti
# source <(tutti completion zsh)
_tutti() {
  local place='' choices='' word
  for word in "\${(@)words[2,CURRENT-1]}"; do
    case "$place $word" in
    ${steps(all)}) place="\${place:+$place }$word" ;;
    esac
  done
  case "$place" in
${cases(all).replaceAll("words='", "choices='")}
  esac
  compadd -- \${=choices}
  _files
}
compdef _tutti tutti
`

const quoted = (text: string): string => `'${text.replaceAll(/['\\]/g, String.raw`\$&`)}'`

function fish(all: readonly CommandChoices[]): string {
  const lines = all.flatMap(({ words, commands, options }) => {
    const seen = words.map((word) => `__fish_seen_subcommand_from ${word}`)
    const others = commands.map(({ word }) => word).join(' ')
    const isHere =
      words.length === 0
        ? ['__fish_use_subcommand']
        : [...seen, ...(others === '' ? [] : [`not __fish_seen_subcommand_from ${others}`])]
    const condition = quoted(isHere.join('; and '))
    return [
      ...commands.map(
        ({ word, description }) =>
          `complete -c tutti -n ${condition} -f -a ${word} -d ${quoted(description)}`,
      ),
      ...options.map(
        ({ word, description }) =>
          `complete -c tutti -n ${condition} -l ${word.slice(2)} -d ${quoted(description)}`,
      ),
    ]
  })
  return `# tutti completion fish | source\n${lines.join('\n')}\n`
}
