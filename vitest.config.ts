import { defineConfig } from 'vitest/config'

const isLong = process.env['TUTTI_LONG'] !== undefined
/** Only so that a hanging test is noticed: no test may need its time limit. */
const hangMs = process.env['TUTTI_LOADED_RESULTS'] === undefined ? 120_000 : 1_200_000

export default defineConfig({
  test: {
    // What takes minutes or downloads much is left to `npm run test:long`.
    include: ['test/**/*.test.ts', ...(isLong ? ['test/**/*.long.ts'] : [])],
    pool: 'forks',
    reporters: ['./scripts/test-reporter.ts'],
    testTimeout: hangMs,
    hookTimeout: hangMs,
  },
})
