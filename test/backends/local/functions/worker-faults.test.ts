import { describe, expect, it } from 'vitest'
import { WorkerLost } from '../../../../src/events/library-events.ts'
import { ValueError, WorkerLostError } from '../../../../src/foundation/errors.ts'
import { errorTypeOf } from '../../../../src/foundation/task-errors.ts'
import { defineTask } from '../../../../src/tasks/define-task.ts'
import { unreachable } from './fixtures/breaks-on-import.ts'
import {
  add,
  deep,
  echo,
  exitIf,
  forge,
  fail,
  hoard,
  killSelf,
  nothing,
  rejectLater,
  spinIf,
  throwLater,
  throwWhileRunning,
  turns,
  uncloneable,
  where,
} from './fixtures/functions.ts'
import { errorOf, type LastReport, PoolDriver, valueOf } from './pool-driver.ts'

const isolations = ['thread', 'process'] as const

describe.for(isolations)('functions that fail, isolation %s', (isolation) => {
  const open = (options = {}): PoolDriver => new PoolDriver({ isolation, size: 1, ...options })

  it('row 14: a function may throw any value: only its task fails, with that error', async () => {
    const driver = open()
    const kept = async (how: string): Promise<unknown> => {
      const report = await driver.run(fail, how)
      return report.kind === 'fail' ? report.error : report
    }
    expect(await kept('null')).toBe(null)
    expect(await kept('string')).toBe('a string')
    expect(await kept('function')).toContain('thrown')
    const frozen = await kept('frozen')
    expect(frozen).toBeInstanceOf(RangeError)
    expect(frozen).toMatchObject({ name: 'RangeError', message: 'frozen' })
    const custom = (await kept('class')) as Error
    expect(custom).toMatchObject({ name: 'Error', message: 'too many', limit: 7 })
    expect(errorTypeOf(custom)).toBe('QuotaError')
    expect(custom.stack).toContain('functions.ts')
    expect(custom.cause).toBeInstanceOf(TypeError)
    expect(custom.cause).toMatchObject({ message: 'the cause' })
    const renamed = (await kept('renamed')) as Error
    expect([renamed.name, errorTypeOf(renamed)]).toEqual(['Renamed', 'QuotaError'])
    const plain = (await kept('renamed error')) as Error
    expect([plain.name, errorTypeOf(plain)]).toEqual(['Renamed', 'Error'])
    const coded = await kept('code')
    expect(coded).toMatchObject({ message: 'no such file', code: 'ENOENT', errno: -2 })
    expect(coded).not.toHaveProperty('run')
    expect(await kept('getter')).toMatchObject({ message: 'spiteful' })
    expect(errorTypeOf(await kept('proxy'))).toBe('unknown')
    expect(await kept('aggregate')).toMatchObject({
      message: 'both',
      errors: [{ name: 'TypeError', message: 'one' }, 'two'],
    })
    expect(await kept('rejected')).toMatchObject({ message: 'rejected' })
    expect(valueOf(await driver.run(add, 1, 1))).toBe(2)
    expect(driver.notices).toEqual([])
    await driver.expectAllOver()
  })

  it('row 15: a result that cannot be cloned names the part, and a cyclic one can be', async () => {
    const driver = open({ batchSize: isolation === 'thread' ? 4 : 1 })
    const jobs = driver.submit(uncloneable, [['function'], ['socket'], ['symbol'], ['circle']])
    const [list, socket, symbol, circle] = await driver.allEnded(jobs)
    expect(errorOf(list)).toBeInstanceOf(ValueError)
    expect(errorOf(list).code).toBe('ResultNotSerializableError')
    expect(errorOf(list).field).toBe('return_value.list[1].run')
    expect(errorOf(list)).toMatchObject({ hint: expect.stringContaining('plain data') })
    expect(errorOf(socket).field).toBe('return_value.socket')
    expect(errorOf(symbol).field).toBe('return_value')
    const value = valueOf(circle) as { self: unknown; value: number }
    expect(value.value).toBe(3)
    expect(value.self).toBe(value)
    expect(driver.notices).toEqual([])
  })

  it('row 15: a result that is too deep to be read fails its own job alone', async () => {
    const driver = open()
    await driver.run(echo, 'warm')
    const jobs = [
      ...driver.submit(echo, [['before']]),
      ...driver.submit(deep, [[3000], [1]]),
      ...driver.submit(echo, [['after'], [{ after: true }]]),
    ]
    const [before, wrong, shallow, ...after] = await driver.allEnded(jobs)
    expect(before).toMatchObject({ kind: 'complete', value: 'before' })
    expect(errorOf(wrong as LastReport).code).toBe('ResultNotSerializableError')
    expect(shallow).toMatchObject({ kind: 'complete', value: { value: null } })
    expect(after).toMatchObject([{ value: 'after' }, { value: { after: true } }])
    await driver.expectAllOver()
  })

  it('an argument that cannot be cloned fails its own job alone, and names the part', async () => {
    const driver = open({ batchSize: isolation === 'thread' ? 3 : 1 })
    const [before, wrong, after] = driver.submit(echo, [
      [{ a: 1 }],
      [{ options: { callback() {} } }],
      ['x'],
    ])
    const error = errorOf(await driver.ended(wrong))
    expect(error).toBeInstanceOf(ValueError)
    expect(error).toMatchObject({
      code: 'ArgumentNotSerializableError',
      field: 'args[0].options.callback',
      hint: expect.stringContaining('plain data'),
    })
    expect(driver.reportsOf(wrong)).toHaveLength(1)
    expect(valueOf(await driver.ended(before))).toEqual({ a: 1 })
    expect(valueOf(await driver.ended(after))).toBe('x')
    await driver.expectAllOver()
  })

  it.for([
    ['unhandled rejection', rejectLater],
    ['uncaught exception', throwLater],
  ] as const)(
    'row 16: an %s after the end replaces the worker and blames nobody',
    async ([what, leave]) => {
      const driver = open({ batchSize: isolation === 'thread' ? 3 : 1 })
      const [culprit] = driver.submit(leave, [[]])
      const innocent = driver.submit(turns, [[20], [20]])
      expect(valueOf(await driver.ended(culprit))).toBe('returned')
      expect((await driver.allEnded(innocent)).map(valueOf)).toEqual([20, 20])
      await driver.noticed(1)
      const reason = expect.stringContaining(what) as string
      expect(driver.notices).toMatchObject([
        { type: WorkerLost, fields: { worker_id: 'n/w1', tasks: [], reason } },
      ])
      expect(driver.reportsOf(culprit)).toHaveLength(2)
      expect((await driver.run(nothing)).facts?.workerId).toBe('n/w2')
      await driver.expectAllOver()
    },
  )

  it('row 113: messages of user code to the parent are ignored and counted', async () => {
    const driver = open()
    const jobs = driver.submit(forge, [[], []])
    expect((await driver.allEnded(jobs)).map(valueOf)).toEqual(['honest', 'honest'])
    expect(valueOf(await driver.run(add, 1, 2))).toBe(3)
    expect(driver.notices).toEqual([])
    await driver.expectAllOver()
    expect(driver.warnings).toEqual(['MessagesIgnored'])
    await driver.pool.close('done')
    expect(driver.warnings).toEqual(['MessagesIgnored', 'MessagesIgnored'])
    const counted = isolation === 'thread' ? 20 : 18
    expect(driver.warningTexts[1]).toContain(`${counted} messages`)
  })

  it('row 16: an uncaught exception of the task that runs fails it', async () => {
    const driver = open()
    const [job] = driver.submit(throwWhileRunning, [[]])
    const error = errorOf(await driver.ended(job))
    expect(error).toBeInstanceOf(WorkerLostError)
    expect(error.message).toContain('uncaught exception: thrown by the running task')
    expect(error.cause).toMatchObject({ message: 'thrown by the running task' })
    expect(driver.notices).toMatchObject([{ fields: { worker_id: 'n/w1', tasks: [job.uid] } }])
    expect(valueOf(await driver.run(add, 1, 1))).toBe(2)
  })

  it('row 20: process.exit(0) in a function is a lost worker, and only its job fails', async () => {
    const driver = open({ batchSize: isolation === 'thread' ? 4 : 1 })
    const jobs = driver.submit(exitIf, [[false, { a: 1 }], [false, 2], [true], [false, 3]])
    const [first, second, exited, last] = await driver.allEnded(jobs)
    expect([valueOf(first), valueOf(second), valueOf(last)]).toEqual([{ a: 1 }, 2, 3])
    expect(errorOf(exited)).toBeInstanceOf(WorkerLostError)
    expect(errorOf(exited).message).toContain('worker n/w1 was lost')
    expect(exited.facts).toEqual({ workerId: 'n/w1', exitCode: 0 })
    expect(last.facts).toEqual({ workerId: 'n/w2' })
    expect(driver.notices).toMatchObject([{ type: WorkerLost, fields: { tasks: [jobs[2]?.uid] } }])
    await driver.expectAllOver()
  })

  it('row 21: after a task that kills every worker, the pool still runs others', async () => {
    const driver = open()
    for (const workerId of ['n/w1', 'n/w2', 'n/w3']) {
      const report = await driver.run(exitIf, true)
      expect(errorOf(report)).toBeInstanceOf(WorkerLostError)
      expect(report.facts).toMatchObject({ workerId })
    }
    expect(valueOf(await driver.run(add, 1, 1))).toBe(2)
  })

  it('row 22: a module that cannot be imported fails only the jobs that need it', async () => {
    const driver = open({ batchSize: isolation === 'thread' ? 3 : 1 })
    const missing = defineTask('file:///does/not/exist.ts', function missing() {})
    const [lost] = driver.submit(missing, [[]])
    const undefinedThere = defineTask(import.meta.resolve('./pool-driver.ts'), function absent() {})
    const [good] = driver.submit(add, [[1, 2]])
    const error = errorOf(await driver.ended(lost))
    expect(error).toMatchObject({ code: 'TaskImportError', field: 'function' })
    expect(errorTypeOf(error)).toBe('TaskImportError')
    expect(error).toBeInstanceOf(ValueError)
    expect(error.cause).toMatchObject({ code: 'ERR_MODULE_NOT_FOUND' })
    expect(valueOf(await driver.ended(good))).toBe(3)
    expect(errorOf(await driver.run(undefinedThere)).code).toBe('TaskImportError')
    if (isolation === 'thread') {
      const broken = errorOf(await driver.run(unreachable))
      expect(broken.cause).toMatchObject({ name: 'RangeError', message: 'not in a worker' })
    }
    expect(driver.notices).toEqual([])
  })
})

