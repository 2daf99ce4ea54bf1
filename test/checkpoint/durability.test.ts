import { describe, expect, it } from 'vitest'
import { CheckpointError } from '../../src/foundation/errors.ts'
import { FakeDisk } from './fake-disk.ts'
import { openWriter } from './open-writer.ts'

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve))

describe('row 54: power loss', () => {
  it('row 54: durability `os` syncs nothing', async () => {
    const files = new FakeDisk()
    const { writer } = openWriter({ files })
    writer.append('a\n')
    await writer.flush()
    await writer.close()
    expect(files.syncsStarted).toBe(0)
  })

  it('row 54: a flushed line survives by a sync that began after its write', async () => {
    const files = new FakeDisk()
    files.holdSyncs = true
    const { writer, clock } = openWriter({ files, durability: 'fsync' })
    writer.append('a\n')
    writer.write()
    expect(files.syncsStarted).toBe(1)
    writer.append('b\n')
    let isFlushed = false
    const flushed = writer.flush().then(() => (isFlushed = true))
    expect(files.syncsStarted).toBe(1)
    files.finishSync()
    await turn()
    // The first sync began before the second line was written, so it does not cover it.
    expect([isFlushed, files.durableText, files.syncsStarted]).toEqual([false, 'a\n', 2])
    files.finishSync()
    await flushed
    expect(files.durableText).toBe('a\nb\n')
    expect([files.syncsStarted, files.maxSyncsUnderWay, clock.pendingTimers]).toEqual([2, 1, 0])
    files.holdSyncs = false
    await writer.close()
    expect(files.syncsStarted).toBe(2)
  })

  it('row 54: many writes and flushes share few syncs, one at a time', async () => {
    const files = new FakeDisk()
    files.holdSyncs = true
    const { writer } = openWriter({ files, durability: 'fsync' })
    const flushes: Promise<void>[] = []
    for (let count = 0; count < 100; count++) {
      writer.append(`${count}\n`)
      flushes.push(writer.flush())
    }
    files.finishSync()
    await turn()
    files.finishSync()
    await Promise.all(flushes)
    expect([files.syncsStarted, files.maxSyncsUnderWay]).toEqual([2, 1])
    files.holdSyncs = false
    await writer.close()
  })

  it('row 54: lines written during a sync get a further sync, without a flush', async () => {
    const files = new FakeDisk()
    files.holdSyncs = true
    const { writer } = openWriter({ files, durability: 'fsync' })
    for (const text of ['a', 'b', 'c']) {
      writer.append(`${text}\n`)
      writer.write()
    }
    expect(files.syncsStarted).toBe(1)
    files.finishSync()
    await turn()
    expect(files.syncsStarted).toBe(2)
    files.finishSync()
    await turn()
    expect([files.syncsStarted, files.durableText]).toEqual([2, 'a\nb\nc\n'])
    files.holdSyncs = false
    await writer.close()
  })

  it('row 54: a write is followed by a sync without a flush; close waits for it', async () => {
    const files = new FakeDisk()
    files.holdSyncs = true
    const { writer } = openWriter({ files, durability: 'fsync' })
    writer.append('a\n')
    writer.write()
    expect(files.syncsUnderWay).toBe(1)
    writer.append('b\n')
    let isClosed = false
    const closed = writer.close().then(() => (isClosed = true))
    files.finishSync()
    await turn()
    expect([isClosed, files.isOpen, files.syncsStarted]).toEqual([false, true, 2])
    files.finishSync()
    await closed
    expect([files.durableText, files.isOpen]).toEqual(['a\nb\n', false])
  })

  it('row 54: after a failed sync every flush rejects and the log says so once', async () => {
    const files = new FakeDisk()
    const { writer, warnings } = openWriter({ files, durability: 'fsync' })
    const answers = ['EIO', 'EIO']
    files.syncAnswer = () => answers.shift()
    for (const text of ['a', 'b', 'c']) {
      writer.append(`${text}\n`)
      const failed = writer.flush()
      await expect(failed).rejects.toBeInstanceOf(CheckpointError)
      await expect(failed).rejects.toMatchObject({ errno: 'EIO', path: writer.path })
    }
    expect(files.syncsStarted).toBe(3)
    await writer.close()
    expect(warnings).toEqual(['CheckpointSyncFailed'])
  })

  it('row 54: flushes with fsync succeed on a real file', async () => {
    const { writer, warnings } = openWriter({ durability: 'fsync' })
    for (let count = 0; count < 10; count++) {
      writer.append(`${count}\n`)
      await writer.flush()
    }
    await writer.close()
    expect([writer.linesWritten, warnings]).toEqual([10, []])
  })
})
