/** The mutants that may survive, each with its reason, and where mutants are made. */

import { readFileSync } from 'node:fs'
import type { MutantName } from './mutants.ts'

/** The files that `npm run test:long` mutates; for the cluster, those that need no connection. */
export const mutatedFolders = [
  'src/core',
  'src/checkpoint',
  'src/tasks',
  'src/backends/local',
  'src/cluster/protocol/placement',
  'src/cluster/wire',
]

interface Survivor extends MutantName {
  /** Why no test can or needs to notice the mutant. */
  readonly reason: string
}

const path = new URL('survivors.json', import.meta.url)

export const survivors = JSON.parse(readFileSync(path, 'utf8')) as readonly Survivor[]

/** The mutants that are not in the list. */
export function unlistedOf<Name extends MutantName>(mutants: readonly Name[]): Name[] {
  const listed = new Set(survivors.map(keyOf))
  return mutants.filter((mutant) => !listed.has(keyOf(mutant)))
}

export const keyOf = ({ path: file, within, before, after }: MutantName): string =>
  JSON.stringify([file, within, before, after])