describe('memory and signals', () => {
  it('an argument that only threads can share fails its own job in a process', async () => {
    const driver = new PoolDriver({ isolation: 'process', size: 1 })
    const jobs = driver.submit(echo, [[new SharedArrayBuffer(8)], ['x']])
    const [shared, text] = await driver.allEnded(jobs)
    expect(errorOf(shared)).toMatchObject({ code: 'ArgumentNotSerializableError' })
    expect(valueOf(text)).toBe('x')
    await driver.expectAllOver()
  })

  // Not a thread, which can abort this process then.
  it('row 18: a worker out of memory fails its job alone, and is replaced', async () => {
    const driver = new PoolDriver({ isolation: 'process', size: 1, maxHeapMb: 24, batchSize: 3 })
    const [before] = driver.submit(echo, [[{ kept: true }]])
    const [job] = driver.submit(hoard, [[]])
    const error = errorOf(await driver.ended(job))
    expect(error).toBeInstanceOf(WorkerLostError)
    expect(error.code).toBe('WorkerOutOfMemoryError')
    expect(valueOf(await driver.ended(before))).toEqual({ kept: true })
    expect(driver.notices).toMatchObject([
      { fields: { reason: 'out of memory', tasks: [job.uid] } },
    ])
    expect(valueOf(await driver.run(add, 1, 1))).toBe(2)
  })

  it('row 19: SIGKILL of a worker process fails the job that it runs, and no other', async () => {
    const driver = new PoolDriver({ isolation: 'process', size: 2 })
    const jobs = [
      ...driver.submit(add, [
        [1, 1],
        [2, 2],
      ]),
      ...driver.submit(killSelf, [['SIGKILL']]),
      ...driver.submit(spinIf, [
        [false, 'a'],
        [false, 'b'],
      ]),
    ]
    const reports = await driver.allEnded(jobs)
    expect(reports.map(({ kind }) => kind)).toEqual([
      'complete',
      'complete',
      'fail',
      'complete',
      'complete',
    ])
    const killed = reports[2] as LastReport
    expect(errorOf(killed)).toBeInstanceOf(WorkerLostError)
    expect(errorOf(killed).message).toContain('SIGKILL')
    expect(killed.facts?.signal).toBe('SIGKILL')
    expect(driver.notices).toHaveLength(1)
    await driver.expectAllOver()
  })

  it('row 19: an idle worker process that is killed is replaced when there is work', async () => {
    const driver = new PoolDriver({ isolation: 'process', size: 1 })
    const { pid } = valueOf(await driver.run(where)) as { pid: number }
    process.kill(pid, 'SIGKILL')
    await driver.noticed(1)
    expect(driver.notices).toMatchObject([{ fields: { worker_id: 'n/w1', tasks: [] } }])
    expect((await driver.run(nothing)).facts?.workerId).toBe('n/w2')
  })
})
