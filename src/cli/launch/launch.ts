/** `tutti launch`: runs a script on the nodes of an allocation. */

import { existsSync } from 'node:fs'
import { resolve } from 'node:path'
import {
  readRecordOf,
  type RunCommand,
  type RunRequest,
  runVariable,
  toKeptArguments,
  writeRequest,
} from '../../checkpoint/run-file.ts'
import { findNatsServer } from '../../cluster/broker/nats-program.ts'
import { systemClock } from '../../foundation/clock.ts'
import { ValueError } from '../../foundation/errors.ts'
import { newUuid } from '../../foundation/ids.ts'
import { statOf } from '../../foundation/regular-file.ts'
import { readHostFile } from '../../hpc/launch/host-file.ts'
import { LaunchFolder, launchParent } from '../../hpc/launch/launch-folder.ts'
import { cacheVariable, openModuleCache } from '../../hpc/launch/module-cache.ts'
import { onFirstNode, type PlacedCommand } from '../../hpc/launch/first-node.ts'
import { SlurmCommands } from '../../hpc/slurm/slurm-commands.ts'
import { launchVariable } from '../../hpc/start-method.ts'
import type { Output } from '../output.ts'
import { reportRecord, resumeCommand } from '../run/resume-command.ts'
import { runScriptChild } from '../script-child.ts'
import type { CheckOptions } from './check.ts'

export interface LaunchCommandOptions extends CheckOptions {
  readonly detach?: boolean
  readonly attach?: string
  readonly driver?: string
  /** The maximum number of jobs that follow each other. Default 1. */
  readonly chain?: number
  readonly cancelOnSignal?: boolean
  /** Tries a launch on one node, without a script. */
  readonly check?: boolean
}

/** A script and where to run it. */
interface LaunchPlan {
  readonly command: RunCommand
  /** All arguments, including those that are not stored in the record. */
  readonly args: readonly string[]
  readonly options: LaunchCommandOptions
  readonly more: readonly string[]
  /** The record to resume. */
  readonly resume: RunRequest['resume']
}

