/** `tutti doctor`: what is installed, what is missing, and how to install it. */

import { accessSync, constants, existsSync, readFileSync } from 'node:fs'
import { countText } from '../views/readable.ts'
import { delimiter, join } from 'node:path'
import { usableCores, usableMemoryMb } from '../backends/local/node-capacity.ts'
import type { KernelRoots } from '../backends/sampling/cgroup.ts'
import { findNatsServer } from '../cluster/broker/nats-program.ts'
import { llamaVersion, nodeProblem } from '../foundation/version.ts'
import { exitCodes } from './exit.ts'
import type { Output } from './output.ts'

interface Check {
  readonly name: string
  readonly state: 'ok' | 'missing' | 'problem'
  readonly detail: string
  readonly needed_for: string
  /** The command that installs the component; `null` if there is nothing to install. */
  readonly get: string | null
}

const packages = [
  ['koffi', 'exact usage of programs, their faster start, and GPU readings'],
  ['node-llama-cpp', 'models in llama.cpp (engine llama)'],
  ['@nats-io/transport-node', 'clusters'],
  ['@nats-io/jetstream', 'clusters'],
] as const

const commands = [
  ['sbatch', 'tutti launch with Slurm', 'apt-get install slurm-client'],
  ['mpirun', 'MPI programs without Slurm', 'apt-get install openmpi-bin'],
  ['ssh', 'tutti launch --hosts', 'apt-get install openssh-client'],
  ['nvidia-smi', 'readings of NVIDIA GPUs without koffi', driverInstallCommand()],
] as const

/**
 * Returns the command that installs NVIDIA's driver, which includes `nvidia-smi`. On Ubuntu, a tool
 * must choose the package, because there is one for each version.
 */
function driverInstallCommand(): string {
  let system = ''
  try {
    system = readFileSync('/etc/os-release', 'utf8')
  } catch {
    // Without this file, the system is taken for Debian.
  }
  return /^ID=ubuntu$/m.test(system) ? 'ubuntu-drivers install' : 'apt-get install nvidia-smi'
}

/** Prints all checks. Always returns 0, because the command only reports. */
export function runDoctor(output: Output, folder = process.cwd(), roots?: KernelRoots): number {
  const checks = [
    checkNode(),
    checkFolder(folder),
    ...packages.map(([name, use]) => {
      const find = (): string => `installed, ${readVersion(name)}`
      return checkVersion(checkPart(name, use, `npm install ${name}`, find))
    }),
    checkServer(),
    ...commands.map(([name, use, get]) => checkPart(name, use, get, () => findCommand(name))),
  ]
  const missing = checks.filter(({ state }) => state === 'missing')
  const problems = checks.filter(({ state }) => state === 'problem')
  // The resources for tasks. In a container, these may be less than the machine has.
  const machine = { cores: usableCores(roots), memory_mb: usableMemoryMb(roots) }
  const widest = Math.max(...checks.map(({ name }) => name.length))
  output.result({ checks, ...machine }, [
    ...checks.map((check) => formatCheck(check, widest)),
    `${countText(machine.cores, 'core')}, ${machine.memory_mb} MB of memory`,
    ...(problems.length === 0 ? [] : [`${countText(problems.length, 'problem')} to solve`]),
    missing.length === 0 ? 'nothing is missing' : 'everything missing is optional',
  ])
  return exitCodes.ok
}

function formatCheck({ name, state, detail, needed_for, get }: Check, widest: number): string {
  const need = `needed for ${needed_for}${get === null ? '' : `: ${get}`}`
  const text = state === 'ok' ? detail : state === 'missing' ? need : `${detail}; ${need}`
  return `${state.padEnd(7)}  ${name.padEnd(widest)}  ${text}`
}

function checkNode(): Check {
  const problem = nodeProblem(process.versions.node)
  return {
    name: 'Node',
    state: problem === null ? 'ok' : 'problem',
    detail: problem ?? process.versions.node,
    needed_for: 'everything',
    get: problem === null ? null : 'npm install node@24',
  }
}

function checkFolder(folder: string): Check {
  let isWritable = true
  try {
    accessSync(folder, constants.W_OK)
  } catch {
    isWritable = false
  }
  return {
    name: 'this folder',
    state: isWritable ? 'ok' : 'problem',
    detail: isWritable ? folder : `${folder} cannot be written`,
    needed_for: 'records, which go to ./telemetry',
    get: isWritable ? null : '`--folder` names another one',
  }
}

/** `find` returns the text that is shown for the part, or throws if the part is missing. */
function checkPart(name: string, needed_for: string, get: string, find: () => string): Check {
  try {
    return { name, state: 'ok', detail: find(), needed_for, get: null }
  } catch {
    return { name, state: 'missing', detail: '', needed_for, get }
  }
}

/** Reads the version of a package. Its `package.json` is in a folder above its entry. */
function readVersion(name: string): string {
  for (let folder = new URL('.', import.meta.resolve(name)); ; folder = new URL('..', folder)) {
    const file = new URL('package.json', folder)
    if (existsSync(file)) {
      const manifest = JSON.parse(readFileSync(file, 'utf8')) as Record<string, unknown>
      if (manifest['name'] === name) return String(manifest['version'])
    }
    if (folder.pathname === '/') throw new ReferenceError(`${name} has no package.json`)
  }
}

/** The engine llama uses undocumented parts of its library, so it needs exactly `llamaVersion`. */
function checkVersion(check: Check): Check {
  const { name, state, detail } = check
  if (name !== 'node-llama-cpp' || state !== 'ok' || detail.endsWith(` ${llamaVersion}`))
    return check
  const get = `npm install ${name}@${llamaVersion}`
  return { ...check, state: 'problem', detail: `${detail}; ${llamaVersion} is needed`, get }
}

/** Searches for the server where the backends search for it, not only in PATH. */
function checkServer(): Check {
  const use = 'a cluster of your own, and tutti launch'
  const check = checkPart('nats-server', use, 'apt-get install nats-server', findNatsServer)
  const chosen = process.env['TUTTI_NATS_SERVER']
  if (check.state === 'ok' || !chosen) return check
  const detail = `the program at ${chosen} cannot be used`
  return { ...check, state: 'problem', detail, get: 'change TUTTI_NATS_SERVER' }
}

function findCommand(name: string): string {
  const folders = (process.env['PATH'] ?? '').split(delimiter).filter((one) => one !== '')
  const path = folders.map((folder) => join(folder, name)).find(existsSync)
  if (path === undefined) throw new ReferenceError(`${name} is not in PATH`)
  return path
}
