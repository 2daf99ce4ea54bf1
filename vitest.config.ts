import { availableParallelism } from 'node:os'
import { fileURLToPath } from 'node:url'
import { defineConfig } from 'vitest/config'
import { BaseSequencer, type TestSpecification } from 'vitest/node'
import { byRun, hangMs, isHpcRun } from './test/long-run.ts'

// What takes minutes or downloads much is left to `npm run test:long`, what needs a scheduler for
// long to `npm run test:hpc`.
const kinds = isHpcRun ? ['hpc'] : byRun(['test'], ['test', 'long'])
const filesIn = (folder: string): string[] => kinds.map((kind) => `${folder}/**/*.${kind}.ts`)

/** Their tests look at the children of their process, which those of others may leave. */
const withChildren = 'backends'
/** They choose how nodes are started, which a process does once. */
const withStartMethod = kinds.flatMap((kind) => [
  `test/hpc/{host-list-allocation,hpc-backend,hpc-contract,lost-agent,start-method}.${kind}.ts`,
  `test/hpc/ranks/ranks.${kind}.ts`,
])

/**
 * They run longest, most of them for half a minute beside others. Without results of an earlier run
 * vitest starts the largest files first, and these are small: everything would wait for them.
 */
const longest = [
  'test/core/resume/killed-runs.test.ts',
  'test/report/pictures.test.ts',
  'test/inference/engines/llama/evaluation/sampling.test.ts',
  'test/cli/main.test.ts',
  'test/cli/program/examples.test.ts',
]

class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const isLong = ({ moduleId }: TestSpecification): boolean =>
      longest.some((path) => moduleId.endsWith(path))
    // oxlint-disable-next-line unicorn/no-array-sort -- it is no array
    const sorted = await super.sort(files)
    return [...sorted.filter(isLong), ...sorted.filter((one) => !isLong(one))]
  }
}

/**
 * Commands, agents and workers that tests start run the sources. With a cache of stripped and
 * compiled modules they start as fast as the build: the tests need half the CPU time. In the
 * environment of this process it also holds for the processes that vitest starts.
 */
process.env['NODE_COMPILE_CACHE'] ??= fileURLToPath(new URL('.cache/modules', import.meta.url))

export default defineConfig({
  test: {
    pool: 'forks',
    // Many tests wait for processes and deadlines: with four files two cores are a fifth idle.
    maxWorkers: availableParallelism() + 3,
    sequence: { sequencer: LongestFirst },
    reporters: ['./scripts/test-reporter.ts'],
    testTimeout: hangMs,
    hookTimeout: hangMs,
    expect: { poll: { timeout: hangMs * 0.9 } },
    // A new process for each of the files costs a fifth of the CPU time of all tests.
    isolate: isHpcRun,
    projects: [
      {
        extends: true,
        test: { name: 'a process for each file', isolate: true, include: withStartMethod },
      },
      {
        extends: true,
        test: { name: 'files that look at children', include: filesIn(`test/${withChildren}`) },
      },
      {
        extends: true,
        test: {
          name: 'others',
          include: [
            ...kinds.map((kind) => `test/*.${kind}.ts`),
            ...filesIn(`test/!(${withChildren})`),
          ],
          exclude: withStartMethod,
        },
      },
    ],
  },
})