/** `words` are additional options of sbatch, the script, and its arguments. */
export async function launch(
  words: readonly string[],
  given: LaunchCommandOptions,
  output: Output,
): Promise<number> {
  const { workDir } = given
  const options = workDir === undefined ? given : { ...given, workDir: resolve(workDir) }
  const { attach, driver } = options
  if (driver !== undefined && driver !== 'here') throw usage('--driver', 'expected here')
  if (driver !== undefined && options.detach === true) {
    throw usage(
      '--detach',
      'with --driver here the script runs on this machine: leave one of them out',
    )
  }
  if (driver !== undefined && options.chain !== undefined) {
    throw usage('--chain', 'with --driver here the script has one job only: leave one of them out')
  }
  if (attach !== undefined) {
    const { attachToJob } = await import('./job.ts')
    return attachToJob(attach, options, output)
  }
  const at = words.findIndex((word) => !word.startsWith('-'))
  const [script, ...args] = at === -1 ? [] : words.slice(at)
  if (options.check === true && script === undefined) return check(options, words, output)
  if (script === undefined) throw usage('script', 'which script? See npx tutti launch --help')
  const found = statOf(script)
  if (found === null) throw usage('script', `${script} was not found`)
  if (found.isDirectory()) throw usage('script', `${script} is a folder`)
  if (!found.isFile()) throw usage('script', `${script} is not a regular file`)
  if (resolve(script).includes('\\')) {
    throw usage('script', `Node cannot load a file whose path has a backslash: ${resolve(script)}`)
  }
  const more = words.slice(0, at)
  if (options.check === true) return check(options, more, output)
  expectNewJob(options, more)
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

/** Loaded lazily, so that a script inside an allocation starts sooner. */
async function check(
  options: LaunchCommandOptions,
  more: readonly string[],
  output: Output,
): Promise<number> {
  const { checkLaunch } = await import('./check.ts')
  return checkLaunch(options, more, output)
}

/** Options that apply only to a submitted job; an existing allocation is used as it is. */
const jobOptions =
  'nodes gpusPerNode coresPerNode mem time partition account qos constraint chain detach'.split(
    ' ',
  ) as (keyof LaunchCommandOptions)[]

/** Throws for options that would have no effect. */
function expectNewJob(options: LaunchCommandOptions, more: readonly string[]): void {
  const jobId = process.env['SLURM_JOB_ID']
  if (options.hosts === undefined && jobId === undefined) return
  const [option] = givenJobOptions(options, more)
  if (option === undefined) return
  if (options.hosts !== undefined) {
    throw usage(option, '--hosts submits no job: leave it out', 'All of each host is used.')
  }
  const text = `no job is submitted: this runs in Slurm job ${jobId} and uses its nodes`
  throw usage(option, text, 'Leave it out, or unset SLURM_JOB_ID to submit a job.')
}

/** The names of the given options that apply to a submitted job. */
function givenJobOptions(options: LaunchCommandOptions, more: readonly string[]): string[] {
  const given = jobOptions.filter((key) => options[key] !== undefined)
  const toFlag = (key: string): string => `--${key.replace(/[A-Z]/g, '-$&').toLowerCase()}`
  return [...given.map(toFlag), ...more]
}

/** Repeats the request of the original launch, for a script that resumes its record. */
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
  const { workDir } = options
  const words = [process.execPath, ...(await resumeOptions(record, output)), command.file, ...args]
  // Checked before nodes are requested, because it would be missing there as well.
  findNatsServer()
  const id = record?.session_id ?? `s-${newUuid().slice(0, 8)}`
  const parent = resolve(command.folder, launchParent)
  const request = { command, keep_results: true, session_id: id, resume: record }
  const jobId = process.env['SLURM_JOB_ID']
  if (options.hosts === undefined && jobId === undefined && options.driver !== 'here') {
    const { submitJobs } = await import('./job.ts')
    const folders = LaunchFolder.chainOf(parent, id, options.chain ?? 1)
    return submitJobs({ words, more: plan.more, options, request }, folders, output)
  }
  const folder = LaunchFolder.of(parent, id)
  if (options.hosts !== undefined) {
    const hosts = readHostFile(resolve(command.folder, options.hosts))
    folder.write('facts', JSON.stringify({ method: 'hosts', hosts, workDir, ...cacheFact() }))
    writeRequest(folder.file('request'), request)
    return runHere({ words, stop: null }, command, folder, output)
  }
  if (jobId !== undefined) {
    const isHere = options.driver === 'here'
    const driver = isHere ? { driver: 'here' } : {}
    const cache = cacheFact()
    const facts = { method: 'slurm', jobId, workDir, ...driver, ...cache }
    folder.write('facts', JSON.stringify(facts))
    writeRequest(folder.file('request'), request)
    const commands = new SlurmCommands()
    const pidFile = folder.file('pid')
    const placed = isHere
      ? { words, stop: null }
      : await onFirstNode(jobId, words, { pidFile, ...cache }, commands, systemClock)
    return runHere(placed, command, folder, output)
  }
  const { holdAndRun, runAlone } = await import('./job.ts')
  const run = (onStart: (pid: number) => void): Promise<number> =>
    runHere({ words, stop: null }, command, folder, output, onStart)
  const isAlone = givenJobOptions(options, plan.more).length === 0
  if (isAlone) return runAlone(request, options, run, folder, output)
  return holdAndRun({ more: plan.more, options, request, run }, folder, output)
}

/** Node options that make a resuming script print how many tasks are skipped. */
async function resumeOptions(record: RunRequest['resume'], output: Output): Promise<string[]> {
  if (record === null) return []
  const { preload } = await import('../run/run-script.ts')
  return [`--import=${preload(output.form)}`]
}

/** The module cache, which makes repeated launches of a script load faster. */
function cacheFact(): { readonly moduleCache?: string } {
  const moduleCache = openModuleCache(process.env)
  return moduleCache === null ? {} : { moduleCache }
}

/** Runs the script as a child of this command, with its terminal. */
async function runHere(
  { words, stop }: PlacedCommand,
  launched: RunCommand,
  folder: LaunchFolder,
  output: Output,
  onStart: (pid: number) => void = () => {},
): Promise<number> {
  const { moduleCache } = folder.facts() ?? {}
  const code = await runScriptChild(words, {
    stop,
    onStart,
    cwd: launched.folder,
    env: {
      [launchVariable]: folder.file('facts'),
      [runVariable]: folder.file('request'),
      ...(moduleCache === undefined ? {} : { [cacheVariable]: moduleCache }),
    },
  })
  const record = readRecordOf(folder.file('request'))
  if (record !== null) reportRecord(record, output)
  if (record !== null && (code !== 0 || existsSync(folder.file('ended')))) {
    output.problem(`resume  ${resumeCommand(record, launched)}`)
  }
  return code
}

const usage = (field: string, message: string, hint?: string): ValueError =>
  new ValueError(`${field}: ${message}`, { field, ...(hint === undefined ? {} : { hint }) })
