import { readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { CheckpointError } from '../../src/foundation/errors.ts'
import { FakeDisk, fullDevice, type WriteResult } from './fake-disk.ts'
import { openWriter, wholeLines } from './open-writer.ts'

const fail = (): never => {
  throw new Error('mine')
}

describe('row 48: a full disk', () => {
  it('row 48: on /dev/full lines are kept in memory and written after recovery', async () => {
    const files = fullDevice()
    const { writer, clock, reports, warnings } = openWriter({ files })
    for (const text of ['a', 'b', 'c']) {
      writer.append(`${text}\n`)
      writer.write()
    }
    const flushed = writer.flush()
    await expect(flushed).rejects.toBeInstanceOf(CheckpointError)
    await expect(flushed).rejects.toMatchObject({ errno: 'ENOSPC', path: writer.path })
    await clock.advance(2_000)
    expect(reports).toEqual(['degraded ENOSPC 1'])
    expect(warnings).toEqual(['CheckpointDegraded'])
    expect([writer.linesPending, writer.linesWritten, writer.linesLost]).toEqual([3, 0, 0])
    files.isFull = false
    await clock.advance(500)
    expect(reports).toEqual(['degraded ENOSPC 1', 'recovered 0'])
    expect(readFileSync(writer.path, 'utf8')).toBe('a\nb\nc\n')
    await writer.flush()
    expect(clock.pendingTimers).toBe(0)
    await writer.close()
    expect(warnings).toEqual(['CheckpointDegraded'])
  })

  it('row 48: beyond the limit the oldest lines are dropped and counted exactly', async () => {
    const files = new FakeDisk()
    const { writer, clock, reports } = openWriter({ files, maxPendingLines: 3 })
    for (const start of [0, 10]) {
      files.answer = () => 'ENOSPC'
      for (let at = start; at < start + 10; at++) {
        writer.append(`${at}\n`)
        writer.write()
        if (at === start + 6) await clock.advance(1_000)
      }
      expect(writer.linesPending).toBe(3)
      files.answer = () => Infinity
      await clock.advance(500)
    }
    expect(wholeLines(files.text)).toEqual(['7', '8', '9', '17', '18', '19'])
    expect(writer.linesLost).toBe(14)
    expect(reports).toEqual([
      'degraded ENOSPC 1',
      'recovered 7',
      'degraded ENOSPC 1',
      'recovered 7',
    ])
    await expect(writer.flush()).rejects.toThrow('14 are lost')
    await writer.close()
  })

  it('row 48: flush rejects once for lost lines, then resolves for later ones', async () => {
    const files = new FakeDisk()
    const { writer, clock } = openWriter({ files, maxPendingLines: 1 })
    files.answer = () => 'ENOSPC'
    writer.append('1\n')
    writer.write()
    writer.append('2\n')
    // As long as a line waits for the disk, every flush rejects.
    await expect(writer.flush()).rejects.toThrow('1 lines are not on file yet and 1 are lost')
    await expect(writer.flush()).rejects.toThrow('1 lines are not on file yet and 1 are lost')
    files.answer = () => Infinity
    await clock.advance(500)
    await expect(writer.flush()).rejects.toThrow('0 lines are not on file yet and 1 are lost')
    writer.append('3\n')
    await writer.flush()
    expect([wholeLines(files.text), writer.linesLost]).toEqual([['2', '3'], 1])
    await writer.close()
  })

  it('row 48: kept lines are limited by number and by bytes, by default too', async () => {
    const files = new FakeDisk()
    files.answer = () => 'EIO'
    const { writer } = openWriter({ files })
    const line = `${'x'.repeat(2 ** 20 - 1)}\n`
    for (let count = 0; count < 40; count++) writer.append(line)
    // A ring of 8 MiB holds seven such lines, because each has a head.
    expect([writer.linesPending, writer.linesLost]).toEqual([7, 33])
    for (let count = 0; count < 60_000; count++) writer.append('y\n')
    expect(writer.linesPending + writer.linesLost).toBe(60_040)
    expect(writer.linesPending).toBe(50_000)
    await writer.close()
  })

  it('row 48: writes are retried at most every 500 ms, however many lines come', async () => {
    const files = new FakeDisk()
    let attempts = 0
    files.answer = () => {
      attempts++
      return 'ENOSPC'
    }
    const { writer, clock } = openWriter({ files })
    for (let ms = 0; ms < 2_000; ms += 10) {
      writer.append('x\n')
      writer.write()
      await clock.advance(10)
    }
    expect(attempts).toBe(5)
    await writer.close()
  })

  it('row 48: a retry that fails after some bytes reports no second degradation', async () => {
    const files = new FakeDisk()
    const { writer, clock, reports } = openWriter({ files })
    const answers: WriteResult[] = ['ENOSPC', 2, 'ENOSPC', Infinity]
    files.answer = () => answers.shift() ?? Infinity
    writer.append('one\n')
    writer.append('two\n')
    writer.write()
    await clock.advance(500)
    expect(files.text).toBe('on')
    await clock.advance(500)
    expect(files.text).toBe('one\ntwo\n')
    expect(reports).toEqual(['degraded ENOSPC 2', 'recovered 0'])
    await writer.close()
  })

  it('row 48: lines that callbacks append are written in order, after the callback', async () => {
    const files = new FakeDisk()
    let wroteInside = 0
    const append = (line: string): void => {
      const before = files.writes.length
      writer.append(line)
      writer.write()
      wroteInside += files.writes.length - before
    }
    const { writer, clock, reports } = openWriter({
      files,
      onDegraded: ({ errno }) => append(`degraded ${errno}\n`),
      onRecovered: ({ lost }) => append(`recovered ${lost}\n`),
    })
    files.answer = () => 'EDQUOT'
    writer.append('a\n')
    writer.write()
    writer.append('b\n')
    files.answer = () => Infinity
    await clock.advance(500)
    expect(files.text).toBe('a\ndegraded EDQUOT\nb\nrecovered 0\n')
    expect(reports).toEqual(['degraded EDQUOT 1', 'recovered 0'])
    expect([writer.linesPending, writer.linesWritten, wroteInside]).toEqual([0, 4, 0])
    await writer.close()
  })

  it('row 48: errors of callbacks and of the log do not affect writing', async () => {
    const files = new FakeDisk()
    const { writer, clock } = openWriter({
      files,
      log: { warn: fail },
      onDegraded: fail,
      onRecovered: fail,
    })
    files.answer = () => 'ENOSPC'
    writer.append('a\n')
    writer.write()
    files.answer = () => Infinity
    await clock.advance(500)
    await writer.flush()
    expect(files.text).toBe('a\n')
    await writer.close()
  })

  it('row 48: close tries a last time and logs the exact number of lost lines', async () => {
    const files = new FakeDisk()
    const texts: string[] = []
    const log = { warn: (_code: string, text: string) => void texts.push(text) }
    const { writer } = openWriter({ files, log })
    const answers: WriteResult[] = [3]
    files.answer = () => answers.shift() ?? 'ENOSPC'
    for (const text of ['a', 'b', 'c', 'd']) writer.append(`${text}\n`)
    await writer.close()
    expect(files.text).toBe('a\nb')
    expect([writer.linesWritten, writer.linesLost, writer.linesPending]).toEqual([1, 3, 0])
    expect(texts.at(-1)).toContain('3 lines of the record')
    expect(files.isOpen).toBe(false)
  })
})

describe('row 49: short writes', () => {
  it('row 49: short writes, EINTR and EAGAIN are completed without a report', async () => {
    const files = new FakeDisk()
    const { writer, reports } = openWriter({ files })
    const answers: WriteResult[] = ['EINTR', 1, 'EAGAIN', 'EAGAIN', 0, 2, 3, 'EINTR']
    files.answer = () => answers.shift() ?? Infinity
    writer.append('{"text":"ünï€😀"}\n')
    writer.append('{"text":"b"}\n')
    await writer.flush()
    expect(files.text).toBe('{"text":"ünï€😀"}\n{"text":"b"}\n')
    expect(reports).toEqual([])
    await writer.close()
  })

  it('row 49: endless EAGAIN is reported as a failure and does not loop', async () => {
    const files = new FakeDisk()
    const { writer, reports } = openWriter({ files })
    files.answer = () => 'EAGAIN'
    writer.append('a\n')
    writer.write()
    expect(reports).toEqual(['degraded EAGAIN 1'])
    await writer.close()
  })

  it('row 49: the rest of a half-written line is never dropped', async () => {
    const files = new FakeDisk()
    const { writer, clock } = openWriter({ files, maxPendingLines: 2 })
    const answers: WriteResult[] = [5]
    files.answer = () => answers.shift() ?? 'EFBIG'
    for (const text of ['1st', '2nd', '3rd', '4th', '5th']) writer.append(`${text}\n`)
    writer.write()
    expect(files.text).toBe('1st\n2')
    for (const text of ['6th', '7th']) writer.append(`${text}\n`)
    files.answer = () => Infinity
    await clock.advance(500)
    expect(wholeLines(files.text)).toEqual(['1st', '2nd', '7th'])
    expect(writer.linesLost).toBe(4)
    await writer.close()
  })
})
