/** `tutti launch`: runs a script on the nodes of an allocation. */

import { existsSync } from 'node:fs'
import { resolve } from 'node:path'
import {
  readRequestRecord,
  type RunCommand,
  type RunRequest,
  runVariable,
  omitSecretArguments,
  writeRequest,
} from '../../checkpoint/run-file.ts'
import { findNatsServer } from '../../cluster/broker/nats-program.ts'
import { systemClock } from '../../foundation/clock.ts'
import { ValueError } from '../../foundation/errors.ts'
import { newUuid } from '../../foundation/ids.ts'
import { statOf } from '../../foundation/regular-file.ts'
import { readHostFile } from '../../hpc/host-list-allocation.ts'
import { LaunchFolder, launchParent } from '../../hpc/launch/launch-folder.ts'
import { cacheVariable, openModuleCache } from '../../hpc/launch/module-cache.ts'
import { toFirstNodeCommand, type PlacedCommand } from '../../hpc/launch/first-node.ts'
import { SlurmCommands } from '../../hpc/slurm/slurm-commands.ts'
import { launchVariable } from '../../hpc/start-method.ts'
import type { Output } from '../output.ts'
import { reportRecord, resumeCommand } from '../run/resume-command.ts'
import { openRunDashboard, warnAboutDashboard } from '../dashboard/run-dashboard.ts'
import { runScriptChild } from '../script-child.ts'
import type { CheckOptions } from './check.ts'

export interface LaunchCommandOptions extends CheckOptions {
  readonly detach?: boolean
  readonly attach?: string
  readonly driver?: 'here'
  /** The maximum number of jobs, each of which continues the previous one. Default 1. */
  readonly chain?: number
  readonly cancelOnSignal?: boolean
  readonly check?: boolean
  readonly dashboard?: boolean
}

interface LaunchPlan {
  readonly command: RunCommand
  /** All arguments, including secrets. */
  readonly args: readonly string[]
  readonly options: LaunchCommandOptions
  readonly more: readonly string[]
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
  const { attach } = options
  if (attach !== undefined) {
    const { attachToJob } = await import('./job.ts')
    return attachToJob(attach, options, output)
  }
  const at = words.findIndex((word) => !word.startsWith('-'))
  const [script, ...args] = at === -1 ? [] : words.slice(at)
  if (options.check === true && script === undefined) return check(options, words, output)
  if (script === undefined) throw usageError('script', 'which script? See npx tutti launch --help')
  const found = statOf(script)
  if (found === null) throw usageError('script', `${script} was not found`)
  if (!found.isFile()) {
    const kindText = found.isDirectory() ? 'a folder' : 'not a regular file'
    throw usageError('script', `${script} is ${kindText}`)
  }
  if (resolve(script).includes('\\')) {
    const problem = 'Node cannot load a file whose path has a backslash'
    throw usageError('script', `${problem}: ${resolve(script)}`)
  }
  const more = words.slice(0, at)
  if (options.check === true) return check(options, more, output)
  expectNoJobOptions(options, more)
  const { detach: _, attach: __, dashboard: ___, ...kept } = options
  const command = {
    kind: 'script',
    file: resolve(script),
    arguments: omitSecretArguments(args),
    folder: process.cwd(),
    launch: { options: { ...kept }, more },
  } as const
  warnAboutDashboard(args, output)
  return startLaunch({ command, args, options, more, resume: null }, output)
}

/** Imports the check only when needed, so that a script inside an allocation starts sooner. */
async function check(
  options: LaunchCommandOptions,
  more: readonly string[],
  output: Output,
): Promise<number> {
  const { checkLaunch } = await import('./check.ts')
  return checkLaunch(options, more, output)
}

const newJobOptions =
  'nodes gpusPerNode coresPerNode mem time partition account qos constraint chain detach'.split(
    ' ',
  ) as (keyof LaunchCommandOptions)[]

function expectNoJobOptions(options: LaunchCommandOptions, more: readonly string[]): void {
  const jobId = process.env['SLURM_JOB_ID']
  if (options.hosts === undefined && jobId === undefined) return
  const [option] = listNewJobOptions(options, more)
  if (option === undefined) return
  if (options.hosts !== undefined) {
    throw usageError(option, '--hosts submits no job: leave it out', 'All of each host is used.')
  }
  const text = `no job is submitted: this runs in Slurm job ${jobId} and uses its nodes`
  throw usageError(option, text, 'Leave it out, or unset SLURM_JOB_ID to submit a job.')
}

