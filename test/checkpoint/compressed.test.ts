import {
  appendFileSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  truncateSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createZstdCompress, zstdCompressSync } from 'node:zlib'
import { afterAll, describe, expect, it } from 'vitest'
import { compressRecord } from '../../src/checkpoint/compressed.ts'
import { type BadLine, readBatches, readCheckpoint } from '../../src/checkpoint/reader.ts'
import { repairRecord } from '../../src/checkpoint/repair.ts'
import { readViews } from '../../src/record/record-views.ts'

const folder = mkdtempSync(join(tmpdir(), 'tutti-zst-'))
afterAll(() => rmSync(folder, { recursive: true }))

const line = (at: number): string =>
  `${JSON.stringify({
    section: 'event',
    event_id: String(at),
    event_type: at === 0 ? 'SessionStarted' : 'TaskCreated',
    event_time: at,
    emit_time: at,
    session_id: 's',
    backend: 'local',
    task_id: at === 0 ? null : `t${at}`,
    node_id: null,
    attributes: { padding: 'x'.repeat(at % 50) },
  })}\n`
const lines = Array.from({ length: 60 }, (_, at) => line(at))
const content = lines.join('')

let count = 0
function record(text: string): string {
  const path = join(folder, `s.${count++}.telemetry.jsonl`)
  writeFileSync(path, text)
  return path
}

async function read(path: string, from?: { line: number; offset: number }) {
  const bad: BadLine[] = []
  const ids: string[] = []
  const options = { onBadLine: (one: BadLine) => bad.push(one), ...(from && { from }) }
  const batches = readBatches(path, options)
  for (;;) {
    const batch = await batches.next()
    if (batch.done === true) return { ids, bad, summary: batch.value }
    for (const one of batch.value) ids.push(String(one['event_id' as keyof typeof one]))
  }
}

const idOf = (text: string): string => (JSON.parse(text) as { event_id: string }).event_id
const allIds = lines.map((_, at) => String(at))

