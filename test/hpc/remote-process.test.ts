import { expect, it, onTestFinished } from 'vitest'
import { systemClock } from '../../src/foundation/clock.ts'
import { RemoteProcess } from '../../src/hpc/remote-process.ts'

it('kill: a process that has lost the first signal is asked again', async () => {
  const started = Promise.withResolvers<void>()
  const script = "trap 'trap - TERM' TERM; echo up; while :; do sleep 0.05; done"
  const remote = new RemoteProcess({
    command: ['sh', '-c', script],
    env: process.env,
    input: '',
    clock: systemClock,
    onOutput: () => started.resolve(),
  })
  onTestFinished(() => remote.close())
  await started.promise
  remote.kill()
  expect(await remote.ended).toBe('SIGTERM')
})
