/** How the HPC backends of this process get their nodes: chosen once, before the first of them. */

import { readFileSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { messageOf, StateError } from '../foundation/errors.ts'
import { expectOneOf } from '../foundation/options.ts'
import { hideModuleCache } from './launch/module-cache.ts'

/** `slurm`: the nodes of a job of Slurm. `hosts`: a list of hosts, by a remote shell. */
export type StartMethod = 'slurm' | 'hosts'

/** What `tutti launch` tells the script that it starts; `TUTTI_LAUNCH` names the file. */
export interface LaunchFacts {
  readonly method: StartMethod
  /** Of Slurm; a batch script has it in `SLURM_JOB_ID`. */
  readonly jobId?: string
  readonly hosts?: readonly string[]
  /** Of a script that does not run on the nodes. */
  readonly driver?: 'here'
  /** Where Node keeps compiled modules of the script, if the launcher has chosen that. */
  readonly moduleCache?: string
  /** Of a launch with several jobs: the folders of all, in order, and the place among them. */
  readonly chain?: { readonly at: number; readonly folders: readonly string[] }
}

export const launchVariable = 'TUTTI_LAUNCH'
/** Beside the facts: the end of the allocation has cost the script a task or a service. */
export const endedFile = 'ended'
/** Made by a script that asks for nodes by itself. */
export const elasticFile = 'elastic'
/** Beside the facts: the script has got a signal, which need not be passed on to it. */
export const signaledFile = 'signaled'

let chosen: StartMethod | null = null
let isUsed = false
let usedCache: string | undefined

/**
 * Call it at the top of the script, before any backend is created. The same value again is fine.
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

/** For a backend that is about to be created. Throws `StateError` that says what to type. */
export function useStartMethod(): { readonly method: StartMethod; readonly facts: LaunchFacts } {
  if (chosen === null) {
    throw new StateError('HpcBackend.create needs a start method', {
      hint: "Call setStartMethod('slurm') at the top of the script, before backends are created.",
    })
  }
  isUsed = true
  const facts = readFacts()
  const { moduleCache } = facts
  if (hideModuleCache(moduleCache)) usedCache = moduleCache
  if (facts.method === chosen) return { method: chosen, facts }
  throw new StateError(`the script was launched by "${facts.method}", it asks for "${chosen}"`, {
    hint: `Call setStartMethod('${facts.method}').`,
  })
}

/** The cache of modules that this process was given by its launcher; `null` if none. */
export const launchedCache = (): string | null => usedCache ?? null

/** Of the launch that has started this process. Throws `StateError` where there is none. */
export function readFacts(): LaunchFacts {
  const file = process.env[launchVariable]
  if (file === undefined || file === '') throw notLaunched('')
  try {
    return JSON.parse(readFileSync(file, 'utf8')) as LaunchFacts
  } catch (error) {
    throw notLaunched(`: ${messageOf(error)}`)
  }
}

/** Tells the launcher that the allocation has ended the run, which can be continued. */
export function tellEnd(): void {
  // Otherwise only the hint for the next step is missing.
  writeMark(endedFile)
}

/** Tells the launcher that the script asks for nodes by itself: it may go on without others. */
export function tellElastic(): void {
  writeMark(elasticFile)
}

/** Tells the batch script that this process has got SIGTERM. */
export function tellSignal(): void {
  writeMark(signaledFile)
}

/** As far as it can be written. */
function writeMark(name: string): void {
  const file = process.env[launchVariable]
  if (file === undefined || file === '') return
  try {
    writeFileSync(join(dirname(file), name), '')
  } catch {
    // A full disk, or a folder that this node does not see.
  }
}

const notLaunched = (why: string): StateError =>
  new StateError(`this script was not started by \`tutti launch\`${why}`, {
    hint: 'Start it with: npx tutti launch --nodes 4 --time 1:00:00 script.ts',
  })
