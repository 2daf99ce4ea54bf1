/** `tutti doctor`: what is installed, what is missing, and how to install it. */

import { accessSync, constants, existsSync, readFileSync } from 'node:fs'
import { countText } from '../views/readable.ts'
import { delimiter, join } from 'node:path'
import { usableCores, usableMemoryMb } from '../backends/local/node-capacity.ts'
import type { KernelRoots } from '../backends/sampling/cgroup.ts'
import { findNatsServer } from '../cluster/broker/nats-program.ts'
import { messageOf } from '../foundation/errors.ts'
import { nodeProblem } from '../foundation/version.ts'
import { exitCodes } from './exit.ts'
import type { Output } from './output.ts'

interface Check {
  readonly name: string
  readonly state: 'ok' | 'missing' | 'problem'
  /** A path, a version, or what is wrong. */
  readonly detail: string
  readonly needed_for: string
  /** The command that installs it; `null` if there is nothing to install. */
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
  ['nvidia-smi', 'readings of NVIDIA GPUs without koffi', driverCommand()],
] as const

/** `nvidia-smi` comes with the driver, whose package name on Ubuntu contains the version. */
function driverCommand(): string {
  let system = ''
  try {
    system = readFileSync('/etc/os-release', 'utf8')
  } catch {
    // Without that file, Debian's package name is used as the hint.
  }
  return /^ID=ubuntu$/m.test(system) ? 'ubuntu-drivers install' : 'apt-get install nvidia-smi'
}

/** Returns 0 whatever it finds, because it only reports. */
export function examine(output: Output, folder = process.cwd(), roots?: KernelRoots): number {
  const checks = [
    checkNode(),
    checkFolder(folder),
    ...packages.map(([name, use]) => checkPackage(name, use)),
    checkServer(),
    ...commands.map(([name, use, get]) => checkCommand(name, use, get)),
  ]
  const missing = checks.filter(({ state }) => state === 'missing')
  const problems = checks.filter(({ state }) => state === 'problem')
  // Tasks can use this much by default; in a container it is less than the machine has.
  const machine = { cores: usableCores(roots), memory_mb: usableMemoryMb(roots) }
  const widest = Math.max(...checks.map(({ name }) => name.length))
  output.result({ checks, ...machine }, [
    ...checks.map((check) => lineOf(check, widest)),
    `${countText(machine.cores, 'core')}, ${machine.memory_mb} MB of memory`,
    ...(problems.length === 0 ? [] : [`${countText(problems.length, 'problem')} to solve`]),
    missing.length === 0 ? 'nothing is missing' : 'everything missing is optional',
  ])
  return exitCodes.ok
}

function lineOf({ name, state, detail, needed_for, get }: Check, widest: number): string {
  const need = `needed for ${needed_for}${get === null ? '' : `: ${get}`}`
  const what = state === 'ok' ? detail : state === 'missing' ? need : `${detail}; ${need}`
  return `${state.padEnd(7)}  ${name.padEnd(widest)}  ${what}`
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

/** `found` is a path or a version; `null` if it is missing and `get` would install it. */
const toCheck = (name: string, needed_for: string, found: string | null, get: string): Check =>
  found === null
    ? { name, state: 'missing', detail: '', needed_for, get }
    : { name, state: 'ok', detail: found, needed_for, get: null }

function checkPackage(name: string, use: string): Check {
  const get = `npm install ${name}`
  try {
    import.meta.resolve(name)
    return toCheck(name, use, 'installed', get)
  } catch {
    return toCheck(name, use, null, get)
  }
}

/** Uses the search of the backends, which is not limited to PATH. */
function checkServer(): Check {
  const [name, use] = ['nats-server', 'a cluster of your own, and tutti launch']
  const get = 'apt-get install nats-server'
  try {
    return toCheck(name, use, findNatsServer(), get)
  } catch (error) {
    if (!process.env['TUTTI_NATS_SERVER']) return toCheck(name, use, null, get)
    const own = { state: 'problem', get: 'change TUTTI_NATS_SERVER' } as const
    return { name, detail: messageOf(error), needed_for: use, ...own }
  }
}

function checkCommand(name: string, use: string, get: string): Check {
  const folders = (process.env['PATH'] ?? '').split(delimiter).filter((one) => one !== '')
  const path = folders.map((folder) => join(folder, name)).find(existsSync)
  return toCheck(name, use, path ?? null, get)
}
