import { expect, it } from 'vitest'
import { Gate } from '../../src/workflow/gate.ts'
import { settled } from './open-engine.ts'

it('a gate lets in so many at a time, in their order, also after a failure', async () => {
  const gate = new Gate(2)
  const doors = Array.from({ length: 5 }, () => Promise.withResolvers<number>())
  const inside: number[] = []
  const passes = doors.map(({ promise }, at) =>
    gate.pass(() => {
      inside.push(at)
      return promise
    }),
  )
  const results = Promise.allSettled(passes)
  expect(inside).toEqual([0, 1])
  doors[1]?.reject(new Error('no'))
  await settled()
  expect(inside).toEqual([0, 1, 2])
  for (const [at, { resolve }] of doors.entries()) resolve(at)
  const states = (await results).map(({ status }) => status === 'fulfilled')
  expect(states).toEqual([true, false, true, true, true])
  expect(inside).toEqual([0, 1, 2, 3, 4])
})
