import { defineConfig } from 'vitest/config'

const isLong = process.env['TUTTI_LONG'] !== undefined

export default defineConfig({
  test: {
    // What takes minutes or downloads much is left to `npm run test:long`.
    include: ['test/**/*.test.ts', ...(isLong ? ['test/**/*.long.ts'] : [])],
    pool: 'forks',
    testTimeout: 120_000,
    hookTimeout: 120_000,
    // Many tests kill real processes on a machine that others use too. On CI one of them gets a second
    // chance, and the reporter names it; at a desk a failure is a failure.
    retry: process.env['CI'] === 'true' ? 1 : 0,
  },
})
