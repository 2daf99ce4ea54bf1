import { describe, expect, expectTypeOf, it } from 'vitest'
import type { AnyTask } from '../../src/backends/backend.ts'
import { ValueError } from '../../src/foundation/errors.ts'
import { ComputeTask, type ExecutableResult } from '../../src/tasks/compute-task.ts'
import { defineTask } from '../../src/tasks/define-task.ts'

const program = (options: object = {}) => new ComputeTask({ executable: 'simulate', ...options })
const work = (options: object = {}) => new ComputeTask({ function: Math.hypot, ...options })

describe('a program', () => {
  it('a program keeps what it was given, frozen, with defaults for the rest', () => {
    const env = { A: '1', B: undefined }
    const given = ['--n', '10']
    const task = program({
      arguments: given,
      cwd: '/data',
      env,
      stdin: 'in',
      shell: true,
      captureStdio: { stdout: 'out.txt' },
      resources: { cores: 2, gpus: 1 },
    })
    given.push('later')
    env.A = '2'
    expect(task).toMatchObject({
      kind: 'compute',
      executable: 'simulate',
      arguments: ['--n', '10'],
      function: null,
      definition: null,
      cwd: '/data',
      env: { A: '1', B: undefined },
      stdin: 'in',
      shell: true,
      captureStdio: { stdout: 'out.txt' },
      resources: { cores: 2, gpus: 1, memoryMb: 0, ranks: 1 },
    })
    expect(Object.isFrozen(task.arguments) && Object.isFrozen(task.env)).toBe(true)
    expect(program()).toMatchObject({
      arguments: [],
      cwd: null,
      env: null,
      stdin: null,
      shell: false,
      captureStdio: null,
      resources: { cores: 1, gpus: 0, memoryMb: 0, ranks: 1 },
    })
    const bytes = new Uint8Array([0, 255])
    expect(program({ stdin: bytes }).stdin).toEqual(bytes)
    expect([program().stdout, program().stderr, program().exitCode]).toEqual(
      Array.from({ length: 3 }),
    )
  })

  const invalid: readonly [object, string][] = [
    [{ executable: '' }, 'executable'],
    [{ executable: 7 }, 'executable'],
    [{ executable: null }, 'executable'],
    [{ executable: 'a\u0000b' }, 'executable'],
    [{ arguments: '-n 10' }, 'arguments'],
    [{ arguments: ['-n', 10] }, 'arguments[1]'],
    [{ arguments: [undefined] }, 'arguments[0]'],
    [{ arguments: ['a', 'b', 'c\u0000'] }, 'arguments[2]'],
    [{ arguments: ['x'.repeat(131_072)] }, 'arguments[0]'],
    [{ arguments: Array.from({ length: 11 }, () => 'x'.repeat(100_000)) }, 'arguments'],
    [{ args: [1] }, 'args'],
    [{ cwd: '' }, 'cwd'],
    [{ cwd: 'a\u0000' }, 'cwd'],
    [{ cwd: 7 }, 'cwd'],
    [{ env: 'A=1' }, 'env'],
    [{ env: { A: 1 } }, 'env.A'],
    [{ env: { A: null } }, 'env.A'],
    [{ env: { A: 'x\u0000' } }, 'env.A'],
    [{ env: { 'A=B': 'x' } }, 'env.A=B'],
    [{ env: { '': 'x' } }, 'env.'],
    [{ stdin: 7 }, 'stdin'],
    [{ stdin: ['x'] }, 'stdin'],
    [{ shell: 'bash' }, 'shell'],
    [{ shell: null }, 'shell'],
    [{ captureStdio: true }, 'captureStdio'],
    [{ captureStdio: { stdout: 1 } }, 'captureStdio.stdout'],
    [{ captureStdio: { stderr: '' } }, 'captureStdio.stderr'],
    [{ captureStdio: { stdut: 'x' } }, 'captureStdio.stdut'],
    [{ resources: 4 }, 'resources'],
    [{ resources: { cores: 0 } }, 'resources.cores'],
    [{ resources: { cores: 1.5 } }, 'resources.cores'],
    [{ resources: { gpus: -1 } }, 'resources.gpus'],
    [{ resources: { memoryMb: -1 } }, 'resources.memoryMb'],
    [{ resources: { memoryMb: '1' } }, 'resources.memoryMb'],
    [{ resources: { memoryMb: Infinity } }, 'resources.memoryMb'],
    [{ resources: { ranks: 0 } }, 'resources.ranks'],
    [{ resources: { core: 1 } }, 'resources.core'],
    [{ resources: { ranks: 2, ranksPerNode: 0 } }, 'resources.ranksPerNode'],
    [{ resources: { ranksPerNode: 2 } }, 'resources.ranksPerNode'],
    [{ resources: { labels: ['a'] } }, 'resources.labels'],
    [{ resources: { labels: { '': 'a' } } }, 'resources.labels'],
    [{ resources: { labels: { zone: 7 } } }, 'resources.labels.zone'],
    [{ resources: { seconds: 0 } }, 'resources.seconds'],
  ]
  it.each(invalid)('row 6: a program refuses %.60j and names the field', (options, field) => {
    expect(() => program(options)).toThrow(expect.objectContaining({ name: 'ValueError', field }))
  })

  it('row 6: a program reports a wrong argument before anything is spawned', () => {
    expect(() => program({ arguments: ['a', 'b', 'c\u0000'] })).toThrow(
      'arguments[2]: contains NUL',
    )
    expect(() => program({ arguments: ['x'.repeat(212 * 1024)] })).toThrow(
      'arguments[0]: 212 KB exceed the maximum size of arguments (ARG_MAX); use a file or stdin',
    )
    expect(program({ arguments: ['x'.repeat(131_071)] }).arguments).toHaveLength(1)
    expect(() => program({ arguments: ['é'.repeat(65_536)] })).toThrow(/\(ARG_MAX\)/)
  })
})

