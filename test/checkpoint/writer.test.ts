import { execFileSync } from 'node:child_process'
import { chmodSync, lstatSync, mkdirSync, readFileSync, readdirSync, rmSync } from 'node:fs'
import { symlinkSync, writeFileSync } from 'node:fs'
import { basename, join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { chunkBytes } from '../../src/checkpoint/writing/line-formatter.ts'
import { CheckpointError, ValueError } from '../../src/foundation/errors.ts'
import { FakeDisk } from './fake-disk.ts'
import { openWriter, tempFolder, thrownBy, wholeLines } from './open-writer.ts'

describe('the checkpoint file', () => {
  it('writer: the file is named after session and second, in a created folder', async () => {
    const folder = join(tempFolder(), 'a', 'b')
    const { writer, clock } = openWriter({ folder })
    expect(writer.path).toBe(join(folder, `session-1.${clock.now()}.telemetry.jsonl`))
    await writer.close()
    expect(readdirSync(folder)).toEqual([basename(writer.path)])
  })

  it('row 52: an existing file, link, FIFO or folder is kept; the next name is used', async () => {
    const folder = tempFolder()
    const elsewhere = join(tempFolder(), 'elsewhere')
    const at = (count: '' | `-${number}`): string =>
      join(folder, `session-1.1700000000${count}.telemetry.jsonl`)
    writeFileSync(at(''), 'old\n')
    symlinkSync(elsewhere, at('-2'))
    execFileSync('mkfifo', [at('-3')])
    mkdirSync(at('-4'))
    const { writer } = openWriter({ folder })
    expect(writer.path).toBe(at('-5'))
    writer.append('new\n')
    await writer.close()
    expect(readFileSync(at(''), 'utf8')).toBe('old\n')
    expect(readFileSync(writer.path, 'utf8')).toBe('new\n')
    expect(lstatSync(at('-2')).isSymbolicLink()).toBe(true)
    expect(() => lstatSync(elsewhere)).toThrow('ENOENT')
  })

  it('row 52: further runs within one second are numbered, not of a later second', async () => {
    const folder = tempFolder()
    const names: string[] = []
    for (let count = 0; count < 3; count++) {
      const { writer } = openWriter({ folder })
      names.push(basename(writer.path))
      await writer.close()
    }
    expect(names).toEqual([
      'session-1.1700000000.telemetry.jsonl',
      'session-1.1700000000-2.telemetry.jsonl',
      'session-1.1700000000-3.telemetry.jsonl',
    ])
  })

  it('writer: a session id that is not safe in a file name is rejected', () => {
    for (const sessionId of ['../../x', '/etc/x', '', '.', 'CON', 'a\0b', 'x'.repeat(129)]) {
      const folder = tempFolder()
      expect(thrownBy(() => openWriter({ folder, sessionId }))).toBeInstanceOf(ValueError)
      expect(readdirSync(folder)).toEqual([])
    }
  })
})

function expectFailure(folder: string, errno: RegExp): void {
  const error = thrownBy(() => openWriter({ folder }))
  expect(error).toBeInstanceOf(CheckpointError)
  if (!CheckpointError.isInstance(error)) return
  expect(error.errno).toMatch(errno)
  expect(error.path).toContain(folder)
  expect(error.hint).toMatch(/\w/)
}

describe('row 50: a folder that cannot be used fails at open', () => {
  it('row 50: a regular file as the folder, or above it, is an error', () => {
    const file = join(tempFolder(), 'file')
    writeFileSync(file, 'precious')
    expectFailure(file, /^EEXIST$/)
    expectFailure(join(file, 'below'), /^ENOTDIR$/)
    expect(readFileSync(file, 'utf8')).toBe('precious')
  })

  it('row 50: a FIFO as the folder is an error and does not block', () => {
    const fifo = join(tempFolder(), 'fifo')
    execFileSync('mkfifo', [fifo])
    expectFailure(fifo, /^EEXIST$/)
  })

  it('row 50: a folder without write permission is an error with a hint', () => {
    const folder = tempFolder()
    chmodSync(folder, 0o555)
    const isRoot = process.geteuid?.() === 0
    // Root may write everywhere, so the test runs as another user for a moment.
    if (isRoot) process.seteuid?.(65_534)
    try {
      expectFailure(folder, /^EACCES$/)
      expectFailure(join(folder, 'below'), /^EACCES$/)
    } finally {
      if (isRoot) process.seteuid?.(0)
    }
    expect(readdirSync(folder)).toEqual([])
  })

  it('row 50: a relative folder is an error when the working folder was removed', () => {
    const back = process.cwd()
    const gone = tempFolder()
    process.chdir(gone)
    rmSync(gone, { recursive: true })
    try {
      expectFailure('telemetry', /^ENOENT$/)
    } finally {
      process.chdir(back)
    }
  })

  it('row 50: a file that cannot be opened leaves no lock', () => {
    const folder = tempFolder()
    const files = new FakeDisk()
    files.open = () => {
      throw Object.assign(new Error('EMFILE: fake'), { code: 'EMFILE' })
    }
    expect(thrownBy(() => openWriter({ folder, files }))).toMatchObject({ errno: 'EMFILE' })
    expect(readdirSync(folder)).toEqual([])
  })
})

describe('writing', () => {
  it('writer: lines are buffered until write and can be read during the run', async () => {
    const { writer } = openWriter()
    writer.append('{"a":1}\n')
    expect(readFileSync(writer.path, 'utf8')).toBe('')
    expect([writer.linesPending, writer.linesWritten]).toEqual([1, 0])
    writer.write()
    expect(readFileSync(writer.path, 'utf8')).toBe('{"a":1}\n')
    expect([writer.linesPending, writer.linesWritten, writer.linesLost]).toEqual([0, 1, 0])
    await writer.close()
  })

  it('writer: a full chunk is written at once, in whole lines of at most 64 KiB', async () => {
    const files = new FakeDisk()
    const { writer } = openWriter({ files })
    const line = `${'x'.repeat(999)}\n`
    for (let count = 0; count < 200; count++) writer.append(line)
    expect(files.writes).toEqual([65_000, 65_000, 65_000])
    expect(writer.linesPending).toBe(5)
    await writer.flush()
    expect(files.text).toBe(line.repeat(200))
    await writer.close()
  })

  it('writer: only a line longer than a chunk is split', async () => {
    const files = new FakeDisk()
    const { writer } = openWriter({ files })
    const wide = `${'€'.repeat(9_999)}\n`
    const long = `${'€'.repeat(70_000)}\n`
    for (const line of [wide, wide, wide, wide, long, wide]) writer.append(line)
    await writer.flush()
    expect(files.text).toBe(wide.repeat(4) + long + wide)
    expect(Math.max(...files.writes)).toBeLessThanOrEqual(chunkBytes)
    expect(files.writes.slice(0, 2)).toEqual([2 * 29_998, 2 * 29_998])
    await writer.close()
  })

  it('writer: lines after close count as lost, and flush rejects', async () => {
    const { writer } = openWriter()
    await writer.close()
    writer.append('late\n')
    writer.write()
    expect(writer.linesLost).toBe(1)
    await expect(writer.flush()).rejects.toBeInstanceOf(CheckpointError)
    expect(readFileSync(writer.path, 'utf8')).toBe('')
  })
})

describe('writeAtExit', () => {
  it('row 111: a process that exits in a callback of a write has written every line', () => {
    const inFile: string[] = []
    const opened = openWriter({
      beforeWrite() {
        if (inFile.length > 0) return
        inFile.push('exiting')
        opened.writer.append('last\n')
        opened.writer.writeAtExit()
        inFile.push(...wholeLines(readFileSync(opened.writer.path, 'utf8')))
      },
    })
    opened.writer.append('first\n')
    opened.writer.write()
    expect(inFile).toEqual(['exiting', 'first', 'last'])
  })
})

describe('close', () => {
  it('writer: close writes the rest, returns one promise and releases the lock', async () => {
    const folder = tempFolder()
    const { writer, warnings } = openWriter({ folder })
    writer.append('last\n')
    const closing = writer.close()
    expect(writer.close()).toBe(closing)
    await closing
    expect(wholeLines(readFileSync(writer.path, 'utf8'))).toEqual(['last'])
    expect(readdirSync(folder)).toEqual([basename(writer.path)])
    expect(warnings).toEqual([])
  })

  it('writer: the file is closed once when a callback of the last write calls close', async () => {
    const files = new FakeDisk()
    const { writer, warnings, reports } = openWriter({
      files,
      onRecovered: () => void writer.close(),
    })
    files.answer = () => 'ENOSPC'
    writer.append('a\n')
    writer.write()
    files.answer = () => Infinity
    await writer.close()
    expect(reports).toEqual(['degraded ENOSPC 1', 'recovered 0'])
    expect(warnings).toEqual(['CheckpointDegraded'])
    expect([files.text, files.isOpen]).toEqual(['a\n', false])
  })
})
