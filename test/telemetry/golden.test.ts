import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { defineEvent } from '../../src/events/define-event.ts'
import { type EventClass, stampEvent } from '../../src/events/event.ts'
import { ResourceUpdate } from '../../src/events/resource-update.ts'
import {
  TaskCanceled,
  TaskCompleted,
  TaskCreated,
  TaskFailed,
  TaskQueued,
  TaskStarted,
  TaskSubmitted,
} from '../../src/events/vocabulary.ts'
import { runInTask } from '../../src/foundation/task-context.ts'
import { openTelemetry, emitTaskEvent } from './open-telemetry.ts'

const LineTimer = defineEvent('golden.LineTimer', {
  label: 'str',
  duration_ms: 'float',
  step: ['int', -1],
  ok: 'bool',
  extra: 'any',
})

const noReadings = {
  gpu_id: null,
  cpu_percent: null,
  memory_percent: null,
  gpu_percent: null,
  disk_read_bytes: null,
  disk_write_bytes: null,
  net_sent_bytes: null,
  net_recv_bytes: null,
}

/** Every section, every kind of event and every end of a task, on a stopped clock. */
async function scriptedRun() {
  const { telemetry, clock, folder } = openTelemetry({ sessionId: 'golden', checkpointSeconds: 2 })
  const to = { sink: telemetry, clock }
  const common = { session_id: 'golden', backend: 'local' }
  const tellTask = (
    eventClass: Parameters<typeof emitTaskEvent>[1],
    uid: string,
    fields: object = {},
  ) => void emitTaskEvent(to, eventClass, uid, { session_id: 'golden', ...fields })
  telemetry.registerSpanEnricher(({ task_id: uid }) => ({ 'app.uid': uid ?? '', 'app.weight': 2 }))
  await telemetry.start()
  for (const uid of ['done', 'failed', 'canceled', 'open']) {
    for (const one of [TaskCreated, TaskSubmitted, TaskQueued]) tellTask(one, uid)
    await clock.advance(250)
  }
  for (const uid of ['done', 'failed', 'open']) {
    const attributes = {
      executable: './simulate',
      task_type: 'compute',
      worker_id: 'w1',
      attempt: 1,
    }
    tellTask(TaskStarted, uid, { node_id: 'n1', attributes })
  }
  const readings = { cpu_percent: 12.5, memory_percent: 50, gpu_percent: 75 }
  const node = { ...common, node_id: 'n1', ...noReadings }
  telemetry.emit(stampEvent(ResourceUpdate, clock, { ...node, ...readings }))
  telemetry.emit(stampEvent(ResourceUpdate, clock, { ...node, gpu_id: 0, gpu_percent: 75 }))
  await runInTask('done', () =>
    telemetry.spanScope('step', { n: 1, list: ['a', 2] }, async () => {
      await clock.advance(500)
      const fields = {
        label: 'read "x"\n',
        duration_ms: 1.5,
        step: -1,
        ok: true,
        extra: { a: [1] },
      }
      const event = stampEvent(LineTimer as EventClass, clock, { ...common, ...fields })
      telemetry.emit(event)
      telemetry.annotateCurrentSpan(event)
    }),
  )
  await clock.advance(1000)
  tellTask(TaskCompleted, 'done', { node_id: 'n1', duration_seconds: 1.5 })
  tellTask(TaskFailed, 'failed', {
    duration_seconds: 1.5,
    error_type: 'RangeError',
    attributes: { executable: './simulate', task_type: 'compute', error_type: 'RangeError' },
  })
  tellTask(TaskCanceled, 'canceled', {
    attributes: { executable: './simulate', task_type: 'compute', incomplete_lifecycle: true },
  })
  await telemetry.stop()
  const [file = ''] = readdirSync(folder)
  return { jsonl: readFileSync(join(folder, file), 'utf8'), otlp: telemetry.exportAsOtlp() }
}

/** Ids are random: each is replaced by its kind and the number of its first appearance. */
function createNormalizer(): (text: string) => string {
  const names = new Map<string, string>()
  const nameOf = (kind: string, id: string): string => {
    const known = [...names.values()].filter((name) => name.startsWith(kind)).length
    const name = names.get(id) ?? `${kind}-${known + 1}`
    names.set(id, name)
    return name
  }
  const machine = /"(?:host|pid|program|version)":(?:"[^"]*"|\d+)/g
  const sdkVersion = /("telemetry\.sdk\.version","value":\{"stringValue":")[^"]*/g
  return (text) =>
    text
      .replace(
        /"event_id":"([0-9a-f]{32})"/g,
        (_, id: string) => `"event_id":"${nameOf('event', id)}"`,
      )
      .replace(/"(?:trace_id|traceId)":"([0-9a-f]{32})"/g, (whole, id: string) =>
        whole.replace(id, nameOf('trace', id)),
      )
      .replace(/"\w*[sS]pan_?[iI]d":"([0-9a-f]{16})"/g, (whole, id: string) =>
        whole.replace(id, nameOf('span', id)),
      )
      .replace(/("bytes_written":)\d+/, '$1"-"')
      .replace(machine, (whole) => whole.replace(/:.*/, ':"-"'))
      .replace(sdkVersion, '$1-')
}

it('golden files: a scripted run gives the same bytes', async () => {
  const { jsonl, otlp } = await scriptedRun()
  const normalize = createNormalizer()
  const made = {
    'golden.telemetry.jsonl': normalize(jsonl),
    'golden.otlp.json': `${JSON.stringify(JSON.parse(normalize(otlp)), null, 2)}\n`,
  }
  for (const [name, text] of Object.entries(made)) {
    expect(text).not.toMatch(/"[0-9a-f]{32}"|"[0-9a-f]{16}"/)
    const path = join(import.meta.dirname, 'fixtures', name)
    if (process.env['UPDATE_GOLDEN'] === '1') writeFileSync(path, text)
    expect(text).toBe(readFileSync(path, 'utf8'))
  }
})
