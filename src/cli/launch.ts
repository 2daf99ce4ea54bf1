/** `tutti launch`: runs a script with the nodes of an allocation. */

import { existsSync, readFileSync } from 'node:fs'
import { basename, resolve } from 'node:path'
import { createInterface } from 'node:readline/promises'
import {
  readToldRecord,
  type RunCommand,
  type RunRequest,
  runVariable,
  toKeptArguments,
  writeRequest,
} from '../checkpoint/run-file.ts'
import { findNatsServer } from '../cluster/broker/nats-server.ts'
import { systemClock } from '../foundation/clock.ts'
import { messageOf, ValueError } from '../foundation/errors.ts'
import { newUuid } from '../foundation/ids.ts'
import { type BatchRequest, toBatchOptions, toBatchScript } from '../hpc/launch/batch-job.ts'
import { followLaunch, submitBatch } from '../hpc/launch/launch.ts'
import { LaunchFolder } from '../hpc/launch/launch-folder.ts'
import { onFirstNode, startScript } from '../hpc/launch/script-process.ts'
import { SlurmCommands } from '../hpc/slurm/slurm-commands.ts'
import { SlurmJob } from '../hpc/slurm/slurm-job.ts'
import { launchVariable } from '../hpc/start-method.ts'
import { signalExitCodes, type StopSignal, stopSignals } from './exit.ts'
import type { Output } from './output.ts'

export interface LaunchCommandOptions extends Omit<BatchRequest, 'more'> {
  readonly detach?: boolean
  readonly attach?: string
  readonly driver?: string
  readonly hosts?: string
  readonly cancelOnSignal?: boolean
}

/** Beside the records of runs. */
const parent = './telemetry'

/** A script and where it is to run. */
interface LaunchPlan {
  readonly command: RunCommand
  /** With those that are not kept. */
  readonly args: readonly string[]
  readonly options: LaunchCommandOptions
  readonly more: readonly string[]
  /** The record that it goes on with. */
  readonly resume: RunRequest['resume']
}

/** `words` are further options of sbatch, the script, and its arguments. */
export async function launch(
  words: readonly string[],
  options: LaunchCommandOptions,
  output: Output,
): Promise<number> {
  const { attach, driver } = options
  if (driver !== undefined && driver !== 'here') throw usage('--driver', 'expected here')
  if (attach !== undefined) return attachTo(attach, options, output)
  const at = words.findIndex((word) => !word.startsWith('-'))
  const [script, ...args] = at === -1 ? [] : words.slice(at)
  if (script === undefined) throw usage('script', 'which script? See tutti launch --help')
  if (!existsSync(script)) throw usage('script', `${script} was not found`)
  const more = words.slice(0, at)
  const { detach: _, attach: __, ...kept } = options
  const command = {
    kind: 'script',
    file: resolve(script),
    arguments: toKeptArguments(args),
    folder: process.cwd(),
    launch: { options: { ...kept }, more },
  } as const
  return start({ command, args, options, more, resume: null }, output)
}

/** Asks for the same again, for a script that goes on with its record. */
export async function launchAgain(
  command: RunCommand,
  args: readonly string[],
  record: RunRequest['resume'],
  output: Output,
): Promise<number> {
  const { options = {}, more = [] } = command.launch ?? {}
  return start({ command, args, options, more, resume: record }, output)
}

async function start(plan: LaunchPlan, output: Output): Promise<number> {
  const { command, args, options, resume: record } = plan
  const words = [process.execPath, command.file, ...args]
  // Asked before nodes are: it would be missing there as well.
  findNatsServer()
  const id = record?.session_id ?? `s-${newUuid().slice(0, 8)}`
  const folder = LaunchFolder.of(resolve(command.folder, parent), id)
  const request = { command, keep_results: true, session_id: id, resume: record }
  const jobId = process.env['SLURM_JOB_ID']
  if (options.hosts !== undefined) {
    const hosts = readHosts(resolve(command.folder, options.hosts))
    folder.write('facts', JSON.stringify({ method: 'hosts', hosts }))
    writeRequest(folder.file('request'), request)
    return runHere(words, folder, output)
  }
  if (jobId !== undefined) {
    folder.write('facts', JSON.stringify({ method: 'slurm', jobId }))
    writeRequest(folder.file('request'), request)
    const commands = new SlurmCommands()
    const isHere = options.driver === 'here'
    const placed = isHere ? words : await onFirstNode(jobId, words, commands, systemClock)
    return runHere(placed, folder, output)
  }
  if (options.driver === 'here') {
    throw usage('--driver', 'here needs an allocation, such as of salloc')
  }
  const batch = toBatchOptions({ ...options, more: plan.more }, basename(command.file), folder)
  folder.write('facts', JSON.stringify({ method: 'slurm' }))
  writeRequest(folder.file('request'), request)
  const script = { words, cwd: command.folder, variables }
  folder.write('script', toBatchScript(script, folder))
  return submit(batch, folder, options, output)
}

