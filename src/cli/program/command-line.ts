/** Parses the command line of `tutti`, creates the output, and prints errors. */

import { Command, CommanderError, InvalidArgumentError, Option } from 'commander'
import { BackendError, messageOf, TuttiError, ValueError } from '../../foundation/errors.ts'
import { expectBasePath, expectOrigin, findNearest } from '../../foundation/options.ts'
import { version } from '../../foundation/version.ts'
import { exitCodes, isOutputFailure } from '../exit.ts'
import type { AgentCommandOptions, ConnectionOptions } from '../agent.ts'
import type { LaunchCommandOptions } from '../launch/launch.ts'
import { createOutput, type Output, type OutputForm, wrapText } from '../output.ts'
import type { DemoOptions } from '../demo.ts'
import type { RunOptions } from '../run/run.ts'
import { isTaskFile } from '../run/file-kinds.ts'
import { type Cli, expectOnce, toCount, toCountUpTo, toHosts, toList, toOneOf } from './cli.ts'
import { toPort, withRecordFile } from './cli.ts'
import { addExamples } from './examples.ts'
import { addReaders } from './reader-commands.ts'
import { addBench, addTools } from './tool-commands.ts'
import type { ServeOptions } from '../serve.ts'
import { listConfigKeys } from '../serve-settings.ts'
import { guardStreams, type ProcessStream, type StandardStreams } from '../standard-streams.ts'
import { ProgressBlock } from '../../telemetry/progress/terminal.ts'
import { escapeLines } from '../../views/readable.ts'

interface GlobalOptions {
  readonly json?: boolean
  readonly quiet?: boolean
}

interface ResumeFlags {
  readonly keepFailed?: boolean
  readonly keepDone?: boolean
  readonly force?: boolean
  readonly dryRun?: boolean
}

interface CommandLine extends Cli {
  /** Parts of the help or version text, which are printed as one JSON value. */
  readonly helpTexts: readonly string[]
}

/** The part of `process` that emits warnings. */
interface WarningSource {
  listeners(event: 'warning'): readonly unknown[]
  removeAllListeners(event: 'warning'): unknown
  on(event: 'warning', listener: (warning: Error) => void): unknown
}

/** The part of a process that a command line needs. */
export interface CommandProcess extends Partial<WarningSource> {
  readonly argv: readonly string[]
  readonly stdout: ProcessStream
  readonly stderr: ProcessStream
  readonly env: Readonly<Record<string, string | undefined>>
  exitCode?: number | string | null | undefined
}

function createCli(
  streams: StandardStreams,
  argv: readonly string[],
  finish: (code: number) => void,
): CommandLine {
  const isJson = (): boolean => program.opts<GlobalOptions>().json === true
  const helpTexts: string[] = []
  const program = new Command('tutti')
    .description('Run simulations, data work and LLM inference, all together.')
    .version(version, '-V, --version', 'Show the version')
    .helpOption('-h, --help', 'Show help')
    .configureHelp({ showGlobalOptions: true })
    .option('--json', 'Print results as JSON on stdout and errors as JSON on stderr')
    .option('--quiet', 'Print problems only')
    .showSuggestionAfterError()
    .exitOverride()
    .configureOutput({
      writeOut(text) {
        // Commander prints the version before it parses the options that follow.
        const isVersion = text.trim() === version && argv.includes('--json')
        if (isJson() || isVersion) helpTexts.push(text)
        else streams.stdout.write(wrapText(text, output().width))
      },
      writeErr(text) {
        const { width } = new ProgressBlock(streams.stderr)
        if (!isJson()) streams.stderr.write(wrapText(escapeLines(text), width))
      },
    })
  const outputs = new Map<OutputForm, Output>()
  const output = (): Output => {
    const { quiet = false } = program.opts<GlobalOptions>()
    const form: OutputForm = isJson() ? 'json' : quiet ? 'quiet' : 'text'
    // Reuses the output of the form, because a notice must first remove the progress block of this
    // output.
    const made = outputs.get(form) ?? createOutput(form, streams.stdout, streams.stderr)
    outputs.set(form, made)
    return made
  }
  const cli = { program, output, finish, helpTexts }
  program.commandsGroup('Run:')
  addRun(cli)
  addLaunch(cli)
  addAgents(cli)
  addServe(cli, argv)
  program.commandsGroup('Read the record of a run:')
  addReaders(cli)
  program.commandsGroup('Set up:')
  addTools(cli)
  addBench(cli)
  for (const one of [program, ...program.commands.filter(({ commands }) => commands.length > 0)]) {
    one.helpCommand('help [command]', 'Show the help of a command')
  }
  addExamples(program)
  return cli
}

