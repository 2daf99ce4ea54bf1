import { mkdtempSync, rmSync, symlinkSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { describe, expect, it, onTestFinished } from 'vitest'
import {
  defineTask,
  definitionOf,
  findDefined,
  isEntryModule,
} from '../../src/tasks/define-task.ts'

const here = import.meta.url

describe('defineTask', () => {
  it('defineTask gives the function back and names it by module and name', () => {
    const square = function square(x: number): number {
      return x * x
    }
    expect(defineTask(here, square)).toBe(square)
    expect(definitionOf(square)).toEqual({ module: here, name: 'square' })
    expect(findDefined({ module: here, name: 'square' })).toBe(square)
    expect(definitionOf(() => 1)).toBeUndefined()
    expect(findDefined({ module: here, name: 'circle' })).toBeUndefined()
  })

  it('defineTask takes the same function again, as after a second import, but no other', () => {
    const load = (): (() => number) =>
      function twice() {
        return 2
      }
    defineTask(here, load())
    const again = defineTask(here, load())
    expect(findDefined({ module: here, name: 'twice' })).toBe(again)
    expect(() =>
      defineTask(here, function twice() {
        return 'other'
      }),
    ).toThrow(/the only function "twice" that its module defines/)
    const elsewhere = defineTask('file:///elsewhere.ts', function twice() {
      return 'other'
    })
    expect(definitionOf(elsewhere)?.module).toBe('file:///elsewhere.ts')
  })

  it('defineTask refuses values without a name and values that are no functions', () => {
    expect(() =>
      defineTask(
        here,
        (
          () => () =>
            1
        )(),
      ),
    ).toThrow(/a named function/)
    expect(() => defineTask(here, 'square' as never)).toThrow(/a function/)
    expect(() => defineTask('', () => 1)).toThrow(/moduleUrl/)
  })

  const relative = ['./x.ts', '../x.ts', 'x.ts', 'src/x.ts', 'some-package']
  it.each(relative)('defineTask refuses the module %s, which no worker would find', (module) => {
    expect(() => defineTask(module, function lost() {})).toThrow(
      expect.objectContaining({
        name: 'ValueError',
        field: 'moduleUrl',
        message: expect.stringContaining('`file:` URL, which is `import.meta.url`') as string,
      }),
    )
    expect(findDefined({ module, name: 'lost' })).toBeUndefined()
  })

  it('defineTask takes every URL, and a whole path as the URL that it means', () => {
    const moduleOf = (module: string, found = function found() {}): string | undefined =>
      definitionOf(defineTask(module, found))?.module
    for (const url of ['data:text/javascript,1', 'custom:x']) expect(moduleOf(url)).toBe(url)
    expect(moduleOf(fileURLToPath(here))).toBe(here)
    expect(moduleOf(resolve('/a b/50%#.ts'))).toBe(pathToFileURL('/a b/50%#.ts').href)
  })

  it("defineTask knows the program's entry module, also when it was named by a link", () => {
    const folder = mkdtempSync(join(tmpdir(), 'tutti-define-'))
    const program = process.argv[1]
    onTestFinished(() => {
      rmSync(folder, { recursive: true })
      process.argv[1] = program ?? ''
    })
    const isEntry = (module: string): boolean => {
      // Another module in between: answers are remembered for a module.
      isEntryModule({ module: 'data:text/javascript,', name: 'a' })
      return isEntryModule({ module, name: 'a' })
    }
    expect(isEntry(here)).toBe(false)
    process.argv[1] = fileURLToPath(here)
    expect(isEntry(here)).toBe(true)
    expect(isEntry(pathToFileURL(join(folder, 'other.ts')).href)).toBe(false)
    const link = join(folder, 'program.ts')
    symlinkSync(fileURLToPath(here), link)
    process.argv[1] = link
    expect(isEntry(here)).toBe(true)
    expect(isEntry('data:text/javascript,1')).toBe(false)
  })
})
