import fs, { existsSync, mkdirSync, statSync, symlinkSync, writeFileSync } from 'node:fs'
import { syncBuiltinESMExports } from 'node:module'
import { basename, join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import {
  createCheckpointFile,
  makeFolders,
  systemFiles,
  writeSome,
} from '../../src/checkpoint/files.ts'
import { startChild } from './child.ts'
import { FakeDisk } from './fake-disk.ts'
import { tempFolder } from './open-writer.ts'

/** `before` runs between the check for a folder and its creation. */
function interrupt(before: (path: string) => void): void {
  const real = fs.mkdirSync
  const restore = (): void => {
    fs.mkdirSync = real
    syncBuiltinESMExports()
  }
  onTestFinished(restore)
  fs.mkdirSync = ((path: string) => {
    before(path)
    return real(path)
  }) as typeof real
  syncBuiltinESMExports()
}

describe('makeFolders', () => {
  it.each(['', 'a', 'a/b/c/d', 'link', 'link/a/b', 'a/../b/c'])(
    'makeFolders: creates "%s" with its parents',
    (name) => {
      const folder = tempFolder()
      mkdirSync(join(folder, 'real'))
      symlinkSync('real', join(folder, 'link'))
      const path = `${folder}/${name}`
      makeFolders(path)
      expect(statSync(path).isDirectory()).toBe(true)
      makeFolders(path)
    },
  )

  it.each([
    ['file', 'EEXIST'],
    ['file/a', 'ENOTDIR'],
    ['file/a/b', 'ENOTDIR'],
    ['dangling', 'EEXIST'],
    ['dangling/a', 'EEXIST'],
    ['loop/a', 'ELOOP'],
  ])('makeFolders cannot make "%s": %s', (name, code) => {
    const folder = tempFolder()
    writeFileSync(join(folder, 'file'), '')
    symlinkSync('nowhere', join(folder, 'dangling'))
    symlinkSync('loop', join(folder, 'loop'))
    expect(() => makeFolders(join(folder, name))).toThrow(expect.objectContaining({ code }))
  })

  it('makeFolders: accepts folders that another process creates meanwhile', () => {
    const folder = tempFolder()
    const path = join(folder, 'a', 'b', 'c')
    let made = 0
    const make = fs.mkdirSync
    interrupt((wanted) => {
      if (!existsSync(join(wanted, '..'))) return
      make(wanted)
      made++
    })
    makeFolders(path)
    expect(made).toBe(3)
    expect(statSync(path).isDirectory()).toBe(true)
  })

  it.runIf(existsSync('/proc/self'))(
    'makeFolders stops where a folder takes no other, as /proc',
    async () => {
      for (const folder of ['/proc/tutti', '/proc/tutti/a/b', '/proc/self/tutti/a']) {
        const reports: unknown = JSON.parse(await startChild('open-writer.ts', [folder]).nextLine())
        expect(reports).toEqual({ path: folder, errno: 'ENOENT', hint: expect.any(String) })
      }
    },
  )
})

it.each([0, 'EINTR', 'EAGAIN'])('writeSome: gives up after 100 writes that give %j', (answer) => {
  const disk = new FakeDisk()
  let writes = 0
  disk.answer = () => {
    writes++
    return answer
  }
  const slice = { bytes: Buffer.from('a'), offset: 0, length: 1 }
  expect(() => writeSome(disk, 1, slice)).toThrow(expect.objectContaining({ code: 'EAGAIN' }))
  expect(writes).toBe(100)
})

describe('createCheckpointFile', () => {
  const codeError = (code: string): Error => Object.assign(new Error(code), { code })

  it('createCheckpointFile numbers the files of one second, and opens none that exists', () => {
    const folder = tempFolder()
    const paths = [1, 2, 3].map(() => createCheckpointFile(systemFiles, folder, 'a', 7.9).path)
    expect(paths.map((path) => basename(path))).toEqual([
      'a.7.telemetry.jsonl',
      'a.7-2.telemetry.jsonl',
      'a.7-3.telemetry.jsonl',
    ])
  })

  it('createCheckpointFile gives up after 1000 names', () => {
    const tried: string[] = []
    const open = (path: string): never => {
      tried.push(basename(path))
      throw codeError('EEXIST')
    }
    const create = () => createCheckpointFile({ ...systemFiles, open }, '/folder', 'a', 7)
    expect(create).toThrow('Cannot open a record in /folder: 1000 names are taken')
    expect(tried.length).toBe(1000)
    expect(tried.at(-1)).toBe('a.7-1000.telemetry.jsonl')
  })

  it('createCheckpointFile tries no further name after another error', () => {
    let opened = 0
    const open = (): never => {
      opened++
      throw codeError('EACCES')
    }
    const create = () => createCheckpointFile({ ...systemFiles, open }, '/folder', 'a', 7)
    expect(create).toThrow(expect.objectContaining({ errno: 'EACCES' }))
    expect(opened).toBe(1)
  })
})