const variables = { facts: launchVariable, request: runVariable }

async function submit(
  batch: readonly string[],
  folder: LaunchFolder,
  options: LaunchCommandOptions,
  output: Output,
): Promise<number> {
  const jobId = await submitBatch(new SlurmCommands(), batch, folder)
  folder.write('facts', JSON.stringify({ method: 'slurm', jobId }))
  if (options.detach === true) {
    output.result({ job_id: jobId }, [jobId])
    return 0
  }
  return follow(jobId, folder, options, output)
}

async function attachTo(
  jobId: string,
  options: LaunchCommandOptions,
  output: Output,
): Promise<number> {
  const folder = LaunchFolder.find(resolve(parent), jobId)
  if (folder === null) throw usage('--attach', `no launch of job ${jobId} in ${parent}`)
  return follow(jobId, folder, options, output)
}

/** The child has the terminal: its Ctrl-C reaches both, other signals are passed on. */
async function runHere(
  command: readonly string[],
  folder: LaunchFolder,
  output: Output,
): Promise<number> {
  const script = startScript(command, {
    [launchVariable]: folder.file('facts'),
    [runVariable]: folder.file('request'),
  })
  const onSignal = (signal: StopSignal): void => {
    if (signal !== 'SIGINT' || !process.stdin.isTTY) script.kill(signal)
  }
  for (const signal of stopSignals) process.on(signal, onSignal)
  try {
    const code = await script.ended
    const record = readToldRecord(folder.file('request'))
    if (record !== null && (code !== 0 || existsSync(folder.file('ended')))) {
      output.problem(`resume  npx tutti resume ${record}`)
    }
    return code
  } finally {
    for (const signal of stopSignals) process.off(signal, onSignal)
  }
}

async function follow(
  jobId: string,
  folder: LaunchFolder,
  options: LaunchCommandOptions,
  output: Output,
): Promise<number> {
  const commands = new SlurmCommands()
  const interruption = new Interruption(jobId, options, output)
  let status: string | null = ''
  const view = {
    stdout: (chunk: Buffer) => void process.stdout.write(chunk),
    stderr: (chunk: Buffer) => void process.stderr.write(chunk),
    status(line: string | null) {
      if (line !== status) output.progress(line === null ? [] : [line])
      status = line
    },
  }
  const { signal } = interruption
  try {
    const code = await followLaunch({ jobId, folder, commands, clock: systemClock, view, signal })
    if (code !== null) return code
    if (interruption.isCancel) await new SlurmJob(jobId, commands, systemClock).cancel()
    const attach = `tutti launch --attach ${jobId}`
    const what = interruption.isCancel ? 'is canceled' : `goes on; come back with: ${attach}`
    output.problem(`job ${jobId} ${what}`)
    return interruption.exitCode
  } finally {
    interruption.release()
  }
}

/** A stop signal while a job is followed: the job goes on, unless somebody wants it canceled. */
class Interruption {
  isCancel: boolean
  exitCode = 0
  readonly #controller = new AbortController()
  readonly #onSignal = (signal: StopSignal): void => void this.#take(signal)
  readonly #jobId: string
  readonly #output: Output
  #isAsking = false

  constructor(jobId: string, { cancelOnSignal = false }: LaunchCommandOptions, output: Output) {
    this.#jobId = jobId
    this.#output = output
    this.isCancel = cancelOnSignal
    for (const signal of stopSignals) process.on(signal, this.#onSignal)
  }

  get signal(): AbortSignal {
    return this.#controller.signal
  }

  release(): void {
    for (const signal of stopSignals) process.off(signal, this.#onSignal)
  }

  async #take(signal: StopSignal): Promise<void> {
    this.exitCode = signalExitCodes[signal]
    const isTerminal = process.stdin.isTTY && process.stderr.isTTY
    if (this.#isAsking) this.isCancel = true
    else if (signal === 'SIGINT' && isTerminal && !this.isCancel) await this.#ask()
    this.#controller.abort()
  }

  async #ask(): Promise<void> {
    this.#isAsking = true
    this.#output.problem(`job ${this.#jobId}: detach, or cancel it? [D/c] (Ctrl-C cancels)`)
    const lines = createInterface({ input: process.stdin })
    const { promise, resolve: answer } = Promise.withResolvers<string>()
    lines.once('line', answer)
    lines.once('close', () => answer(''))
    this.signal.addEventListener('abort', () => lines.close())
    if (/^c/i.test((await promise).trim())) this.isCancel = true
    lines.close()
  }
}

/** A name a line; empty lines and those of `#` do not count. */
function readHosts(file: string): string[] {
  try {
    const lines = readFileSync(file, 'utf8').split('\n')
    return lines.map((line) => line.replace(/#.*/, '').trim()).filter((line) => line !== '')
  } catch (cause) {
    throw usage('--hosts', messageOf(cause))
  }
}

const usage = (field: string, message: string): ValueError =>
  new ValueError(`${field}: ${message}`, { field })
