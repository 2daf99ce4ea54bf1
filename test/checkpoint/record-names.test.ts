import { execFileSync } from 'node:child_process'
import { existsSync, mkdirSync, symlinkSync, utimesSync, writeFileSync } from 'node:fs'
import { basename, join } from 'node:path'
import { describe, expect, it } from 'vitest'
import {
  parseRecordPath,
  type RecordFile,
  recordNameOf,
  listRecords,
  removeRecord,
  sortNewestFirst,
} from '../../src/checkpoint/record-names.ts'
import { tempFolder } from './open-writer.ts'

const namesOf = (records: readonly RecordFile[]): string[] =>
  records.map(({ path }) => basename(path))

describe('the name of a record', () => {
  it('the name of a record gives its session, second, number and whether it is a copy', () => {
    const names = [
      'a.7.telemetry.jsonl',
      'a.b.7-3.telemetry.jsonl',
      'a.7.repaired.telemetry.jsonl',
      'a.7-2.telemetry.jsonl.zst',
      'a.7.repaired.telemetry.jsonl.zst',
    ]
    expect(names.map((name) => parseRecordPath(`/folder/${name}`))).toEqual([
      { path: `/folder/${names[0]}`, sessionId: 'a', seconds: 7, count: 1, copy: null },
      { path: `/folder/${names[1]}`, sessionId: 'a.b', seconds: 7, count: 3, copy: null },
      { path: `/folder/${names[2]}`, sessionId: 'a', seconds: 7, count: 1, copy: 'repaired' },
      { path: `/folder/${names[3]}`, sessionId: 'a', seconds: 7, count: 2, copy: 'compressed' },
      { path: `/folder/${names[4]}`, sessionId: 'a', seconds: 7, count: 1, copy: 'repaired' },
    ])
    expect(names.slice(2).map(recordNameOf)).toEqual([
      'a.7.telemetry.jsonl',
      'a.7-2.telemetry.jsonl',
      'a.7.telemetry.jsonl',
    ])
  })

  it.each(['a.telemetry.jsonl', '.7.telemetry.jsonl', 'a.7.jsonl', 'a.7.telemetry.jsonl.gz'])(
    'a record is not called %s',
    (name) => {
      expect(parseRecordPath(name)).toBeNull()
    },
  )
})

describe('the records of a folder', () => {
  it('the records of a folder are its regular files of that name, and links to such', () => {
    const folder = tempFolder()
    const at = (name: string): string => join(folder, `${name}.7.telemetry.jsonl`)
    writeFileSync(at('file'), '')
    writeFileSync(join(folder, 'other.txt'), '')
    mkdirSync(at('folder'))
    execFileSync('mkfifo', [at('pipe')])
    symlinkSync(at('file'), at('link'))
    symlinkSync(at('folder'), at('link-to-folder'))
    symlinkSync(at('nothing'), at('dangling'))
    const found = namesOf(listRecords(folder)).toSorted()
    expect(found).toEqual(['file.7.telemetry.jsonl', 'link.7.telemetry.jsonl'])
    expect(listRecords(join(folder, 'missing'))).toEqual([])
  })

  it('the records of a folder are sorted by second, then number, the copy to resume first', () => {
    const folder = tempFolder()
    const sorted = [
      'b.9.telemetry.jsonl',
      'a.8-10.telemetry.jsonl',
      'a.8-9.telemetry.jsonl',
      'a.8.repaired.telemetry.jsonl',
      'a.8.telemetry.jsonl',
      'a.8.telemetry.jsonl.zst',
    ]
    for (const name of sorted) writeFileSync(join(folder, name), '')
    const records = listRecords(folder)
    expect(namesOf(sortNewestFirst(records))).toEqual(sorted)
    expect(namesOf(sortNewestFirst(records.toReversed()))).toEqual(sorted)
  })

  it('records of other sessions in the same second are sorted by last change, then name', () => {
    const folder = tempFolder()
    const names = ['c', 'a', 'b', 'd'].map((session) => `${session}.7.telemetry.jsonl`)
    for (const [at, name] of names.entries()) {
      const path = join(folder, name)
      writeFileSync(path, '')
      // The last two changed at the same time.
      utimesSync(path, 0, 100 - Math.min(at, 2))
    }
    const gone = parseRecordPath(join(folder, 'e.7.telemetry.jsonl'))
    const records = [...listRecords(folder), ...(gone === null ? [] : [gone])]
    const sorted = [...names, 'e.7.telemetry.jsonl']
    expect(namesOf(sortNewestFirst(records))).toEqual(sorted)
    expect(namesOf(sortNewestFirst(records.toReversed()))).toEqual(sorted)
  })
})

describe('removing a record', () => {
  it('removal of a record removes its companion files too, and no other file', () => {
    const folder = tempFolder()
    const stem = join(folder, 'a.7')
    const endings = ['.telemetry.jsonl', '.results', '.run', '.txt']
    for (const ending of endings) writeFileSync(stem + ending, '')
    removeRecord(`${stem}.txt`)
    expect(endings.map((ending) => existsSync(stem + ending))).toEqual([true, true, true, true])
    removeRecord(`${stem}.telemetry.jsonl`)
    expect(endings.map((ending) => existsSync(stem + ending))).toEqual([false, false, false, true])
    removeRecord(`${stem}.telemetry.jsonl`)
  })
})