const dashboardOption = ['--dashboard', 'Show the run in the browser, and print the link'] as const

function addRun({ program, output, finish }: Cli): void {
  program
    .command('demo')
    .description('Run a mixed workload with live progress; some tasks fail on purpose')
    .option('--simulations <n>', 'Number of simulations', toCount, 200)
    .option('--folder <path>', 'Folder of the record', './telemetry')
    .option('--model <file>', 'GGUF model; with it, AI tasks write stories')
    .option(...dashboardOption)
    .option('--keep-open', 'Like --dashboard; in a terminal, keep the page until you press Enter')
    .action(async (options: DemoOptions) => {
      const { demo } = await import('../demo.ts')
      finish(await demo(options, output()))
    })
  program
    .command('run')
    .description('Run a script, the tasks of a .jsonl or .yaml file, or a program many times')
    .argument('<file>', 'Script for Node, or file of tasks; with --array, a program')
    .argument('[args...]', 'Arguments of the script or program')
    .option('--folder <path>', 'Folder of the record of tasks (default: ./telemetry)')
    .option(
      '--array <numbers>',
      'Run the program once per number ({} or TUTTI_ARRAY_ID): 1-10,20 or 1-100:5',
      expectOnce,
    )
    .option(...dashboardOption)
    .action(async (file: string, args: readonly string[], options: RunOptions) => {
      const { run } = await import('../run/run.ts')
      finish(await run(file, args, options, output()))
    })
  const about = 'Continue a run of tutti run; finished tasks do not run again'
  withRecordFile(program.command('resume').description(about))
    .argument('[args...]', 'After --: arguments that were not kept because they are secret')
    .option('--keep-failed', 'Do not run failed tasks again')
    .addOption(
      new Option(
        '--keep-done',
        'Keep results of done tasks even if their definition changed',
      ).conflicts('force'),
    )
    .option('--force', 'Run done tasks again if their definition changed')
    .option('--dry-run', 'List the tasks that would run, and run nothing')
    .action(async (file: string, args: readonly string[], options: ResumeFlags) => {
      const { resume } = await import('../run/run.ts')
      const { keepFailed = false, keepDone = false, force = false, dryRun = false } = options
      const changed = keepDone ? 'keep' : force ? 'rerun' : 'refuse'
      finish(await resume(file, args, { changed, keepFailed, isDryRun: dryRun }, output()))
    })
}

function addServe({ program, output, finish }: Cli, argv: readonly string[]): void {
  const command = program
    .command('serve')
    .description('Serve models over HTTP with the APIs of OpenAI, Anthropic and Ollama')
    .argument('[model]', 'GGUF file, or the name of a model')
    .option('--config <file>', 'YAML configuration')
    .option('--engine <kind>', 'Engine: llama, openai, process or echo (default: llama)')
    .option('--base-url <url>', 'Address of the server behind the engine openai')
    .option('--port <n>', 'Port to listen on; 0 for a free one (default: 8000)', toPort)
    .option('--host <name>', 'Address to listen on (default: 127.0.0.1)')
    .option('--api-key-file <file>', 'File with the key that clients must send')
    .option('--api-keys <file>', 'File with a line per client: name key [rpm=N] [tpm=N]')
    .option(
      '--tls-cert <file>',
      'Certificate for HTTPS, with --tls-key; read again when it changes',
    )
    .option('--tls-key <file>', 'Key of the certificate')
    .option('--base-path <path>', 'First part of all paths, such as /llm', toBasePath)
    .option('--log-requests', 'Print a line for each request to stderr, without contents')
    .option('--log-contents', 'Like --log-requests, with prompts and answers')
    .option('--allow-host <name>', 'Another host name that clients may use; repeatable', toHosts)
    .option('--allow-origin <url>', 'Origin whose pages may call the server; repeatable', toOrigins)
    .option('--no-page', 'No chat page at /')
    .option('--dashboard', 'Show requests, batches and workers in the browser')
    .action(async (model: string | undefined, options: ServeOptions) => {
      // Imported here, so that other commands start fast.
      const { serve } = await import('../serve.ts')
      finish(await serve(model, options, output()))
    })
  // Other commands start 7 ms faster without these options.
  const hasKeys = argv.includes('serve') || argv.includes('completion')
  for (const { flag, description, parse } of hasKeys ? listConfigKeys() : []) {
    command.addOption(new Option(`--${flag} <value>`, description).hideHelp().argParser(parse))
  }
  command.addHelpText('after', settingsHelp)
}

