import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { systemFiles } from '../../src/checkpoint/files.ts'
import {
  computeDigest,
  ResultsFile,
  resultsHead,
  resultsPathOf,
} from '../../src/checkpoint/results-file.ts'
import { ResultsReader, type ValueLocation } from '../../src/checkpoint/results-reader.ts'
import { deserializeValue, serializeValue } from '../../src/checkpoint/kept-value.ts'
import { assertProperty } from '../property.ts'
import { fullDevice } from './fake-disk.ts'
import { tempFolder } from './open-writer.ts'

interface OpenOptions {
  readonly maxBytes?: number
  readonly files?: typeof systemFiles
}

function openResults({ maxBytes = 2 ** 26, files = systemFiles }: OpenOptions = {}) {
  const record = join(tempFolder(), 's.1.telemetry.jsonl')
  const warnings: string[] = []
  const log = { warn: (code: string) => void warnings.push(code) }
  const file = new ResultsFile({ record, id: 'this', files, log, maxBytes, durability: 'os' })
  return { file, record, warnings }
}

function argumentsOf(..._values: readonly number[]): unknown {
  // oxlint-disable-next-line prefer-rest-params -- the object itself is wanted
  return arguments
}

/** All values that are found, by uid. */
function readAll(record: string): Map<string, unknown> {
  using reader = ResultsReader.open(record, 'this')
  const values = new Map<string, unknown>()
  if (reader === null) return values
  const found = new Map<string, ValueLocation>()
  for (const _ of reader.locateValues((uid, at) => found.set(uid, at))) continue
  for (const [uid, at] of found) values.set(uid, reader.read(at)?.value)
  return values
}

