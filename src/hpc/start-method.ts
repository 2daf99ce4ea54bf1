/** How the HPC backends of this process get nodes. A script chooses it once. */

import { writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { messageOf, StateError } from '../foundation/errors.ts'
import { expectOneOf } from '../foundation/options.ts'
import { readTextFileSync } from '../foundation/regular-file.ts'
import { hideModuleCache } from './launch/module-cache.ts'

/** `slurm`: the nodes of a Slurm job. `hosts`: a list of hosts, reached by a remote shell. */
export type StartMethod = 'slurm' | 'hosts'

/** The data that `tutti launch` passes to its script, in the file that `TUTTI_LAUNCH` names. */
export interface LaunchFacts {
  readonly method: StartMethod
  /** The id of the Slurm job. It is not set in a batch script, where `SLURM_JOB_ID` contains it. */
  readonly jobId?: string
  readonly hosts?: readonly string[]
  /** Set if the script does not run on the nodes. */
  readonly driver?: 'here'
  /** The folder of Node's compile cache, if the launcher has chosen one. */
  readonly moduleCache?: string
  /** The work folder of the agents, from `tutti launch --work-dir`. */
  readonly workDir?: string
  /** For a launch with several jobs: their folders in order, and the index of this job. */
  readonly chain?: { readonly at: number; readonly folders: readonly string[] }
}

export const launchVariable = 'TUTTI_LAUNCH'

/** Empty files that a script leaves next to the facts, for the launcher and the batch script. */
export const launchMarks = {
  /** Tasks or services were lost because the allocation ended, so the run can be resumed. */
  ended: 'ended',
  /** The script requests nodes itself. */
  elastic: 'elastic',
  /** The script has received SIGTERM, so the batch script need not forward it. */
  signaled: 'signaled',
} as const

let chosenMethod: StartMethod | null = null
let isUsed = false
let launcherCache: string | undefined

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
  if (chosenMethod === method) return
  if (chosenMethod !== null) {
    const text = `the start method is "${chosenMethod}" and cannot become "${method}"`
    throw new StateError(text, { hint: 'Call setStartMethod once, at the top of the script.' })
  }
  if (isUsed) {
    throw new StateError('an HPC backend was created before setStartMethod', {
      hint: 'Call setStartMethod at the top of the script.',
    })
  }
  chosenMethod = method
}

/**
 * Returns the chosen method and the facts of the launch. Throws a `StateError` if no method was
 * chosen or it does not fit the launch.
 */
export function useStartMethod(): { readonly method: StartMethod; readonly facts: LaunchFacts } {
  if (chosenMethod === null) {
    const call = "setStartMethod('slurm') or, with --hosts, setStartMethod('hosts')"
    throw new StateError('HpcBackend.create needs a start method', {
      hint: `Call ${call} at the top of the script, before backends are created.`,
    })
  }
  isUsed = true
  const facts = readLaunchFacts()
  if (hideModuleCache(facts.moduleCache)) launcherCache = facts.moduleCache
  if (facts.method === chosenMethod) return { method: chosenMethod, facts }
  const text = `the script was launched with the start method "${facts.method}"`
  throw new StateError(`${text}, but chose "${chosenMethod}"`, {
    hint: `Call setStartMethod('${facts.method}').`,
  })
}

/** The compile cache that the launcher chose; `null` if it chose none. */
export const launchedCache = (): string | null => launcherCache ?? null

/**
 * Reads the facts of the launch. Throws a `StateError` if `tutti launch` did not start this
 * process.
 */
export function readLaunchFacts(): LaunchFacts {
  const file = process.env[launchVariable]
  if (file === undefined || file === '') throw notLaunchedError('')
  try {
    return JSON.parse(readTextFileSync(file)) as LaunchFacts
  } catch (error) {
    throw notLaunchedError(`: ${messageOf(error)}`)
  }
}

/**
 * Creates the empty file of a mark. Ignores failures: the disk may be full, or the folder may not
 * be visible here.
 */
export function leaveMark(name: keyof typeof launchMarks): void {
  const file = process.env[launchVariable]
  if (file === undefined || file === '') return
  try {
    writeFileSync(join(dirname(file), launchMarks[name]), '')
  } catch {}
}

const notLaunchedError = (why: string): StateError =>
  new StateError(`this script was not started by \`tutti launch\`${why}`, {
    hint:
      chosenMethod === 'hosts'
        ? 'Start it with: npx tutti launch --hosts FILE script.ts'
        : 'Start it with: npx tutti launch --nodes 4 --time 1:00:00 script.ts',
  })