describe('a function', () => {
  it('a function keeps its name, its arguments and where it is defined', () => {
    const given = [3, 4]
    const task = work({ args: given })
    given.push(5)
    expect(task).toMatchObject({ kind: 'function', executable: 'hypot', args: [3, 4] })
    expect([task.function, task.definition]).toEqual([Math.hypot, null])
    const cube = defineTask(import.meta.url, function cube(x: number) {
      return x ** 3
    })
    expect(new ComputeTask({ function: cube, args: [2] }).definition).toEqual({
      module: import.meta.url,
      name: 'cube',
    })
    expect([task.stdout, task.stderr, task.exitCode]).toEqual(Array.from({ length: 3 }))
  })

  const invalid: readonly [object, string][] = [
    [{ function: 'square' }, 'function'],
    [{ function: null }, 'function'],
    [{ args: 7 }, 'args'],
    [{ args: { length: 1 } }, 'args'],
    [{ arguments: [] }, 'arguments'],
    [{ cwd: '/' }, 'cwd'],
    [{ env: {} }, 'env'],
    [{ stdin: '' }, 'stdin'],
    [{ shell: true }, 'shell'],
    [{ captureStdio: {} }, 'captureStdio'],
  ]
  it.each(invalid)('a function refuses %j and names the field', (options, field) => {
    expect(() => work(options)).toThrow(expect.objectContaining({ name: 'ValueError', field }))
  })

  it('a function and a program exclude each other, and one is needed', () => {
    const cases: [object, string][] = [
      [{}, 'neither'],
      [{ executable: 'a', function: work }, 'both'],
    ]
    for (const [options, got] of cases) {
      const message = `Expected exactly one of \`executable\` and \`function\`, got ${got}`
      expect(() => new ComputeTask(options as never)).toThrow(
        expect.objectContaining({ name: 'ValueError', field: 'executable', got, message }),
      )
    }
  })

  it('a function and a program name their arguments differently, which an error says', () => {
    expect(() => program({ args: ['x'] })).toThrow(
      '`args` belongs to a function, which this task does not run; did you mean "arguments"?',
    )
    expect(() => work({ arguments: ['x'] })).toThrow(
      '`arguments` belongs to an executable, which this task does not run; did you mean "args"?',
    )
    expect(() => work({ cwd: '/' })).toThrow(/which this task does not run$/)
  })
})

