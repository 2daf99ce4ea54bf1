/** Reads the files and commands of a guide, and compares the output of commands with it. */

/** A file that the reader is asked to write. */
export interface GuideFile {
  readonly kind: 'file'
  readonly path: string
  readonly text: string
}

/** A command that the reader is asked to type, and what it prints. */
export interface GuideCommand {
  readonly kind: 'command'
  readonly line: number
  readonly command: string
  /** `undefined` if the guide shows no output: then any output is accepted. */
  readonly output: string | undefined
  readonly exitCode: number
}

export type GuideStep = GuideFile | GuideCommand

const fence = /^```(\w*)(.*)$/
const named = /^(?:\/\/|#) ([\w./-]+\.\w+)$/
const titled = /title="([^"]+)"/
const exitComment = /#\s*exit code (\d+)$/
/** Code in these languages must be a file, so that all of it is run. */
const languages = new Set(['ts', 'js', 'mjs', 'cjs', 'json', 'yaml', 'python', 'bash', 'gbnf'])

/** The steps of a guide in order. Throws for code that does not name its file. */
export function stepsOf(markdown: string): readonly GuideStep[] {
  const lines = markdown.split('\n')
  const steps: GuideStep[] = []
  for (let at = 0; at < lines.length; at++) {
    const opening = fence.exec(lines[at] ?? '')
    if (opening === null) continue
    const end = lines.indexOf('```', at + 1)
    if (end < 0) throw new Error(`line ${at + 1}: a block of code has no end`)
    const body = lines.slice(at + 1, end)
    const [, language = '', info = ''] = opening
    if (language === 'console') steps.push(...commandsOf(body, at + 2))
    else if (languages.has(language)) steps.push(fileOf(body, info, at + 1))
    at = end
  }
  return steps
}

function fileOf(body: readonly string[], info: string, line: number): GuideFile {
  const path = titled.exec(info)?.[1] ?? named.exec(body[0] ?? '')?.[1]
  if (path === undefined) {
    throw new Error(`line ${line}: the first line of code is not a comment with the file's name`)
  }
  return { kind: 'file', path, text: `${body.join('\n')}\n` }
}

function commandsOf(body: readonly string[], firstLine: number): readonly GuideCommand[] {
  const commands: GuideCommand[] = []
  for (let at = 0; at < body.length;) {
    const line = firstLine + at
    if (!body[at]?.startsWith('$ ')) throw new Error(`line ${line}: expected "$ " and a command`)
    const typed = [body[at++]?.slice(2)]
    while (body[at]?.startsWith('> ')) typed.push(body[at++]?.slice(2))
    const printed: string[] = []
    while (at < body.length && !body[at]?.startsWith('$ ')) printed.push(body[at++] ?? '')
    const command = typed.join('\n')
    commands.push({
      kind: 'command',
      line,
      command,
      output: printed.length === 0 ? undefined : printed.join('\n'),
      exitCode: Number(exitComment.exec(command)?.[1] ?? 0),
    })
  }
  return commands
}

/**
 * Whether a command printed what the guide shows. A line `…` matches any number of lines, and `…`
 * inside a line matches any text.
 */
export function isShown(expected: string, actual: string): boolean {
  const source = expected
    .trimEnd()
    .split('\n')
    .map((line) => (line.trim() === '…' ? String.raw`(?:[^\n]*\n)*?` : `${patternOf(line)}\n`))
    .join('')
  return new RegExp(`^${source}$`, 'u').test(`${actual.trimEnd()}\n`)
}

const patternOf = (line: string): string =>
  line
    .trimEnd()
    .split('…')
    .map((part) => part.replace(/[\\^$.*+?()[\]{}|]/g, String.raw`\$&`))
    .join(String.raw`[^\n]*`) + ' *'
