/** The options of a process engine whose server is the fixture program. */

import { fileURLToPath } from 'node:url'
import { systemClock } from '../../../../src/foundation/clock.ts'
import type { ProcessEngineOptions } from '../../../../src/inference/index.ts'

const program = fileURLToPath(new URL('./fixtures/server-program.ts', import.meta.url))

/** The command of the server; what is given here comes after the port. */
export const serverCommand = (...more: readonly string[]): readonly string[] => [
  process.execPath,
  program,
  '{port}',
  ...more,
]

export function engineOptions(options: Partial<ProcessEngineOptions> = {}): ProcessEngineOptions {
  return {
    command: serverCommand(),
    env: {},
    modelName: 'tiny',
    tpSize: 1,
    numGpus: 0,
    nodeOffset: 0,
    host: '127.0.0.1',
    healthPath: '/health',
    startTimeoutSeconds: 60,
    maxConcurrency: 4,
    contextLength: 2048,
    dtype: 'bfloat16',
    gpuMemoryUtilization: 0.9,
    hubToken: null,
    clock: systemClock,
    log: { warn: () => {} },
    ...options,
  }
}
