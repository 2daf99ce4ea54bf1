import { defineConfig } from 'vitest/config'
import { byRun, hangMs } from './test/long-run.ts'

export default defineConfig({
  test: {
    // What takes minutes or downloads much is left to `npm run test:long`.
    include: ['test/**/*.test.ts', ...byRun([], ['test/**/*.long.ts'])],
    pool: 'forks',
    reporters: ['./scripts/test-reporter.ts'],
    testTimeout: hangMs,
    hookTimeout: hangMs,
    expect: { poll: { timeout: hangMs * 0.9 } },
  },
})
