import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { assertProperty } from '../../property.ts'
import {
  ModelSchedule,
  type ScheduledModel,
  type ScheduleInstruction,
} from '../../../src/inference/pool/model-schedule.ts'

const megabyte = 2 ** 20

const model = (name: string, size: number, more: Partial<ScheduledModel> = {}): ScheduledModel => ({
  name,
  bytes: size * megabyte,
  keepAliveMs: 1000,
  isPinned: false,
  ...more,
})

const open = (budget: number, ...models: readonly ScheduledModel[]): ModelSchedule =>
  new ModelSchedule(models, budget * megabyte)

const show = (instructions: readonly ScheduleInstruction[]): readonly string[] =>
  instructions.map((one) =>
    'request' in one ? `${one.kind} ${one.request}` : `${one.kind} ${one.model}`,
  )

describe('the schedule of models', () => {
  it('a model is loaded on demand, and unloaded when it was idle for long enough', () => {
    const schedule = open(10, model('a', 4))
    expect(show(schedule.request('a1', 'a', 0))).toEqual(['load a'])
    expect(show(schedule.request('a2', 'a', 0))).toEqual([])
    expect(show(schedule.loaded('a', 5))).toEqual(['begin a1', 'begin a2'])
    expect(schedule.nextDeadlineMs).toBe(Infinity)
    expect(show(schedule.release('a', 10))).toEqual([])
    expect(show(schedule.advance(5000))).toEqual([])
    expect(show(schedule.release('a', 5000))).toEqual([])
    expect(schedule.nextDeadlineMs).toBe(6000)
    expect(show(schedule.advance(5999))).toEqual([])
    expect(show(schedule.advance(6000))).toEqual(['unload a'])
    expect(show(schedule.request('a3', 'a', 6001))).toEqual([])
    expect(show(schedule.unloaded('a', 6002))).toEqual(['load a'])
  })

  it('a model that is kept for ever has no deadline', () => {
    const schedule = open(10, model('a', 4, { keepAliveMs: Infinity }))
    schedule.request('a1', 'a', 0)
    schedule.loaded('a', 0)
    expect(show(schedule.release('a', 1))).toEqual([])
    expect(schedule.nextDeadlineMs).toBe(Infinity)
    expect(show(schedule.advance(1e12))).toEqual([])
  })

  it('two models that fit are loaded side by side', () => {
    const schedule = open(10, model('a', 4), model('b', 6))
    expect(show(schedule.request('a1', 'a', 0))).toEqual(['load a'])
    expect(show(schedule.request('b1', 'b', 0))).toEqual(['load b'])
    expect(show(schedule.loaded('b', 1))).toEqual(['begin b1'])
    expect(show(schedule.loaded('a', 2))).toEqual(['begin a1'])
  })

  it('a model that does not fit waits for one that is idle, and never unloads a busy one', () => {
    const schedule = open(10, model('a', 6), model('b', 6))
    schedule.request('a1', 'a', 0)
    schedule.loaded('a', 0)
    expect(show(schedule.request('b1', 'b', 1))).toEqual([])
    expect(show(schedule.advance(1e9))).toEqual([])
    expect(show(schedule.release('a', 2))).toEqual(['unload a'])
    expect(show(schedule.unloaded('a', 3))).toEqual(['load b'])
    expect(show(schedule.loaded('b', 4))).toEqual(['begin b1'])
  })

  it('row 129: requests of two models that do not fit begin in the order of arrival', () => {
    const schedule = open(10, model('a', 6), model('b', 6))
    schedule.request('a1', 'a', 0)
    schedule.loaded('a', 0)
    for (const request of ['b1', 'a2', 'b2', 'b3', 'a3'])
      expect(show(schedule.request(request, request[0] ?? '', 0))).toEqual([])
    const begun: string[] = []
    let [current, active] = ['a', 1]
    for (let turn = 0; turn < 4; turn++) {
      while (active > 1) {
        expect(show(schedule.release(current, 0))).toEqual([])
        active--
      }
      expect(show(schedule.release(current, 0))).toEqual([`unload ${current}`])
      const other = current === 'a' ? 'b' : 'a'
      expect(show(schedule.unloaded(current, 0))).toEqual([`load ${other}`])
      const started = show(schedule.loaded(other, 0))
      begun.push(started.join(' '))
      ;[current, active] = [other, started.length]
    }
    expect(begun).toEqual(['begin b1', 'begin a2', 'begin b2 begin b3', 'begin a3'])
  })

  it('a loaded model that need not give way serves its requests while others wait', () => {
    const schedule = open(10, model('a', 6), model('b', 6), model('c', 4))
    for (const name of ['c', 'a']) schedule.request(`${name}1`, name, 0)
    schedule.loaded('c', 0)
    schedule.loaded('a', 0)
    // `c` would be idle after 1 s, but `b` needs the memory of `a`.
    schedule.request('b1', 'b', 1)
    expect(show(schedule.request('c2', 'c', 2))).toEqual(['begin c2'])
    expect(show(schedule.request('a2', 'a', 2))).toEqual([])
    expect(show(schedule.release('a', 3))).toEqual(['unload a'])
  })

  it('the model that was idle longest is unloaded, and none that is not needed', () => {
    const schedule = open(10, model('a', 2), model('b', 3), model('c', 4), model('d', 6))
    for (const [at, name] of ['a', 'b', 'c'].entries()) {
      schedule.request(`${name}1`, name, at)
      schedule.loaded(name, at)
      schedule.release(name, at)
    }
    expect(show(schedule.request('d1', 'd', 5))).toEqual(['unload a', 'unload b'])
    schedule.unloaded('a', 6)
    expect(show(schedule.unloaded('b', 6))).toEqual(['load d'])
  })

  it('a cancelled request makes nobody give way', () => {
    const schedule = open(10, model('a', 6), model('b', 6))
    schedule.request('a1', 'a', 0)
    schedule.loaded('a', 0)
    schedule.request('b1', 'b', 0)
    schedule.request('a2', 'a', 0)
    expect(show(schedule.cancel('b1', 1))).toEqual(['begin a2'])
    expect(show(schedule.cancel('b1', 1))).toEqual([])
  })

  it('a model that can never fit is refused with the sizes', () => {
    const schedule = open(10, model('a', 6, { isPinned: true }), model('b', 6), model('c', 11))
    expect(schedule.request('c1', 'c', 0)).toEqual([
      {
        kind: 'refuse',
        request: 'c1',
        model: 'c',
        reason:
          'the model "c" needs 11 MB of memory, but all models together may have 10 MB ' +
          '(hardware.model_memory_mb)',
      },
    ])
    schedule.request('a1', 'a', 0)
    schedule.loaded('a', 0)
    schedule.release('a', 1)
    const [refused] = schedule.request('b1', 'b', 2)
    expect(refused).toMatchObject({
      kind: 'refuse',
      reason: expect.stringMatching(/6 MB.*10 MB.*, of which "a" keeps 6/),
    })
  })

  it('a failed load refuses the requests that waited for it, and the next one tries again', () => {
    const schedule = open(10, model('a', 6), model('b', 6))
    schedule.request('a1', 'a', 0)
    schedule.request('b1', 'b', 0)
    schedule.request('a2', 'a', 0)
    const failed = schedule.loadFailed('a', 1)
    expect(show(failed)).toEqual(['refuse a1', 'refuse a2', 'load b'])
    expect(failed[0]).toMatchObject({ model: 'a', reason: null })
    schedule.loaded('b', 2)
    expect(show(schedule.request('a3', 'a', 3))).toEqual([])
    expect(show(schedule.release('b', 4))).toEqual(['unload b'])
    expect(show(schedule.unloaded('b', 5))).toEqual(['load a'])
  })

  it('any traffic: memory is enough, busy models stay, all requests begin in order', () => {
    const names = ['a', 'b', 'c', 'd']
    const step = fc.record({ pick: fc.nat(), action: fc.nat(9) })
    const sizes = fc.array(fc.integer({ min: 1, max: 10 }), { minLength: 4, maxLength: 4 })
    assertProperty(
      fc.property(sizes, fc.array(step, { maxLength: 120 }), (bytes, steps) => {
        runTraffic(
          names.map((name, at) => model(name, bytes[at] ?? 1)),
          steps,
        )
      }),
      { numRuns: 300 },
    )
  })
})

