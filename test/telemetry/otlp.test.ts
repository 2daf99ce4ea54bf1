import { execFile } from 'node:child_process'
import { mkdirSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { describe, expect, it } from 'vitest'
import type { FinishedSpan } from '../../src/checkpoint/format.ts'
import { TaskCompleted, TaskCreated } from '../../src/events/vocabulary.ts'
import { StateError, TuttiError } from '../../src/foundation/errors.ts'
import { createResource } from '../../src/telemetry/otel/otel.ts'
import { toOtlpString, writeOtlpFile } from '../../src/telemetry/otel/otlp.ts'
import { openTelemetry, spansIn, emitTaskEvent, tempFolder, withoutFile } from './open-telemetry.ts'
import { byRun } from '../long-run.ts'

interface OtlpSpan {
  readonly traceId: string
  readonly spanId: string
  readonly name: string
}
interface Otlp {
  readonly resourceSpans: {
    readonly scopeSpans: { readonly scope: { name: string }; readonly spans: OtlpSpan[] }[]
  }[]
}

const spansOf = (text: string): OtlpSpan[] =>
  (JSON.parse(text) as Otlp).resourceSpans.flatMap(({ scopeSpans }) =>
    scopeSpans.flatMap(({ spans }) => spans),
  )

async function finishedRun(tasks: number) {
  const open = openTelemetry()
  await open.telemetry.start()
  for (let task = 0; task < tasks; task++) {
    emitTaskEvent({ sink: open.telemetry, clock: open.clock }, TaskCreated, `t${task}`)
    emitTaskEvent({ sink: open.telemetry, clock: open.clock }, TaskCompleted, `t${task}`)
  }
  await open.telemetry.stop()
  return open
}

function* manySpans(count: number): Generator<FinishedSpan> {
  for (let at = 0; at < count; at++) {
    yield {
      name: 'task',
      span_id: at.toString(16).padStart(16, '0'),
      trace_id: 'f'.repeat(32),
      parent_span_id: null,
      start_time: 1,
      end_time: 2,
      duration_ms: 1000,
      status_code: 'OK',
      status_description: null,
      attributes: { task_id: `t${at}` },
      events: [],
    }
  }
}

describe('exportAsOtlp', () => {
  it('exportAsOtlp: has the ids of the checkpoint, span by span', async () => {
    const { telemetry, folder } = await finishedRun(3)
    const key = (span: { name: string }, trace: string, id: string) => `${span.name} ${trace} ${id}`
    const exported = spansOf(telemetry.exportAsOtlp()).map((one) =>
      key(one, one.traceId, one.spanId),
    )
    const written = spansIn(folder).map((one) => key(one, one.trace_id, one.span_id))
    expect(exported.toSorted()).toEqual(written.toSorted())
    expect(exported).toHaveLength(4)
  })

  it('exportAsOtlp: writes to a path the text that it returns without one', async () => {
    const { telemetry, folder } = await finishedRun(4500)
    const path = join(folder, 'trace.json')
    expect(await telemetry.exportAsOtlp(path)).toBeUndefined()
    expect(readFileSync(path, 'utf8')).toBe(telemetry.exportAsOtlp())
    expect(spansOf(telemetry.exportAsOtlp())).toHaveLength(4501)
    expect(readdirSync(folder).filter((name) => name.endsWith('.tmp'))).toEqual([])
    // A second time replaces it.
    await telemetry.exportAsOtlp(path)
    expect(spansOf(readFileSync(path, 'utf8'))).toHaveLength(4501)
  })

  it.each(['otlp-transformer', 'resources', 'sdk-trace', 'sdk-metrics'])(
    'exportAsOtlp: is the same while the application imports %s',
    async (name) => {
      const program = join(import.meta.dirname, 'fixtures', 'export-while-importing.ts')
      const args = [program, `@opentelemetry/${name}`]
      const { stdout } = await promisify(execFile)(process.execPath, args)
      const exported = JSON.parse(stdout) as string[]
      expect(exported).toHaveLength(1)
      expect(spansOf(exported[0] ?? '').map((span) => span.name)).toEqual(['session'])
    },
  )
})

describe('row 47: an export that is not possible', () => {
  it('row 47: an export before stop is a StateError with a hint', async () => {
    const { telemetry } = openTelemetry(withoutFile)
    const attempts = [() => telemetry.exportAsOtlp(), () => telemetry.exportAsOtlp('/x')]
    for (const attempt of attempts) expect(attempt).toThrow(StateError)
    await telemetry.start()
    for (const attempt of attempts) {
      expect(attempt).toThrow(StateError)
      expect(attempt).toThrow(expect.objectContaining({ hint: expect.stringContaining('stop()') }))
    }
    await telemetry.stop()
    const never = openTelemetry(withoutFile).telemetry
    await never.stop()
    expect(() => never.exportAsOtlp()).toThrow(StateError)
    expect(() => never.exportAsOtlp()).toThrow(
      expect.objectContaining({
        hint: expect.stringContaining('`await session.close()`') as string,
      }),
    )
  })

  it('row 47: a path that cannot be written rejects and leaves no partial file', async () => {
    const { telemetry, folder } = await finishedRun(1)
    const isFolder = join(folder, 'a-folder')
    mkdirSync(join(isFolder, 'inside'), { recursive: true })
    const before = readdirSync(folder)
    for (const path of [isFolder, join(folder, 'missing', 'trace.json')]) {
      const failed = telemetry.exportAsOtlp(path)
      await expect(failed).rejects.toBeInstanceOf(TuttiError)
      await expect(failed).rejects.toMatchObject({ code: 'OtlpExportError' })
    }
    const hint = 'Name a file in it.'
    await expect(telemetry.exportAsOtlp(isFolder)).rejects.toMatchObject({ hint })
    expect(readdirSync(folder)).toEqual(before)
  })

  it('row 47: an export longer than a string is an error whose hint is a path', () => {
    const resource = createResource(undefined)
    const attempt = () => toOtlpString(manySpans(10_000), resource, 1_000_000)
    expect(attempt).toThrow(TuttiError)
    expect(attempt).toThrow(
      expect.objectContaining({
        code: 'OtlpTooLargeError',
        hint: expect.stringContaining('Pass a path'),
      }),
    )
  })

  it('row 47: a million spans are streamed to a file without blocking the loop', async () => {
    const count = byRun(100_000, 1_000_000)
    const path = join(tempFolder(), 'trace.json')
    let turnsMeanwhile = 0
    let isDone = false
    const watch = (): void => {
      turnsMeanwhile++
      if (!isDone) setImmediate(watch)
    }
    setImmediate(watch)
    await writeOtlpFile(path, manySpans(count), createResource(undefined))
    isDone = true
    // The loop goes round between the chunks.
    expect(turnsMeanwhile).toBeGreaterThan(count / 2000)
    expect(readFileSync(path, 'latin1').split('"spanId"')).toHaveLength(count + 1)
    if (count <= 100_000) expect(spansOf(readFileSync(path, 'utf8'))).toHaveLength(count)
  })

  it('exportAsOtlp: large spans are encoded in smaller chunks', () => {
    const large = [...manySpans(6)].map((one) => ({
      ...one,
      attributes: { text: 'x'.repeat(4_000_000) },
    }))
    const { resourceSpans } = JSON.parse(toOtlpString(large, createResource(undefined))) as Otlp
    expect(resourceSpans).toHaveLength(2)
  })
})