const settingsHelp = `
Every key of a configuration is also an option, such as --llm.max-tokens 200 for max_tokens in the
section llm. It takes precedence over the file. docs/inference.md lists the keys.`

function addAgents({ program, output, finish }: Cli): void {
  const connection = (command: Command): Command =>
    command
      .requiredOption(
        '--connect <url>',
        'URL of the NATS server, such as nats://127.0.0.1:4222 (required)',
      )
      .requiredOption(
        '--token-file <file>',
        'File with the token of the cluster, which only you may read (required)',
      )
      .option('--credentials <file>', 'File with NATS credentials (.creds) or an NKey seed')
      .option('--user <name>', 'User of the server, with --password-file')
      .option('--password-file <file>', "File with the user's password; only you may read it")
      .option('--tls-ca <file>', 'Encrypt, and trust the certificates of this authority')
      .option('--tls-cert <file>', 'Certificate of this client, with --tls-key')
      .option('--tls-key <file>', 'Key of the certificate')
      .option('--tls', 'Encrypt, and trust the authorities of the system')
      .option('--plaintext', 'Allow a server on another machine without TLS')
  connection(program.command('agent'))
    .description('Run tasks of a cluster on this machine until SIGTERM drains it')
    .option('--name <name>', 'Name of the node in events (default: name of the host)')
    .option('--cores <n>', 'Cores for tasks (default: those of this machine)', toCount)
    .option('--gpus <list>', 'Number of GPUs, or which: 0,1 or GPU-uuid,… (default: all)')
    .option('--memory-mb <n>', 'Megabytes for tasks (default: those of this machine)', toMegabytes)
    .option('--label <key=value>', 'Label that tasks may ask for; repeatable', toLabels)
    .option('--work-dir <folder>', 'Folder in which folders of sessions are created')
    .option(
      '--isolation <kind>',
      'Where functions run: thread or process',
      toOneOf('thread', 'process'),
    )
    .option(
      '--only <kind>',
      'Run only functions or only programs',
      toOneOf('functions', 'programs'),
    )
    .option('--allow <glob>', 'Run only these programs and modules; repeatable', toList)
    .option('--allow-env <name>', 'With --allow: let tasks set this variable; repeatable', toList)
    .action(async (options: AgentCommandOptions) => {
      const { runAgent } = await import('../agent.ts')
      finish(await runAgent(options, output()))
    })
  connection(program.command('agents'))
    .description('List the agents of a cluster')
    .action(async (options: ConnectionOptions) => {
      const { listAgents } = await import('../agent.ts')
      finish(await listAgents(options, output()))
    })
}

function addLaunch({ program, output, finish }: Cli): void {
  program
    .command('launch')
    .description('Run a script with the nodes of a Slurm allocation or a list of hosts')
    .usage('[options] [-- --option-of-sbatch=value …] script.ts [args]')
    .argument('[script...]', 'Script and its arguments')
    .option('--nodes <n>', 'Number of nodes (default: 1)', toCount)
    .option('--gpus-per-node <n>', 'GPUs of each node', toCount)
    .option('--cores-per-node <n>', 'Cores of each node (default: all)', toCount)
    .option('--mem <size>', 'Memory of each node, such as 16G')
    .option('--time <limit>', 'Time limit as sbatch takes it: minutes, H:M:S, D-H …')
    .option('--partition <name>', 'Partition to wait in')
    .option('--account <name>', 'Account that pays')
    .option('--qos <name>', 'Quality of service')
    .option('--constraint <list>', 'Features that nodes must have')
    .option(
      '--chain <n>',
      'Submit up to n jobs; each continues where the previous one stopped',
      toChain,
    )
    .addOption(
      new Option('--detach', 'Print the id of the job and exit').conflicts(['driver', 'dashboard']),
    )
    .option('--attach <job>', 'Follow a job that was launched from this folder')
    .addOption(
      new Option(
        '--driver <where>',
        'Where the script runs; here: on this machine, in one job, not on the first node',
      )
        .conflicts('chain')
        .argParser(toOneOf('here')),
    )
    .option('--hosts <file>', 'File of hosts, one per line, instead of Slurm')
    .option('--work-dir <folder>', 'Folder for files of tasks on the nodes (default: TMPDIR there)')
    .option('--check', 'Try one node without a script, and report what is missing')
    .option('--cancel-on-signal', 'Cancel the job on a stop signal instead of leaving it')
    .option(...dashboardOption)
    .action(async (words: string[], options: LaunchCommandOptions) => {
      const { launch } = await import('../launch/launch.ts')
      finish(await launch(words, options, output()))
    })
}

