/** `tutti launch`: runs a script with the nodes of an allocation. */

import { existsSync, statSync } from 'node:fs'
import { basename, extname, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import {
  readToldRecord,
  type RunCommand,
  type RunRequest,
  runVariable,
  toKeptArguments,
  writeRequest,
} from '../../checkpoint/run-file.ts'
import { findNatsServer } from '../../cluster/broker/nats-server.ts'
import { systemClock } from '../../foundation/clock.ts'
import { ValueError } from '../../foundation/errors.ts'
import { newUuid } from '../../foundation/ids.ts'
import { toBatchOptions, toBatchScript } from '../../hpc/launch/batch-job.ts'
import { HeldNodes } from '../../hpc/launch/held-nodes.ts'
import { readHostFile } from '../../hpc/launch/host-file.ts'
import {
  cancelLinks,
  type ChainLink,
  followChain,
  linksOf,
  submitChain,
} from '../../hpc/launch/launch-chain.ts'
import { LaunchFolder, launchParent } from '../../hpc/launch/launch-folder.ts'
import { onFirstNode } from '../../hpc/launch/first-node.ts'
import { SlurmCommands } from '../../hpc/slurm/slurm-commands.ts'
import { launchVariable } from '../../hpc/start-method.ts'
import type { Output } from '../output.ts'
import { resumeCommand } from '../run/resume-command.ts'
import { runScriptChild } from '../script-child.ts'
import { type CheckOptions, checkLaunch } from './check.ts'
import { createStatusLine, Interruption } from './following.ts'

export interface LaunchCommandOptions extends CheckOptions {
  readonly detach?: boolean
  readonly attach?: string
  readonly driver?: string
  /** How many jobs may follow each other. Default 1. */
  readonly chain?: number
  readonly cancelOnSignal?: boolean
  /** Tries a launch on one node, without a script. */
  readonly check?: boolean
}

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
  if (driver !== undefined && options.detach === true) {
    throw usage('--detach', 'the script would run here: leave out --driver here')
  }
  if (driver !== undefined && options.chain !== undefined) {
    throw usage('--chain', 'the script would end here with its first job: leave out --driver here')
  }
  if (attach !== undefined) return attachTo(attach, options, output)
  const at = words.findIndex((word) => !word.startsWith('-'))
  const [script, ...args] = at === -1 ? [] : words.slice(at)
  if (options.check === true && script === undefined) return checkLaunch(options, words, output)
  if (script === undefined) throw usage('script', 'which script? See npx tutti launch --help')
  const found = statSync(script, { throwIfNoEntry: false })
  if (found === undefined) throw usage('script', `${script} was not found`)
  if (found.isDirectory()) throw usage('script', `${script} is a folder`)
  const more = words.slice(0, at)
  if (options.check === true) return checkLaunch(options, more, output)
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

/** Options for a job that is submitted; what is there already is used as it is. */
const jobOptions = {
  nodes: '--nodes',
  gpusPerNode: '--gpus-per-node',
  coresPerNode: '--cores-per-node',
  mem: '--mem',
  time: '--time',
  partition: '--partition',
  account: '--account',
  qos: '--qos',
  constraint: '--constraint',
  chain: '--chain',
  detach: '--detach',
} as const

/** Throws for options that would have no effect. */
function expectNewJob(options: LaunchCommandOptions, more: readonly string[]): void {
  const jobId = process.env['SLURM_JOB_ID']
  if (options.hosts === undefined && jobId === undefined) return
  const given = Object.entries(jobOptions).filter(
    ([key]) => options[key as keyof typeof jobOptions] !== undefined,
  )
  const [option] = [...given.map(([, name]) => name), ...more]
  if (option === undefined) return
  if (options.hosts !== undefined) {
    throw usage(option, 'there is no job with --hosts: leave it out', 'The hosts are used whole.')
  }
  const text = `no job is submitted: this is in Slurm job ${jobId}, whose nodes are used`
  throw usage(option, text, 'Leave it out, or unset SLURM_JOB_ID to submit a job.')
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
  const parent = resolve(command.folder, launchParent)
  const request = { command, keep_results: true, session_id: id, resume: record }
  const jobId = process.env['SLURM_JOB_ID']
  if (options.hosts === undefined && jobId === undefined && options.driver !== 'here') {
    return submit(
      { words, plan, request },
      LaunchFolder.chainOf(parent, id, options.chain ?? 1),
      output,
    )
  }
  const folder = LaunchFolder.of(parent, id)
  if (options.hosts !== undefined) {
    const hosts = readHostFile(resolve(command.folder, options.hosts))
    folder.write('facts', JSON.stringify({ method: 'hosts', hosts }))
    writeRequest(folder.file('request'), request)
    return runHere(words, command, folder, output)
  }
  if (jobId !== undefined) {
    folder.write('facts', JSON.stringify({ method: 'slurm', jobId }))
    writeRequest(folder.file('request'), request)
    const commands = new SlurmCommands()
    const isHere = options.driver === 'here'
    const placed = isHere ? words : await onFirstNode(jobId, words, commands, systemClock)
    return runHere(placed, command, folder, output)
  }
  const batch = toBatchOptions({ ...options, more: plan.more }, basename(command.file), folder)
  folder.write('facts', JSON.stringify({ method: 'slurm' }))
  writeRequest(folder.file('request'), request)
  return holdAndRun({ words, batch, plan, folder }, output)
}

const variables = { facts: launchVariable, request: runVariable }

interface BatchLaunch {
  readonly words: readonly string[]
  readonly plan: LaunchPlan
  readonly request: RunRequest
}

/** The script runs on the first node of a new job; each folder is that of one job. */
async function submit(
  { words, plan, request }: BatchLaunch,
  folders: readonly LaunchFolder[],
  output: Output,
): Promise<number> {
  const { command, options, more } = plan
  const optionsOf = (folder: LaunchFolder, after?: string): string[] => {
    const asked = { ...options, more, mayRequeue: true, ...(after === undefined ? {} : { after }) }
    return toBatchOptions(asked, basename(command.file), folder)
  }
  const extension = extname(import.meta.url)
  const program = (name: string): string[] => [
    process.execPath,
    fileURLToPath(new URL(`./${name}${extension}`, import.meta.url)),
  ]
  const programs = { begin: program('begin-run'), end: program('end-run') }
  const names = folders.map(({ path }) => basename(path))
  for (const [at, folder] of folders.entries()) {
    // Refused before anything is written.
    optionsOf(folder)
    const chain = folders.length === 1 ? {} : { chain: { at, folders: names } }
    folder.write('facts', JSON.stringify({ method: 'slurm', ...chain }))
    writeRequest(folder.file('request'), request)
    const script = { words, cwd: command.folder, variables, ...programs }
    folder.write('script', toBatchScript(script, folder))
  }
  const links = await submitChain(new SlurmCommands(), folders, optionsOf)
  if (options.detach !== true) return follow(links, options, output)
  const [job_id = '', ...later] = links.map(({ jobId }) => jobId)
  output.result({ job_id, ...(later.length === 0 ? {} : { later_job_ids: later }) }, [job_id])
  return 0
}

interface HeldLaunch {
  readonly words: readonly string[]
  readonly batch: readonly string[]
  readonly plan: LaunchPlan
  readonly folder: LaunchFolder
}

/** The script runs on this machine, with the nodes of a job that does nothing else. */
async function holdAndRun(launched: HeldLaunch, output: Output): Promise<number> {
  const { words, batch, plan, folder } = launched
  const commands = new SlurmCommands()
  const interruption = new Interruption('', { cancelOnSignal: true }, output)
  const { signal } = interruption
  const onStatus = createStatusLine(output)
  const options = { batch, folder, commands, clock: systemClock, onStatus, signal }
  const held = await HeldNodes.open(options).finally(() => interruption.release())
  if (held === null) return interruption.exitCode
  try {
    folder.write('facts', JSON.stringify({ method: 'slurm', jobId: held.jobId }))
    const code = await runHere(words, plan.command, folder, output)
    await held.expectHeld()
    return code
  } finally {
    await held.close()
  }
}

async function attachTo(
  jobId: string,
  options: LaunchCommandOptions,
  output: Output,
): Promise<number> {
  const folder = LaunchFolder.find(resolve(launchParent), jobId)
  if (folder === null) throw usage('--attach', `no launch of job ${jobId} in ${launchParent}`)
  return follow(linksOf(folder), options, output)
}

/** The script is a child of this command, and has its terminal. */
async function runHere(
  words: readonly string[],
  launched: RunCommand,
  folder: LaunchFolder,
  output: Output,
): Promise<number> {
  const code = await runScriptChild(words, {
    cwd: launched.folder,
    env: { [launchVariable]: folder.file('facts'), [runVariable]: folder.file('request') },
  })
  const record = readToldRecord(folder.file('request'))
  if (record !== null && (code !== 0 || existsSync(folder.file('ended')))) {
    output.problem(`resume  ${resumeCommand(record, launched)}`)
  }
  return code
}

async function follow(
  links: readonly ChainLink[],
  options: LaunchCommandOptions,
  output: Output,
): Promise<number> {
  const commands = new SlurmCommands()
  const interruption = new Interruption(links[0]?.jobId ?? '', options, output)
  const { signal } = interruption
  const view = {
    stdout: (chunk: Buffer) => void process.stdout.write(chunk),
    stderr: (chunk: Buffer) => void process.stderr.write(chunk),
    status: createStatusLine(output),
    notice: (line: string) => output.problem(line),
  }
  const onLink = ({ jobId }: ChainLink): void => {
    interruption.jobId = jobId
  }
  try {
    const parts = { commands, clock: systemClock, view, signal, onLink }
    const code = await followChain(links, parts)
    if (code !== null) return code
    const { jobId } = interruption
    if (interruption.isCancel) await cancelLinks(commands, links)
    const attach = `npx tutti launch --attach ${jobId}`
    const all = links.map((link) => link.jobId).join(', ')
    const canceled = links.length === 1 ? `job ${all} is canceled` : `jobs ${all} are canceled`
    const left = `job ${jobId} goes on; come back with: ${attach}`
    output.problem(interruption.isCancel ? canceled : left)
    return interruption.exitCode
  } finally {
    interruption.release()
  }
}

const usage = (field: string, message: string, hint?: string): ValueError =>
  new ValueError(`${field}: ${message}`, { field, ...(hint === undefined ? {} : { hint }) })