describe('a compressed record', () => {
  it('a compressed record has several frames, and all of them are read', async () => {
    const path = record(content)
    const made = await compressRecord(path, { frameBytes: Math.ceil(content.length / 3) })
    expect(made).toMatchObject({ path: `${path}.zst`, originalBytes: content.length })
    expect(made.frames).toBe(3)
    const { ids, bad, summary } = await read(made.path)
    expect([ids, bad]).toEqual([allIds, []])
    const plain = await read(path)
    expect(summary).toEqual(plain.summary)
    expect(readFileSync(made.path)).toHaveLength(made.bytes)
  })

  it('a compressed record is read on from any earlier position, in any of its frames', async () => {
    const { path } = await compressRecord(record(content), { frameBytes: 2000 })
    let offset = 0
    for (const at of [0, 1, 20, 40, 59]) {
      offset = Buffer.byteLength(lines.slice(0, at).join(''))
      const { ids } = await read(path, { line: at + 1, offset })
      expect(ids).toEqual(allIds.slice(at))
    }
    expect(offset).toBeGreaterThan(4000)
  })

  it('a compressed record is read completely when another program wrote its frames', async () => {
    const third = Math.ceil(content.length / 3)
    const parts = [0, 1, 2].map((at) => content.slice(at * third, (at + 1) * third))
    const path = `${record('')}.zst`
    writeFileSync(path, Buffer.concat(parts.map((part) => zstdCompressSync(part))))
    expect((await read(path)).ids).toEqual(allIds)
    const streamed = `${record('')}.zst`
    for (const part of parts) {
      // A stream does not know its length, so the head of its frame does not contain it.
      const stream = createZstdCompress()
      stream.end(part)
      for await (const chunk of stream) appendFileSync(streamed, chunk as Buffer)
    }
    expect((await read(streamed)).ids).toEqual(allIds)
  })

  it('row 55: a compressed record loses a damaged frame and keeps the others', async () => {
    const { path } = await compressRecord(record(content), { frameBytes: 3000 })
    const bytes = readFileSync(path)
    const { ids: before } = await read(path)
    // In the content of the second frame: its head is left as it is.
    const second = bytes.indexOf(Buffer.from([0x28, 0xb5, 0x2f, 0xfd]), 4)
    bytes.fill(0xff, second + 40, second + 60)
    writeFileSync(path, bytes)
    const { ids, bad } = await read(path)
    expect(bad).toHaveLength(1)
    expect(bad[0]?.reason).toContain('a compressed frame cannot be read')
    expect(ids[0]).toBe('0')
    expect(ids.at(-1)).toBe('59')
    expect(ids.length).toBeLessThan(before.length)
  })

  const places = [
    ['the magic number', 0],
    ['the descriptor', 4],
    ['the head of its first block', 9],
  ] as const
  it.each(places)('row 55: one wrong byte in %s of a frame loses that frame', async (_, place) => {
    const { path } = await compressRecord(record(content), { frameBytes: 3000 })
    const bytes = readFileSync(path)
    const magic = Buffer.from([0x28, 0xb5, 0x2f, 0xfd])
    const second = bytes.indexOf(magic, 4)
    const third = bytes.indexOf(magic, second + 4)
    expect(third).toBeGreaterThan(second)
    bytes[second + place] = (bytes[second + place] ?? 0) ^ 0xff
    writeFileSync(path, bytes)
    const { ids, bad, summary } = await read(path)
    expect(bad).toHaveLength(1)
    const missing = Number(
      /; (\d+) bytes of the record are missing/.exec(bad[0]?.reason ?? '')?.[1],
    )
    const at = bad[0]?.offset ?? 0
    // The missing range is known to the byte, and the lines after it keep their offsets.
    const kept = content.slice(0, at) + content.slice(at + missing)
    expect(ids).toEqual(kept.trimEnd().split('\n').map(idOf))
    expect(summary.end.offset).toBe(content.length)
    const repaired = await repairRecord(path)
    expect(repaired).toMatchObject({ kept: ids.length, dropped: 1 })
    expect(repaired.problems).toEqual(bad)
  })

  it('a compressed record is torn when it was cut within a frame', async () => {
    const { path } = await compressRecord(record(content), { frameBytes: 3000 })
    const bytes = readFileSync(path)
    const second = bytes.indexOf(Buffer.from([0x28, 0xb5, 0x2f, 0xfd]), 4)
    truncateSync(path, second + 30)
    const { ids, bad, summary } = await read(path)
    expect(bad).toEqual([])
    expect(summary.torn?.reason).toContain('ends within a frame')
    expect(ids).toEqual(allIds.slice(0, ids.length))
    expect(ids.length).toBeGreaterThan(0)
  })

  it('a compressed record counts as one bad line when it is no zstd at all', async () => {
    const path = `${record('')}.zst`
    writeFileSync(path, 'something else altogether')
    const { ids, bad } = await read(path)
    expect([ids, bad.length]).toEqual([[], 1])
  })

  it('an empty record stays one', async () => {
    const { path, frames } = await compressRecord(record(''))
    expect(frames).toBe(0)
    expect((await read(path)).ids).toEqual([])
  })

  it('a compressed record has the same views as the record, also from a snapshot', async () => {
    const path = record(content)
    const { path: packed } = await compressRecord(path, { frameBytes: 3000 })
    const plain = await readViews(path, { snapshot: 'ignore' })
    const first = await readViews(packed, { snapshot: 'write' })
    const again = await readViews(packed, { snapshot: 'use' })
    expect(again.bytesRead).toBe(0)
    for (const one of [first, again]) {
      expect(one.pass.counts.totals).toEqual(plain.pass.counts.totals)
      expect(one.lines).toBe(plain.lines)
    }
  })

  it('a compressed record is found as the previous file of a resumed run', async () => {
    const path = record(content)
    const { path: packed } = await compressRecord(path)
    rmSync(path)
    const attributes = { resumed_from: path.split('/').at(-1) }
    const started = { ...(JSON.parse(line(0)) as object), attributes }
    const next = record(`${JSON.stringify(started)}\n`)
    expect(await readViews(next)).toMatchObject({ missing: null, files: [packed, next] })
  })

  it('a compressed record also yields its lines one by one', async () => {
    const { path } = await compressRecord(record(content), { frameBytes: 3000 })
    const seen: unknown[] = []
    for await (const one of readCheckpoint(path)) seen.push(one.section)
    expect(seen).toHaveLength(60)
  })
})