const toMegabytes = toCountUpTo(2 ** 40)
/** The maximum is low, because all jobs of a chain wait in the queue of the scheduler. */
const toChain = toCountUpTo(100)

function toBasePath(text: string): string {
  try {
    return expectBasePath('--base-path', text)
  } catch (error) {
    throw toArgumentError(error)
  }
}

function toOrigins(text: string, before: readonly string[] = []): readonly string[] {
  try {
    return [...before, expectOrigin('--allow-origin', text)]
  } catch (error) {
    throw toArgumentError(error)
  }
}

/** Leaves out the name and the given value, because the parser of options adds them. */
function toArgumentError(error: unknown): InvalidArgumentError {
  const expected = ValueError.isInstance(error) ? error.expected : undefined
  return new InvalidArgumentError(
    expected === undefined ? messageOf(error) : `expected ${expected}`,
  )
}

function toLabels(
  text: string,
  before: Readonly<Record<string, string>> = {},
): Readonly<Record<string, string>> {
  const [key = '', ...rest] = text.split('=')
  if (key === '' || rest.length === 0) {
    throw new InvalidArgumentError('expected a label such as disk=ssd')
  }
  if (Object.hasOwn(before, key)) throw new InvalidArgumentError(`"${key}" was given twice`)
  return { ...before, [key]: rest.join('=') }
}

/** Runs the command that the arguments name, and sets the exit code. */
export async function runCommandLine(own: CommandProcess): Promise<void> {
  const streams = guardStreams({
    stdout: own.stdout,
    stderr: own.stderr,
    term: own.env['TERM'],
    onFailure(message) {
      own.exitCode = exitCodes.outputFailed
      output().failure({ code: 'OutputFileError', message })
    },
  })
  // After a failed write, the exit code of the command is ignored.
  const finish = (code: number): void => {
    own.exitCode ||= code
  }
  const { program, output, helpTexts } = createCli(streams, own.argv, finish)
  if (emitsWarnings(own)) showWarnings(own, output)
  try {
    await program.parseAsync(separateScript(own.argv, program))
  } catch (error) {
    const text = helpTexts.join('')
    const value = text.trim() === version ? { version } : { help: text }
    if (text !== '') streams.stdout.write(`${JSON.stringify(value)}\n`)
    finish(reportError(error, program, output()))
  }
}

type Listener = (warning: Error) => void

/**
 * Prints the warnings of tutti as notices; in JSON form, all warnings. Does nothing if Node prints
 * no warnings, as with `NODE_NO_WARNINGS`.
 */
function showWarnings(source: WarningSource, output: () => Output): void {
  const nodes = source.listeners('warning') as readonly Listener[]
  if (nodes.length === 0) return
  source.removeAllListeners('warning')
  source.on('warning', (warning) => {
    const shown = output()
    const { name, message, code = name } = warning as Error & { readonly code?: string }
    if (name === 'TuttiWarning' || shown.form === 'json') shown.problem(`${code}: ${message}`)
    else for (const listener of nodes) listener(warning)
  })
}

const emitsWarnings = (own: CommandProcess): own is CommandProcess & WarningSource =>
  own.removeAllListeners !== undefined

/**
 * Prepares the arguments for commander. Inserts `--` before a script, so that all later arguments
 * belong to the script.
 */