describe('the file of results', () => {
  it('results: values of any size come back equal, in frames of any size', async () => {
    const { file, record } = openResults()
    const large = Buffer.alloc(3_000_000, 7)
    const values = new Map<string, unknown>([
      ['a', { text: 'ä', list: [1, -0, Number.NaN, undefined, 10n] }],
      ['large', large],
      ['b', new Map([['k', new Set([new Date(3)])]])],
      ['c', new Float64Array([1.5, 2.5])],
    ])
    for (const [uid, value] of values) {
      file.append(uid, value)
      if (uid === 'a') file.write()
    }
    for (let at = 0; at < 5000; at++) file.append(`n-${at}`, { at, text: 'x'.repeat(100) })
    await file.close()
    const found = readAll(record)
    expect(found.size).toBe(5004)
    for (const [uid, value] of values) expect(found.get(uid)).toStrictEqual(value)
    expect(found.get('n-4999')).toEqual({ at: 4999, text: 'x'.repeat(100) })
    expect(ResultsReader.open(join(tempFolder(), 'none.telemetry.jsonl'), 'this')).toBe(null)
  })

  it('results: cut after any byte, whole frames are found and nothing else', async () => {
    const { file, record } = openResults()
    const path = resultsPathOf(record)
    const ends: number[] = []
    for (const uid of ['a', 'b', 'c']) {
      file.append(uid, `value of ${uid}`)
      file.append(`${uid}${uid}`, { uid })
      file.write()
      ends.push(readFileSync(path).length)
    }
    await file.close()
    const bytes = readFileSync(path)
    const copy = join(tempFolder(), 'cut.telemetry.jsonl')
    for (let length = 0; length <= bytes.length; length++) {
      writeFileSync(resultsPathOf(copy), bytes.subarray(0, length))
      const whole = ends.filter((end) => end <= length).length
      expect([...readAll(copy).keys()]).toEqual(
        ['a', 'aa', 'b', 'bb', 'c', 'cc'].slice(0, whole * 2),
      )
    }
  })

  it('results: those of another record are none, and no frame is an error', async () => {
    const { file, record } = openResults()
    file.append('a', 1)
    await file.close()
    using other = ResultsReader.open(record, 'other')
    expect([...(other?.locateValues(() => expect.unreachable()) ?? [])]).toEqual([])
    const head = readFileSync(resultsPathOf(record)).subarray(0, resultsHead('this').length)
    const lengths = (uid: number, value: number): Buffer => {
      const bytes = Buffer.alloc(12)
      bytes.writeUInt32LE(uid)
      bytes.writeUInt32LE(value, 4)
      return bytes
    }
    const cases = [Buffer.alloc(5), lengths(4_000_000_000, 1), lengths(1, 4_000_000_000)]
    for (const entries of cases) {
      const length = Buffer.alloc(4)
      length.writeUInt32LE(entries.length)
      const bytes = Buffer.concat([head, length, computeDigest(entries), entries])
      writeFileSync(resultsPathOf(record), bytes)
      expect([...readAll(record)]).toEqual([])
    }
  })

  it('results: a value that was changed after it was found is not read', async () => {
    const { file, record } = openResults()
    const value = 'x'.repeat(600_000)
    file.append('a', value)
    await file.close()
    using reader = ResultsReader.open(record, 'this')
    const found: ValueLocation[] = []
    for (const _ of reader?.locateValues((_uid, at) => found.push(at)) ?? []) continue
    const [at = expect.unreachable()] = found
    expect(reader?.read(at)).toEqual({ value })
    const path = resultsPathOf(record)
    const changed = readFileSync(path)
    changed.write('WRONG', at.offset + 1000)
    writeFileSync(path, changed)
    expect(reader?.read(at)).toBe(null)
  })

  it('results: a changed byte never gives a wrong value', async () => {
    const { file, record } = openResults()
    for (const uid of ['a', 'b']) {
      file.append(uid, `value of ${uid}`)
      file.write()
    }
    await file.close()
    const bytes = readFileSync(resultsPathOf(record))
    const copy = join(tempFolder(), 'changed.telemetry.jsonl')
    for (let at = 0; at < bytes.length; at++) {
      const changed = Buffer.from(bytes)
      changed[at] = (changed[at] ?? 0) ^ 0x41
      writeFileSync(resultsPathOf(copy), changed)
      const found = [...readAll(copy)]
      expect(found.length).toBeLessThan(2)
      for (const [uid, value] of found) expect([uid, value]).toEqual(['a', 'value of a'])
    }
  })

  it('results: a full disk costs what did not fit, and nothing that comes later', async () => {
    const files = fullDevice()
    const { file, record, warnings } = openResults({ files })
    file.append('lost', 1)
    file.write()
    files.isFull = false
    file.append('a', 1)
    file.write()
    files.isFull = true
    file.append('lost too', 2)
    file.write()
    files.isFull = false
    file.append('b', 2)
    await file.close()
    expect([...readAll(record)]).toEqual([
      ['a', 1],
      ['b', 2],
    ])
    expect(warnings).toEqual(['ResultNotKept'])
  })

  it('results: after a frame that was half written the next one is found', async () => {
    let left = Infinity
    const files: typeof systemFiles = {
      ...systemFiles,
      write(fd, bytes, offset, length) {
        if (left === 0) throw Object.assign(new Error('full'), { code: 'ENOSPC' })
        const taken = systemFiles.write(fd, bytes, offset, Math.min(length, left))
        left -= taken
        return taken
      },
    }
    const { file, record } = openResults({ files })
    file.append('a', 1)
    file.write()
    left = 10
    file.append('torn', 2)
    file.write()
    left = Infinity
    file.append('b', 3)
    await file.close()
    expect([...readAll(record).keys()]).toEqual(['a', 'b'])
  })

  it('results: what is too large or would not come back equal is not kept', async () => {
    const { file, record } = openResults({ maxBytes: 1000 })
    const memory = new ArrayBuffer(8)
    const cases: readonly [string, unknown][] = [
      ['large', 'x'.repeat(1001)],
      ['function', () => 1],
      ['instance', { inside: [new URL('http://a')] }],
      ['symbol', { [Symbol('s')]: 1 }],
      ['no prototype', Object.create(null)],
      ['error', new Error('x')],
      ['field of a map', Object.assign(new Map(), { field: 1 })],
      ['shared', new Uint8Array(new SharedArrayBuffer(4))],
      ['proxy', new Proxy({}, {})],
      ['field of bytes', Object.assign(Buffer.from('ab'), { field: 1 })],
      ['field of an array of numbers', [Object.assign(new Float64Array(2), { field: 1 })]],
      ['field of a buffer', Object.assign(new ArrayBuffer(2), { field: 1 })],
      ['hidden', Object.defineProperty({ a: 1 }, 'hidden', { value: 7 })],
      ['hidden in a list', Object.defineProperty([1], 'hidden', { value: 7 })],
      ['no longer a map', Object.setPrototypeOf(new Map([[1, 2]]), Object.prototype)],
      ['arguments', argumentsOf(1, 2)],
      [
        'getter',
        {
          list: [
            {
              get now() {
                return performance.now()
              },
            },
          ],
        },
      ],
      [
        'two views of the same bytes',
        { bytes: new Uint8Array(memory), words: new Uint16Array(memory, 4, 2) },
      ],
      ['a view and its buffer', [memory, new DataView(memory)]],
      ['memory that grows', new Uint8Array(new ArrayBuffer(2, { maxByteLength: 4 }))],
      ['kept', [{ a: [1, 2] }]],
    ]
    for (const [uid, value] of cases) file.append(uid, value)
    await file.close()
    expect([...readAll(record)]).toEqual([['kept', [{ a: [1, 2] }]]])
  })

  it('kept values: what is nested too deeply to be read back is not kept', () => {
    const nested = (depth: number): object => {
      let value: object = {}
      for (let at = 1; at < depth; at++) value = { value }
      return value
    }
    for (const value of [nested(2000), [nested(2000)], new Map([[1, nested(2000)]])]) {
      expect(serializeValue(value)).toBeNull()
    }
    // Every object of the chain is near, but the first one is written with all behind it.
    const chain: object[] = []
    for (let next = nested(2000); ; next = (next as { value: object }).value) {
      chain.push(next)
      if (Object.keys(next).length === 0) break
    }
    expect(serializeValue(chain)).toBeNull()
    expect(deserializeValue(serializeValue(chain.toReversed()) ?? new Uint8Array())).not.toBeNull()
    expect(deserializeValue(serializeValue(nested(400)) ?? new Uint8Array())?.value).toEqual(
      nested(400),
    )
  })

  it('kept values: bytes come back over memory of their own, and nothing else', () => {
    const numbers = new Float64Array([1, 2, 3])
    const rows = [numbers.subarray(0, 1), numbers.subarray(1)]
    const views = [
      Uint8Array.of(1, 2, 3),
      Buffer.from('a'),
      new DataView(new ArrayBuffer(3)),
      ...rows,
    ]
    const bytes = serializeValue(views) ?? expect.unreachable()
    const back = deserializeValue(bytes)?.value as typeof views
    expect(back).toStrictEqual(views)
    for (const [at, view] of back.entries()) {
      expect(view.byteOffset).toBe(0)
      expect(view.buffer.byteLength).toBe(views[at]?.byteLength)
    }
    expect(new Set(back.map(({ buffer }) => buffer)).size).toBe(views.length)
    bytes.fill(0)
    expect(back).toStrictEqual(views)
  })

  it('kept values: any that is kept comes back strictly equal', () => {
    const anything = fc.anything({
      withBigInt: true,
      withDate: true,
      withMap: true,
      withSet: true,
      withTypedArray: true,
      withNullPrototype: true,
      withSparseArray: true,
    })
    assertProperty(
      fc.property(anything, (value) => {
        const bytes = serializeValue(value)
        if (bytes !== null) expect(deserializeValue(bytes)?.value).toStrictEqual(value)
      }),
    )
  })
})
