/** How the HPC backends of this process get nodes. Chosen once, before the first one is created. */

import { writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { messageOf, StateError } from '../foundation/errors.ts'
import { expectOneOf } from '../foundation/options.ts'
import { readTextFileSync } from '../foundation/regular-file.ts'
import { hideModuleCache } from './launch/module-cache.ts'

/** `slurm`: the nodes of a Slurm job. `hosts`: a list of hosts, reached by a remote shell. */
export type StartMethod = 'slurm' | 'hosts'

/** The data that `tutti launch` passes to its script, in the file named by `TUTTI_LAUNCH`. */
export interface LaunchFacts {
  readonly method: StartMethod
  /** The Slurm job; a batch script has it in `SLURM_JOB_ID` instead. */
  readonly jobId?: string
  readonly hosts?: readonly string[]
  /** Set for a script that does not run on the nodes. */
  readonly driver?: 'here'
  /** The folder of Node's compile cache for the script, if the launcher has chosen one. */
  readonly moduleCache?: string
  /** The work folder of the agents on their nodes, if the launcher was given one. */
  readonly workDir?: string
  /** For a launch with several jobs: their folders in order, and the index of this one. */
  readonly chain?: { readonly at: number; readonly folders: readonly string[] }
}

export const launchVariable = 'TUTTI_LAUNCH'
/** Written beside the facts when the end of the allocation has ended a task or a service. */
export const endedFile = 'ended'
/** Written beside the facts by a script that requests nodes by itself. */
export const elasticFile = 'elastic'
/** Written beside the facts when the script has received a signal, which need not be forwarded. */
export const signaledFile = 'signaled'

let chosen: StartMethod | null = null
let isUsed = false
let usedCache: string | undefined
let usedWorkDir: string | undefined

/**
 * Chooses the start method. Call it at the top of the script, before any backend is created.
 * Calling it again with the same value is allowed.
 *
 * @example
 * setStartMethod('slurm')
 * const hpc = await HpcBackend.create({ name: 'hpc' })
 */
export function setStartMethod(method: StartMethod): void {
  expectOneOf('method', method, ['slurm', 'hosts'])
  if (chosen === method) return
  if (chosen !== null) {
    const text = `the start method is "${chosen}" and cannot become "${method}"`
    throw new StateError(text, { hint: 'Call setStartMethod once, at the top of the script.' })
  }
  if (isUsed) {
    throw new StateError('an HPC backend was created before setStartMethod', {
      hint: 'Call setStartMethod at the top of the script.',
    })
  }
  chosen = method
}

/** Called when a backend is created. Throws a `StateError` with a hint if no method fits. */
export function useStartMethod(): { readonly method: StartMethod; readonly facts: LaunchFacts } {
  if (chosen === null) {
    const call = "setStartMethod('slurm') or, with --hosts, setStartMethod('hosts')"
    throw new StateError('HpcBackend.create needs a start method', {
      hint: `Call ${call} at the top of the script, before backends are created.`,
    })
  }
  isUsed = true
  const facts = readFacts()
  const { moduleCache } = facts
  usedWorkDir = facts.workDir
  if (hideModuleCache(moduleCache)) usedCache = moduleCache
  if (facts.method === chosen) return { method: chosen, facts }
  const text = `the script was launched with the start method "${facts.method}"`
  throw new StateError(`${text}, but chose "${chosen}"`, {
    hint: `Call setStartMethod('${facts.method}').`,
  })
}

/** The folder of the compile cache that the launcher gave to this process; `null` if none. */
export const launchedCache = (): string | null => usedCache ?? null

/** The work folder for agents that the launcher gave to this process, if any. */
export const launchedWorkDir = (): string | undefined => usedWorkDir

/** The facts of the launch that started this process. Throws a `StateError` if there are none. */
export function readFacts(): LaunchFacts {
  const file = process.env[launchVariable]
  if (file === undefined || file === '') throw notLaunched('')
  try {
    return JSON.parse(readTextFileSync(file)) as LaunchFacts
  } catch (error) {
    throw notLaunched(`: ${messageOf(error)}`)
  }
}

/** Tells the launcher that the allocation's end has ended the run, which can be continued. */
export function markEnded(): void {
  // If this fails, the run counts as ended by itself, unless Slurm's messages show otherwise.
  writeMark(endedFile)
}

/** Tells the launcher that the script requests nodes itself and can run without the held ones. */
export function markPilots(): void {
  writeMark(elasticFile)
}

/** Tells the batch script that this process has received SIGTERM. */
export function tellSignal(): void {
  writeMark(signaledFile)
}

/** Ignores failures. */
function writeMark(name: string): void {
  const file = process.env[launchVariable]
  if (file === undefined || file === '') return
  try {
    writeFileSync(join(dirname(file), name), '')
  } catch {
    // The disk is full, or this node cannot see the folder.
  }
}

const notLaunched = (why: string): StateError =>
  new StateError(`this script was not started by \`tutti launch\`${why}`, {
    hint:
      chosen === 'hosts'
        ? 'Start it with: npx tutti launch --hosts FILE script.ts'
        : 'Start it with: npx tutti launch --nodes 4 --time 1:00:00 script.ts',
  })
