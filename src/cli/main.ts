#!/usr/bin/env node
/** The command `tutti`: parses arguments, chooses the output, and turns errors into words. */

import { Command, CommanderError, InvalidArgumentError } from 'commander'
import { TuttiError } from '../foundation/errors.ts'
import { version } from '../foundation/version.ts'
import { demo } from './demo.ts'
import { exitCodes } from './exit-codes.ts'
import { verifyJournal } from './journal.ts'
import { createOutput, type Output, type OutputForm } from './output.ts'

interface GlobalOptions {
  readonly json?: boolean
  readonly quiet?: boolean
}

const ttyRedrawMs = 100
const plainRedrawMs = 10_000

function createProgram(finish: (code: number) => void): Command {
  const program = new Command('tutti')
    .description('Runs simulations, data work and LLM inference, all together.')
    .version(version)
    .option('--json', 'results as JSON on stdout, nothing else')
    .option('--quiet', 'no output but problems')
    .showSuggestionAfterError()
    .exitOverride()
  const output = (): Output => {
    const { json = false, quiet = false } = program.opts<GlobalOptions>()
    const form: OutputForm = json ? 'json' : quiet ? 'quiet' : 'text'
    return createOutput(form, process.stdout, process.stderr)
  }
  program
    .command('demo')
    .description('runs a mixed workload with live progress; some tasks fail on purpose')
    .option('--simulations <n>', 'how many simulations to run', toCount, 200)
    .option('--folder <path>', 'where the journal goes', './telemetry')
    .action(async ({ simulations, folder }: { simulations: number; folder: string }) => {
      const redrawMs = process.stderr.isTTY ? ttyRedrawMs : plainRedrawMs
      finish(await demo({ simulations, folder, redrawMs }, output()))
    })
  program
    .command('journal')
    .description('reads the record of a run')
    .command('verify')
    .description('checks order, ends, counters and the tail of a checkpoint file')
    .argument('<file>', 'a .telemetry.jsonl file')
    .action(async (file: string) => finish(await verifyJournal(file, output())))
  return program
}

function toCount(text: string): number {
  const count = Number(text)
  if (Number.isInteger(count) && count > 0 && count <= 1_000_000) return count
  throw new InvalidArgumentError('expected a whole number from 1 to 1000000')
}

/** A closed pipe (`| head`) is a reader that has seen enough. */
function ignoreClosedPipes(): void {
  for (const stream of [process.stdout, process.stderr]) {
    stream.on('error', (error: NodeJS.ErrnoException) => {
      if (error.code === 'EPIPE') process.exit(exitCodes.ok)
    })
  }
}

async function main(): Promise<void> {
  ignoreClosedPipes()
  const program = createProgram((code) => {
    process.exitCode = code
  })
  try {
    await program.parseAsync()
  } catch (error) {
    process.exitCode = explain(error)
  }
}

function explain(error: unknown): number {
  if (error instanceof CommanderError) return error.exitCode === 0 ? exitCodes.ok : exitCodes.usage
  if (!(error instanceof TuttiError)) throw error
  const hint = error.hint === undefined ? '' : `\n  hint: ${error.hint}`
  process.stderr.write(`${error.code}  ${error.message}${hint}\n`)
  return exitCodes.usage
}

await main()
