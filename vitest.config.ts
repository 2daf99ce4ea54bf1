import { availableParallelism } from 'node:os'
import { fileURLToPath } from 'node:url'
import { defineConfig } from 'vitest/config'
import { byRun, hangMs, isHpcRun } from './test/long-run.ts'

export default defineConfig({
  test: {
    // What takes minutes or downloads much is left to `npm run test:long`, what needs a scheduler
    // for long to `npm run test:hpc`.
    include: isHpcRun
      ? ['test/**/*.hpc.ts']
      : ['test/**/*.test.ts', ...byRun([], ['test/**/*.long.ts'])],
    pool: 'forks',
    // Many tests wait for processes and deadlines: two cores are half idle with two files.
    maxWorkers: availableParallelism() + (isHpcRun ? 3 : 1),
    // Commands, agents and workers that tests start run the sources. With a cache of stripped and
    // compiled modules they start as fast as the build: the tests need half the CPU time.
    env: { NODE_COMPILE_CACHE: fileURLToPath(new URL('.cache/modules', import.meta.url)) },
    reporters: ['./scripts/test-reporter.ts'],
    testTimeout: hangMs,
    hookTimeout: hangMs,
    expect: { poll: { timeout: hangMs * 0.9 } },
  },
})
