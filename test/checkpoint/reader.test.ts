import { appendFileSync, readdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { metricLine, type CheckpointLine } from '../../src/checkpoint/format.ts'
import { readBatches, readCheckpoint } from '../../src/checkpoint/reader.ts'
import { CheckpointError } from '../../src/foundation/errors.ts'
import { tempFolder } from './open-writer.ts'
import { fieldOf, metric, readContent, readFile, span, taskCreated } from './read-content.ts'

const openFiles = (): number => readdirSync('/proc/self/fd').length

describe('row 55: any content of a file', () => {
  it('row 55: events, metrics and spans are read as they were written', async () => {
    const lines = [taskCreated('t'), metric(1), span]
    const { lines: read, summary } = await readContent(lines.join(''))
    expect(read).toEqual(lines.map((line) => JSON.parse(line)))
    const bytes = lines.join('').length
    expect(summary).toEqual({
      lines: 3,
      bad: 0,
      unknown: 0,
      torn: null,
      bytes,
      end: { line: 4, offset: bytes },
    })
  })

  it('row 55: an empty file, empty lines, a byte order mark and CRLF are accepted', async () => {
    for (const [content, lines] of [
      ['', 0],
      ['\n', 0],
      ['\r\n\n  \n', 0],
      ['\uFEFF', 0],
      [`\uFEFF${metric(1)}`, 1],
      [`${metric(1).trim()}\r\n\r\n${metric(2).trim()}\r\n`, 2],
      [`${metric(1)}\r`, 1],
    ] as const) {
      const { summary } = await readContent(content)
      expect(summary).toMatchObject({ lines, bad: 0, unknown: 0, torn: null })
    }
  })

  it('row 55: an event without one of its fields, or with a wrong one, is a bad line', async () => {
    const event = JSON.parse(taskCreated('t')) as Record<string, unknown>
    const numbers = ['event_time', 'emit_time']
    const texts = ['event_id', 'event_type', 'session_id', 'backend', 'task_id', 'node_id']
    for (const field of [...numbers, ...texts, 'attributes']) {
      const { [field]: _, ...without } = event
      for (const [line, what] of [
        [without, 'without'],
        [{ ...event, [field]: numbers.includes(field) ? '1' : 1 }, 'with a wrong'],
        [{ ...event, [field]: [] }, 'with a wrong'],
      ] as const) {
        const bad: string[] = []
        const path = join(tempFolder(), 'a.jsonl')
        writeFileSync(path, `${JSON.stringify(line)}\n${taskCreated('t')}`)
        const onBadLine = ({ reason }: { readonly reason: string }) => bad.push(reason)
        let good = 0
        for await (const batch of readBatches(path, { onBadLine })) good += batch.length
        expect(good).toBe(1)
        expect(bad).toEqual([`event line ${what} \`${field}\``])
      }
    }
  })

  it('row 55: bad lines are counted with number and offset, the others are read', async () => {
    const event = JSON.parse(taskCreated('t'))
    const { event_time: _, ...timeless } = event
    const parts: [string, RegExp | null][] = [
      [metric(1), null],
      ['{"section":"metric","che€\n', /^invalid JSON$/],
      ['\n', null],
      ['\0\0\0\n', /^NUL bytes$/],
      ['[1]\n', /^not a JSON object$/],
      ['null\n', /^not a JSON object$/],
      ['{"section":7}\n', /^no `section`$/],
      ['{"section":"metric"}\n', /^metric line without `checkpoint_time`$/],
      [`${JSON.stringify(timeless)}\n`, /^event line without `event_time`$/],
      [`${JSON.stringify({ ...event, attributes: [] })}\n`, /with a wrong `attributes`$/],
      [`${JSON.stringify({ ...event, event_type: 5 })}\n`, /with a wrong `event_type`$/],
      [span.replace('"time":1.5,', ''), /^span line with a wrong `events`$/],
      ['\uFEFF{}\n', /^invalid JSON$/],
      [metric(2), null],
    ]
    const expected: object[] = []
    let offset = 0
    for (const [at, [text, reason]] of parts.entries()) {
      if (reason !== null) {
        expected.push({ line: at + 1, offset, reason: expect.stringMatching(reason) })
      }
      offset += Buffer.byteLength(text)
    }
    const { bad, lines, summary } = await readContent(parts.map(([text]) => text).join(''))
    expect(bad).toEqual(expected)
    expect(lines.map((line) => fieldOf(line, 'value'))).toEqual([1, 2])
    expect(summary).toMatchObject({ lines: 2, bad: expected.length, torn: null, bytes: offset })
  })

  it('row 55: unknown sections are counted, unknown types and fields are kept', async () => {
    const future = { ...JSON.parse(taskCreated('t')), event_type: 'TaskDreamt', colour: { x: 1 } }
    const content = `{"section":"log","text":"x"}\n${JSON.stringify(future)}\n`
    const { lines, summary } = await readContent(content)
    expect(lines).toEqual([future])
    expect(summary).toMatchObject({ lines: 1, bad: 0, unknown: 1 })
  })

  it('row 55: an event without span ids is read with empty ids', async () => {
    const { trace_id: _, name: __, ...event } = JSON.parse(taskCreated('t'))
    const { lines } = await readContent(`${JSON.stringify({ ...event, span_id: null })}\n`)
    expect(lines).toEqual([{ ...event, trace_id: '', span_id: '', name: 'TaskCreated' }])
  })

  it('row 55: a last line without newline is read when complete, else torn', async () => {
    const complete = await readContent(metric(1) + metric(2).trim())
    expect(complete.summary).toMatchObject({ lines: 2, bad: 0, torn: null })
    const torn = await readContent(metric(1) + metric(2).slice(0, -3))
    const place = { line: 2, offset: metric(1).length }
    expect(torn.summary).toMatchObject({
      lines: 1,
      bad: 0,
      torn: { ...place, reason: 'invalid JSON' },
    })
    expect(torn.bad).toEqual([])
    const invalid = await readContent('{"section":"metric"}')
    expect(invalid.summary).toMatchObject({ lines: 0, bad: 1, torn: null })
  })

  it('row 55: a line above the limit is skipped, whatever the block size', async () => {
    const long = metricLine(1, { value: 1, ['x'.repeat(600_000)]: 0 })
    const { lines, bad, summary } = await readContent(metric(1) + long + metric(2) + long.trim(), {
      maxLineBytes: 1000,
    })
    const reason = 'longer than `maxLineBytes`'
    expect(lines.map((line) => fieldOf(line, 'value'))).toEqual([1, 2])
    expect(bad).toEqual([{ line: 2, offset: metric(1).length, reason }])
    expect(summary.torn).toMatchObject({ line: 4, reason })
    expect((await readContent(metric(1) + long + metric(2))).summary.lines).toBe(3)
  })
})

describe('text in a checkpoint file', () => {
  it('row 58: invalid UTF-8 is replaced and does not affect other lines', async () => {
    const [head, tail] = metricLine(1, { é: 1 }).split('é')
    const content = Buffer.concat([
      Buffer.from(head ?? ''),
      Buffer.from([0xff, 0xc3]),
      Buffer.from(tail ?? ''),
      Buffer.from(metric(2)),
    ])
    const { lines, summary } = await readContent(content)
    expect(lines[0]).toHaveProperty('\uFFFD\uFFFD', 1)
    expect(summary).toMatchObject({ lines: 2, bad: 0 })
  })
})

describe('reading', () => {
  it('reader: a file that cannot be read rejects with path and errno', async () => {
    const folder = tempFolder()
    for (const [path, errno] of [
      [join(folder, 'missing'), 'ENOENT'],
      [folder, 'EISDIR'],
    ] as const) {
      const failed = readFile(path)
      await expect(failed).rejects.toBeInstanceOf(CheckpointError)
      await expect(failed).rejects.toMatchObject({ path, errno, hint: expect.any(String) })
    }
  })

  it('reader: the file is closed after the end, a break and an abort', async () => {
    const path = join(tempFolder(), 'x.telemetry.jsonl')
    for (let count = 0; count < 2000; count++) appendFileSync(path, metric(count).repeat(10))
    const before = openFiles()
    for await (const line of readCheckpoint(path)) if (fieldOf(line, 'value') === 3) break
    for await (const batch of readBatches(path)) if (batch.length > 0) break
    const controller = new AbortController()
    const reading = readCheckpoint(path, { signal: controller.signal })
    await reading.next()
    controller.abort(new Error('enough'))
    const rest = async (): Promise<void> => {
      for await (const line of reading) expect(line.section).toBe('metric')
    }
    await expect(rest()).rejects.toThrow('enough')
    expect((await readFile(path)).summary.lines).toBe(20_000)
    expect(openFiles()).toBe(before)
  })

  it('reader: batches hold the same lines', async () => {
    const path = join(tempFolder(), 'x.telemetry.jsonl')
    writeFileSync(path, Array.from({ length: 20_000 }, (_, value) => metric(value)).join(''))
    const batches: (readonly CheckpointLine[])[] = []
    for await (const batch of readBatches(path)) batches.push(batch)
    expect(batches.length).toBeGreaterThan(1)
    expect(batches.flat()).toEqual((await readFile(path)).lines)
  })
})