function listNewJobOptions(options: LaunchCommandOptions, more: readonly string[]): string[] {
  const given = newJobOptions.filter((key) => options[key] !== undefined)
  const toFlag = (key: string): string => `--${key.replace(/[A-Z]/g, '-$&').toLowerCase()}`
  return [...given.map(toFlag), ...more]
}

/** Launches a script again. The script then resumes the given record. */
export async function relaunch(
  command: RunCommand,
  args: readonly string[],
  record: RunRequest['resume'],
  output: Output,
): Promise<number> {
  const { options = {}, more = [] } = command.launch ?? {}
  return startLaunch({ command, args, options, more, resume: record }, output)
}

async function startLaunch(plan: LaunchPlan, output: Output): Promise<number> {
  const { command, args, options, resume: record } = plan
  const { workDir } = options
  const words = [process.execPath, ...(await resumeOptions(record, output)), command.file, ...args]
  // Throws if no NATS server is installed, so that no nodes are requested in this case.
  findNatsServer()
  const id = record?.session_id ?? `s-${newUuid().slice(0, 8)}`
  const parent = resolve(command.folder, launchParent)
  const request = { command, keep_results: true, session_id: id, resume: record }
  const jobId = process.env['SLURM_JOB_ID']
  if (options.hosts === undefined && jobId === undefined && options.driver !== 'here') {
    const { submitJobs } = await import('./job.ts')
    const folders = LaunchFolder.chooseFolders(parent, id, options.chain ?? 1)
    return submitJobs({ words, more: plan.more, options, request }, folders, output)
  }
  const folder = LaunchFolder.of(parent, id)
  if (options.hosts !== undefined) {
    const hosts = readHostFile(resolve(command.folder, options.hosts))
    folder.write('facts', JSON.stringify({ method: 'hosts', hosts, workDir, ...moduleCacheFact() }))
    writeRequest(folder.file('request'), request)
    return runLocally({ words, stop: null }, plan, folder, output)
  }
  if (jobId !== undefined) {
    const isHere = options.driver === 'here'
    const driver = isHere ? { driver: 'here' } : {}
    const cache = moduleCacheFact()
    const facts = { method: 'slurm', jobId, workDir, ...driver, ...cache }
    folder.write('facts', JSON.stringify(facts))
    writeRequest(folder.file('request'), request)
    const commands = new SlurmCommands()
    const pidFile = folder.file('pid')
    const nodeCommand = isHere
      ? { words, stop: null }
      : await toFirstNodeCommand(jobId, words, { pidFile, ...cache }, commands, systemClock)
    return runLocally(nodeCommand, plan, folder, output)
  }
  const { runWithHeldNodes, runWithoutNodes } = await import('./job.ts')
  const run = (onStart: (pid: number) => void): Promise<number> =>
    runLocally({ words, stop: null }, plan, folder, output, onStart)
  const isAlone = listNewJobOptions(options, plan.more).length === 0
  if (isAlone) return runWithoutNodes(request, options, run, folder, output)
  return runWithHeldNodes({ more: plan.more, options, request, run }, folder, output)
}

/** Returns Node options that make a resumed script print how many tasks are skipped. */
async function resumeOptions(record: RunRequest['resume'], output: Output): Promise<string[]> {
  if (record === null) return []
  const { preloadUrl } = await import('../run/run-script.ts')
  return [`--import=${preloadUrl(output.form)}`]
}

/** Returns the folder of the module cache, which makes repeated launches of a script faster. */
function moduleCacheFact(): { readonly moduleCache?: string } {
  const moduleCache = openModuleCache(process.env)
  return moduleCache === null ? {} : { moduleCache }
}

async function runLocally(
  { words, stop }: PlacedCommand,
  { command: launched, options }: LaunchPlan,
  folder: LaunchFolder,
  output: Output,
  onStart: (pid: number) => void = () => {},
): Promise<number> {
  const findRecord = (): string | null => readRequestRecord(folder.file('request'))
  await using _ = await openRunDashboard(options.dashboard, findRecord, output)
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
  const record = findRecord()
  if (record !== null) reportRecord(record, output)
  if (record !== null && (code !== 0 || existsSync(folder.file('ended')))) {
    output.problem(`resume  ${resumeCommand(record, launched)}`)
  }
  return code
}

const usageError = (field: string, message: string, hint?: string): ValueError =>
  new ValueError(`${field}: ${message}`, { field, ...(hint === undefined ? {} : { hint }) })
