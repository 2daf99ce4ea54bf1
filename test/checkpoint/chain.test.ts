import { symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { findChain } from '../../src/checkpoint/chain.ts'
import { eventLine } from '../../src/checkpoint/format.ts'
import { makeEvent } from '../../src/events/make-event.ts'
import { SessionStarted } from '../../src/events/vocabulary.ts'
import { tempFolder } from './open-writer.ts'

function writeRecord(folder: string, name: string, resumedFrom?: string): string {
  const attributes = resumedFrom === undefined ? {} : { resumed_from: resumedFrom }
  const start = makeEvent(SessionStarted, { session_id: 's', backend: 'tutti', attributes })
  const path = join(folder, name)
  writeFileSync(path, eventLine(start, 'a'.repeat(32), 'b'.repeat(16)))
  return path
}

describe('the chain of files of a run', () => {
  it('chain: previous files are found beside the file, the oldest first', async () => {
    const folder = tempFolder()
    const files = [
      writeRecord(folder, 'a.jsonl'),
      writeRecord(folder, 'b.jsonl', 'a.jsonl'),
      writeRecord(folder, 'c.jsonl', 'b.jsonl'),
    ]
    expect(await findChain(files[2] ?? '')).toEqual({ files, missing: null })
    expect(await findChain(files[0] ?? '')).toEqual({ files: files.slice(0, 1), missing: null })
    const link = join(tempFolder(), 'link.jsonl')
    symlinkSync(files[1] ?? '', link)
    expect(await findChain(link)).toEqual({ files: files.slice(0, 2), missing: null })
  })

  it('chain: a previous file that is not there is named', async () => {
    const folder = tempFolder()
    const file = writeRecord(folder, 'b.jsonl', 'a.jsonl')
    expect(await findChain(file)).toEqual({ files: [file], missing: 'a.jsonl' })
    const outside = writeRecord(folder, 'c.jsonl', '../b.jsonl')
    expect(await findChain(outside)).toEqual({ files: [outside], missing: '../b.jsonl' })
  })

  it('chain: files in a ring and a file that is not there are errors', async () => {
    const folder = tempFolder()
    const file = writeRecord(folder, 'a.jsonl', 'b.jsonl')
    writeRecord(folder, 'b.jsonl', 'a.jsonl')
    await expect(findChain(file)).rejects.toThrow('says that it continues itself')
    await expect(findChain(join(folder, 'x.jsonl'))).rejects.toThrow('Cannot read the record')
  })

  it('chain: a record without its first line has no previous file', async () => {
    const file = join(tempFolder(), 'torn.jsonl')
    writeFileSync(file, '{"section":"event","even')
    expect(await findChain(file)).toEqual({ files: [file], missing: null })
  })
})
