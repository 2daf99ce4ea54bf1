import { availableParallelism } from 'node:os'
import { basename } from 'node:path'
import { fileURLToPath } from 'node:url'
import { defineConfig } from 'vitest/config'
import { byRun, hangMs, isHpcRun } from './test/long-run.ts'

// What takes minutes or downloads much is left to `npm run test:long`, what needs a scheduler for
// long to `npm run test:hpc`.
const kinds = isHpcRun ? ['hpc'] : byRun(['test'], ['test', 'long'])
const filesIn = (folder: string): string[] => kinds.map((kind) => `${folder}/**/*.${kind}.ts`)

/** Their tests look at the children of their process, which would be those of other files, too. */
const withChildren = ['test/cluster', 'test/hpc']
/** Their tests do so, too, and leave none: files of such a folder share processes. */
const leavingNone = ['test/backends']
/** Folders of these whose tests do not. */
const withoutChildren = [
  'test/cluster/agent',
  'test/cluster/driver',
  'test/cluster/wire',
  'test/hpc/pilots',
  'test/hpc/slurm',
]

const apart = [...withChildren, ...leavingNone]

/**
 * Commands, agents and workers that tests start run the sources. With a cache of stripped and
 * compiled modules they start as fast as the build: the tests need half the CPU time. In the
 * environment of this process it also holds for the processes that vitest starts.
 */
process.env['NODE_COMPILE_CACHE'] ??= fileURLToPath(new URL('.cache/modules', import.meta.url))

export default defineConfig({
  test: {
    pool: 'forks',
    // Many tests wait for processes and deadlines: two cores are a third idle with three files.
    maxWorkers: availableParallelism() + (isHpcRun ? 3 : 2),
    reporters: ['./scripts/test-reporter.ts'],
    testTimeout: hangMs,
    hookTimeout: hangMs,
    expect: { poll: { timeout: hangMs * 0.9 } },
    projects: [
      {
        extends: true,
        test: {
          name: 'a process for each file',
          include: withChildren.flatMap(filesIn),
          exclude: withoutChildren.map((folder) => `${folder}/**`),
        },
      },
      {
        extends: true,
        test: {
          name: 'shared processes with children',
          isolate: false,
          include: leavingNone.flatMap(filesIn),
        },
      },
      {
        extends: true,
        test: {
          name: 'shared processes',
          // A new process for each of the files costs a fifth of the CPU time of all tests.
          isolate: false,
          include: [
            ...kinds.map((kind) => `test/*.${kind}.ts`),
            ...filesIn(`test/!(${apart.map((one) => basename(one)).join('|')})`),
            ...withoutChildren.flatMap(filesIn),
          ],
        },
      },
    ],
  },
})