describe('types', () => {
  it('types follow from the function or the program', async () => {
    const hypot = new ComputeTask({ function: (a: number, b: number) => a * b, args: [1, 2] })
    expectTypeOf(hypot.returnValue).toEqualTypeOf<number | undefined>()
    expectTypeOf<Awaited<typeof hypot>>().toEqualTypeOf<number>()
    const later = new ComputeTask({ function: async () => 'text' })
    expectTypeOf<Awaited<typeof later>>().toEqualTypeOf<string>()
    const simulate = new ComputeTask({ executable: 'simulate' })
    expectTypeOf<Awaited<typeof simulate>>().toEqualTypeOf<ExecutableResult>()
    const either: AnyTask[] = [hypot, later, simulate]
    expect(either).toHaveLength(3)

    const wrong = [
      // @ts-expect-error the second argument must be a number
      () => new ComputeTask({ function: (a: number, b: number) => a * b, args: [1, '2'] }),
      // @ts-expect-error there is one argument too many
      () => new ComputeTask({ function: (a: number) => a, args: [1, 2] }),
      // @ts-expect-error arguments are strings
      () => new ComputeTask({ executable: 'a', arguments: [1] }),
      // @ts-expect-error a program has no function arguments
      () => new ComputeTask({ executable: 'a', args: [1] }),
      // @ts-expect-error exactly one of both
      () => new ComputeTask({ executable: 'a', function: () => 1 }),
      // @ts-expect-error a misspelled option
      () => new ComputeTask({ executable: 'a', timeout: 1 }),
      // @ts-expect-error neither of both
      () => new ComputeTask({ retries: 1 }),
    ]
    // The types of arguments are for the compiler; all the rest is refused at run time as well.
    const refused = wrong.slice(2).every((create) => {
      try {
        create()
        return false
      } catch (error) {
        return error instanceof ValueError
      }
    })
    expect(refused).toBe(true)
  })
})

describe('an option that does not exist', () => {
  const wrong: readonly [object, string][] = [
    [{ resources: { cpus: 1 } }, 'a task has no `resources.cpus`; did you mean "cores"?'],
    [{ resources: { memory: 1 } }, 'a task has no `resources.memory`; did you mean "memoryMb"?'],
    [{ timeout: 3 }, 'ComputeTask has no `timeout`; did you mean "timeoutSeconds"?'],
    [{ cpus: 3 }, 'ComputeTask has no `cpus`; did you mean `resources: { cores }`?'],
    [{ cores: 2 }, 'ComputeTask has no `cores`; did you mean `resources: { cores }`?'],
    [{ gpus: 2 }, 'ComputeTask has no `gpus`; did you mean `resources: { gpus }`?'],
    [{ memoryMB: 2 }, 'ComputeTask has no `memoryMB`; did you mean `resources: { memoryMb }`?'],
    [{ retry: 2 }, 'ComputeTask has no `retry`; did you mean "retries"?'],
    [{ maxRetries: 2 }, 'ComputeTask has no `maxRetries`; did you mean "retries"?'],
    [{ fn: () => 1 }, 'ComputeTask has no `fn`; did you mean "function"?'],
  ]
  it.each(wrong)('%j is refused with what it is called here', (options, message) => {
    expect(() => program(options)).toThrow(message)
  })

  it('an option that does not exist is named before what is missing', () => {
    const options = { timeout: 3 } as never
    expect(() => new ComputeTask(options)).toThrow('did you mean "timeoutSeconds"?')
  })

  it('resources: labels, seconds and ranks per node are kept; no labels are none', () => {
    const resources = { ranks: 4, ranksPerNode: 2, labels: { zone: 'a' }, seconds: 60 }
    expect(program({ resources }).resources).toEqual({
      cores: 1,
      gpus: 0,
      memoryMb: 0,
      ...resources,
    })
    expect(program({ resources: { labels: {} } }).resources).not.toHaveProperty('labels')
  })
})

describe('the types of a task', () => {
  it('the compiler names a missing argument, a wrong one, and an unknown option', () => {
    const burn = (n: number): number => n
    const join = async (a: string, b = 'b'): Promise<string> => a + b
    // @ts-expect-error burn needs a number
    expect(new ComputeTask({ function: burn }).args).toEqual([])
    // @ts-expect-error a number
    expect(new ComputeTask({ function: burn, args: ['1'] }).args).toEqual(['1'])
    // @ts-expect-error not more than it takes
    expect(new ComputeTask({ function: burn, args: [1, 2] }).args).toEqual([1, 2])
    expect(new ComputeTask({ function: (...all: number[]) => all.length }).args).toEqual([])
    expectTypeOf(new ComputeTask({ function: burn, args: [1] })).toExtend<PromiseLike<number>>()
    expectTypeOf(new ComputeTask({ function: join, args: ['a'] })).toExtend<PromiseLike<string>>()
    expectTypeOf(new ComputeTask({ function: () => 1 })).toExtend<PromiseLike<number>>()
    const wrong = [
      () =>
        new ComputeTask({
          executable: 'true',
          // @ts-expect-error this line is blamed, not the program
          timeout: 3,
        }),
      () =>
        new ComputeTask({
          executable: 'true',
          // @ts-expect-error it is called cores
          resources: { cpus: 1 },
        }),
    ]
    for (const create of wrong) expect(create).toThrow('did you mean')
    // @ts-expect-error one of the two
    expect(() => new ComputeTask({})).toThrow('exactly one of')
  })
})