function separateScript(argv: readonly string[], program: Command): readonly string[] {
  const at = argv.findIndex((word, index) => index > 1 && !word.startsWith('-'))
  const name = argv[at] ?? ''
  if (name === 'resume') return insertLatest(argv, at)
  if (name === 'help') return dropHelpWord(argv, at, program)
  const command = program.commands.find((one) => one.name() === name)
  if (isUnknownCommand(argv, at, program)) return dropHelpOptions(argv, at)
  if (command === undefined || !['launch', 'run'].includes(name)) return argv
  for (let index = at + 1; index < argv.length; index++) {
    const word = argv[index] ?? ''
    if (word === '--') return argv
    // A task file takes no arguments.
    if (name === 'run' && isTaskFile(word)) return argv
    if (!word.startsWith('-')) return [...argv.slice(0, index), '--', ...argv.slice(index)]
    const option = command.options.find(({ long }) => long === word)
    if (option?.required === true) index++
  }
  return argv
}

/** Removes `help` before an unknown command, so that commander reports this command as unknown. */
function dropHelpWord(argv: readonly string[], at: number, program: Command): readonly string[] {
  const asked = argv[at + 1] ?? '-'
  const isKnown = asked === 'help' || program.commands.some((one) => one.name() === asked)
  return isKnown || asked.startsWith('-') ? argv : argv.toSpliced(at, 1)
}

function isUnknownCommand(argv: readonly string[], at: number, { commands }: Command): boolean {
  const name = argv[at]
  if (name === undefined) return false
  const found = commands.find((one) => one.name() === name)
  if (found === undefined) return name !== 'help'
  if (found.commands.length === 0) return false
  const next = argv.findIndex((word, index) => index > at && !word.startsWith('-'))
  return next !== -1 && isUnknownCommand(argv, next, found)
}

/** Removes help options, for which commander would print the parent's help instead of an error. */
const dropHelpOptions = (argv: readonly string[], at: number): readonly string[] =>
  argv.filter((word, index) => index < at || !['-h', '--help', '-V', '--version'].includes(word))

function insertLatest(argv: readonly string[], at: number): readonly string[] {
  const separator = argv.indexOf('--', at)
  const words = separator === -1 ? argv.slice(at + 1) : argv.slice(at + 1, separator)
  const isNamed = words.some((word) => word === '-' || !word.startsWith('-'))
  if (separator === -1 || isNamed) return argv
  return [...argv.slice(0, separator), 'latest', ...argv.slice(separator)]
}

function reportError(error: unknown, program: Command, output: Output): number {
  if (error instanceof CommanderError) {
    if (error.exitCode === 0) return exitCodes.ok
    // In text form, commander has already printed the message.
    const isJson = program.opts<GlobalOptions>().json === true
    const near = findConfigOption(error)
    if (isJson) output.failure({ code: 'UsageError', message: `${usageMessage(error)}${near}` })
    else if (near !== '') output.problem(near.trim())
    return exitCodes.usage
  }
  // The result can no longer be written. Unless a pipe was closed, `onFailure` has set the exit
  // code.
  if (isAbort(error, output.closed)) return exitCodes.ok
  if (!(error instanceof TuttiError)) throw error
  output.failure(error)
  if (isOutputFailure(error)) return exitCodes.outputFailed
  return BackendError.isInstance(error) ? exitCodes.backendFailed : exitCodes.usage
}

/**
 * Suggests the option of a configuration key. Commander does not suggest it, because it is hidden.
 */
function findConfigOption({ code, message }: CommanderError): string {
  const [, wrong] = /'--([^']+\.[^']+)'/.exec(message) ?? []
  if (code !== 'commander.unknownOption' || wrong === undefined) return ''
  const near = findNearest(
    wrong,
    listConfigKeys().map(({ flag }) => flag),
  )
  return near === undefined ? '' : `\n(Did you mean --${near}?)`
}

function isAbort(error: unknown, closed: AbortSignal): boolean {
  if (!closed.aborted) return false
  return error === closed.reason || (error instanceof Error && error.cause === closed.reason)
}

/** If no command is given, the message of commander's error is the help text. */
const usageMessage = ({ code, message }: CommanderError): string =>
  code === 'commander.help'
    ? 'a command is missing; see npx tutti --help'
    : message.replace(/^error: /, '')