interface Step {
  readonly pick: number
  readonly action: number
}

/** Plays random stimuli, checks the rules after each, and lets all requests end. */
function runTraffic(models: readonly ScheduledModel[], steps: readonly Step[]): void {
  const schedule = open(10, ...models)
  const phases = new Map<string, 'loading' | 'loaded' | 'unloading'>()
  const active: string[] = []
  const arrived: string[] = []
  const begun = new Set<string>()
  let now = 0
  const follow = (instructions: readonly ScheduleInstruction[]): void => {
    for (const one of instructions) {
      if (one.kind === 'refuse') throw new Error(`refused: ${one.reason}`)
      if (one.kind === 'begin') {
        expect(phases.get(one.model)).toBe('loaded')
        // No earlier request of the same model is left behind.
        const earlier = arrived.slice(0, arrived.indexOf(one.request))
        expect(earlier.filter((id) => id.startsWith(one.model) && !begun.has(id))).toEqual([])
        begun.add(one.request)
        active.push(one.model)
      } else if (one.kind === 'load') {
        expect(phases.has(one.model)).toBe(false)
        phases.set(one.model, 'loading')
      } else {
        expect(phases.get(one.model)).toBe('loaded')
        expect(active).not.toContain(one.model)
        phases.set(one.model, 'unloading')
      }
    }
    const used = models.filter(({ name }) => phases.has(name))
    expect(used.reduce((sum, { bytes }) => sum + bytes, 0)).toBeLessThanOrEqual(10 * megabyte)
  }
  const settle = (name: string): void => {
    const phase = phases.get(name)
    if (phase === 'unloading') phases.delete(name)
    else phases.set(name, 'loaded')
    follow(phase === 'unloading' ? schedule.unloaded(name, now) : schedule.loaded(name, now))
  }
  const release = (at: number): void => {
    const [name = ''] = active.splice(at, 1)
    follow(schedule.release(name, now))
  }
  const unsettled = (): readonly string[] =>
    [...phases].flatMap(([name, phase]) => (phase === 'loaded' ? [] : name))
  for (const { pick, action } of steps) {
    now += pick % 400
    const pending = unsettled()
    if (action < 4) {
      const { name } = models[pick % models.length] ?? { name: 'a' }
      const id = `${name}${arrived.length}`
      arrived.push(id)
      follow(schedule.request(id, name, now))
    } else if (action < 6 && active.length > 0) release(pick % active.length)
    else if (pending.length > 0) settle(pending[pick % pending.length] ?? '')
    else follow(schedule.advance(now))
  }
  while (active.length > 0 || unsettled().length > 0) {
    const [pending] = unsettled()
    if (pending === undefined) release(0)
    else settle(pending)
  }
  expect(schedule.waitingCount).toBe(0)
  expect([...begun].toSorted()).toEqual(arrived.toSorted())
}
