import { readFileSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import protobuf from 'protobufjs'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { ComputeTask } from '../../../src/tasks/compute-task.ts'
import { ConcurrentBackend } from '../../../src/backends/local/concurrent-backend.ts'
import { InferenceBackend } from '../../../src/inference/index.ts'
import { Session } from '../../../src/session/session.ts'
import { WorkflowEngine } from '../../../src/workflow/workflow-engine.ts'
import { spansOfTraces, startReceiver, type TraceRequest } from '../../telemetry/otlp-receiver.ts'
import { eventsOf, type SyntheticRun } from '../../views/synthetic-run.ts'
import { viewEvent } from '../../views/view-event.ts'
import { linesOf, recordFolder } from '../reading/record-file.ts'
import { runHere, startCommandIn } from '../run-command.ts'
import { writeFileSync } from 'node:fs'

const folder = recordFolder()
afterAll(() => folder.remove())

/** A real record with spans: three tasks that succeed and one that fails. */
let record = ''
let served = ''
beforeAll(async () => {
  const backend = await ConcurrentBackend.create({ name: 'local', workers: 1 })
  const session = new Session([backend], { id: 's-9' })
  const telemetry = await session.startTelemetry({ checkpointPath: folder.path })
  const tasks = [1, 2, 3].map((n) => new ComputeTask({ function: () => n, uid: `good-${n}` }))
  const bad = new ComputeTask({ executable: '=bad,"1"', uid: 'bad' })
  await session.submitTasks([...tasks, bad])
  await session.waitTasks([...tasks, bad])
  const endpoint = await telemetry.servePrometheus({ port: 0 })
  served = await (await fetch(`${endpoint.url}/metrics`)).text()
  await session.close()
  record = join(folder.path, readdirSync(folder.path).find((one) => one.endsWith('.jsonl')) ?? '')
})

const run = (...args: readonly string[]) => runHere(folder.path, ['export', ...args])

/** Names of metrics in the text format, with those of their series. */
const metricNames = (text: string): Set<string> =>
  new Set(Array.from(text.matchAll(/^([a-z_]+)(?:\{| )/gm), ([, name = '']) => name))

type Packet = Record<string, Record<string, unknown> & { type: string }>

/** The content that a parser of Perfetto's format reads. */
async function packetsOf(path: string): Promise<Packet[]> {
  await run(path, '--format', 'perfetto', '-o', 'trace.pftrace')
  const proto = protobuf.loadSync(join(import.meta.dirname, 'fixtures', 'perfetto.proto'))
  const trace = proto.lookupType('perfetto.Trace')
  const bytes = readFileSync(join(folder.path, 'trace.pftrace'))
  const read = trace.toObject(trace.decode(bytes), { longs: Number, enums: String })
  return (read as { packet: Packet[] }).packet
}

const timesOf = (packets: readonly Packet[]) =>
  packets.flatMap(({ trackEvent, timestamp }) =>
    trackEvent === undefined ? [] : [[trackEvent.type, Number(timestamp) / 1e9] as const],
  )

const oneTask: SyntheticRun = {
  nodes: [{ nodeId: 'n1', cores: 1 }],
  tasks: [{ uid: 'a', created: 0, start: 1, end: 2 }],
  end: 2,
}

describe('tutti export', () => {
  it('export: OTLP as JSON and as protobuf are the same spans', async () => {
    const json = JSON.parse((await run(record, '--format', 'otlp')).stdout) as TraceRequest
    const out = await run(record, '--format', 'otlp', '--protobuf', '-o', 'spans.pb', '--json')
    const bytes = readFileSync(join(folder.path, 'spans.pb'))
    expect(JSON.parse(out.stdout)).toEqual({ path: 'spans.pb', bytes: bytes.length })
    const receiver = await startReceiver()
    const headers = { 'content-type': 'application/x-protobuf' }
    const sent = await fetch(receiver.tracesUrl, { method: 'POST', headers, body: bytes })
    expect(sent.status).toBe(200)
    const [fromJson, fromWire] = [spansOfTraces([json]), spansOfTraces(receiver.traces)]
    expect(fromWire.map(({ spanId }) => spanId)).toEqual(fromJson.map(({ spanId }) => spanId))
    expect(fromWire).toHaveLength(5)
    expect(fromWire.filter(({ status }) => status?.code === 2)).toHaveLength(1)
  })

  it.each(['csv', 'prometheus', 'perfetto', 'otlp'])(
    'row 94: export %s tells of lines that it could not read',
    async (format) => {
      const place = recordFolder()
      const lines = linesOf(eventsOf(oneTask))
      writeFileSync(join(place.path, 's-1.1790000000.telemetry.jsonl'), `${lines}{"damaged\n`)
      try {
        const printed = await runHere(place.path, ['export', '--format', format])
        expect(printed.stderr).toContain('1 line skipped; see npx tutti journal verify')
        const args = ['export', '--format', format, '-o', 'out', '--json']
        const written = await runHere(place.path, args)
        expect(written.stderr).toContain('"notice":"1 line skipped')
        expect(written.code).toBe(0)
      } finally {
        place.remove()
      }
    },
  )

  it('export: every parent of a span of a killed run is a span, too', async () => {
    const place = recordFolder()
    const backend = await ConcurrentBackend.create({ name: 'local', workers: 1 })
    const flow = await WorkflowEngine.create({ backend })
    const telemetry = await flow.startTelemetry({ checkpointPath: place.path })
    const one = flow.functionTask(() => 1)
    await flow.scope('outer', async () => {
      await flow.scope('inner', async () => await one())
      await telemetry.spanScope('own', async () => {
        await telemetry.spanScope('part', async () => await one())
        await telemetry.flush()
      })
    })
    await flow.shutdown()
    const file = readdirSync(place.path).find((name) => name.endsWith('.jsonl')) ?? ''
    const lines = readFileSync(join(place.path, file), 'utf8').split('\n')
    const spanNamed = (name: string): number =>
      lines.findIndex(
        (line) => line.includes('"section":"span"') && line.includes(`"name":"${name}"`),
      )
    const killed = join(place.path, 'killed.1.telemetry.jsonl')
    // As if it had been killed before the outer spans ended.
    writeFileSync(killed, `${lines.slice(0, spanNamed('part') + 1).join('\n')}\n`)
    const { stdout } = await run(killed, '--format', 'otlp')
    const spans = spansOfTraces([JSON.parse(stdout) as TraceRequest])
    const ids = new Set(spans.map(({ spanId }) => spanId))
    const parents = spans.flatMap(({ parentSpanId }) => parentSpanId ?? [])
    expect(parents.filter((id) => !ids.has(id))).toEqual([])
    expect(spans.filter(({ parentSpanId }) => (parentSpanId ?? '') === '')).toHaveLength(1)
    expect(ids.size).toBe(spans.length)
    const names = spans.map(({ name }) => name)
    expect(names.toSorted()).toEqual(
      ['part', 'scope', 'session', 'task', 'task', 'workflow', 'workflow'].toSorted(),
    )
    place.remove()
  })

  it('export: a task that ran when its session was killed has a span', async () => {
    const lines = readFileSync(record, 'utf8').split('\n')
    const started = lines.findIndex((line) => line.includes('"event_type":"TaskStarted"'))
    const killed = join(folder.path, 'cut.1.telemetry.jsonl')
    writeFileSync(killed, `${lines.slice(0, started + 1).join('\n')}\n`)
    const { stdout } = await run(killed, '--format', 'otlp')
    const spans = spansOfTraces([JSON.parse(stdout) as TraceRequest])
    expect(spans.map(({ name }) => name)).toEqual(['session', 'task'])
    expect(spans[1]?.parentSpanId).toBe(spans[0]?.spanId)
  })

  it('export: --protobuf is refused for formats that have one form only', async () => {
    const end = await run(record, '--format', 'csv', '--protobuf')
    expect([end.code, end.stderr]).toEqual([
      2,
      expect.stringContaining('--protobuf is for --format otlp, not for csv'),
    ])
  })

  it('export: csv has a header and a row a task, which no spreadsheet takes for code', async () => {
    const { stdout } = await run(record, '--format', 'csv')
    const [head, ...rows] = stdout.trimEnd().split('\r\n')
    expect(head).toBe(
      'uid,name,state,backend,node,worker,attempts,cores,gpus,created,waited_seconds,ran_seconds,' +
        'cpu_seconds,peak_memory_bytes,command,exit_code,error_type,error_message,scope',
    )
    expect(rows).toHaveLength(4)
    expect(rows[3]).toMatch(/^bad,"'=bad,""1""",FAILED,.*,ExecutableNotFoundError,/)
  })

  it('export: csv has command, exit code, attempts, cores, backend and attributes', async () => {
    const place = recordFolder()
    const backend = await ConcurrentBackend.create({ name: 'local', workers: 1, cores: 2 })
    const session = new Session([backend], { id: 's-csv' })
    await session.startTelemetry({ checkpointPath: place.path })
    const mesh = new ComputeTask({
      uid: 'mesh-1',
      name: 'mesh',
      executable: 'sh',
      arguments: ['-c', 'exit 3'],
      retries: 1,
      resources: { cores: 2 },
      attributes: { seed: 7, name: 'own', tags: ['a', 'b'] },
    })
    const echo = new ComputeTask({ uid: 'echo-1', executable: 'echo', arguments: ['two words'] })
    const plain = new ComputeTask({ uid: 'plain', function: () => 1, attributes: { seed: 8 } })
    await session.submitTasks([mesh, echo, plain])
    await session.waitTasks([mesh, echo, plain])
    await session.close()
    const { stdout } = await runHere(place.path, ['export', '--format', 'csv'])
    place.remove()
    const [head = '', ...rows] = stdout.trimEnd().split('\r\n')
    expect(head.split(',').slice(19)).toEqual(['seed', 'attributes.name', 'tags'])
    expect(rows[0]).toMatch(/^mesh-1,mesh,FAILED,local,[^,]+,[^,]+,2,2,0,[\d.]+,[\d.]+,[\d.]+,/)
    expect(rows[0]).toMatch(/,sh -c 'exit 3',3,ExecutableFailedError,[^,]*code 3[^,]*,,7,own,"\[/)
    expect(rows[1]).toMatch(/^echo-1,echo,DONE,local,.*,1,1,0,.*,echo 'two words',0,,,,,,$/)
    expect(rows[2]).toMatch(/^plain,.*,1,1,0,.*,,,,,,8,,$/)
  })

  it('export: csv has one head per column, whatever the names of attributes', async () => {
    const place = recordFolder()
    const session = new Session([await ConcurrentBackend.create({ workers: 1 })])
    await session.startTelemetry({ checkpointPath: place.path })
    const attributes = { uid: 1, 'attributes.uid': 2, name: 3 }
    await session.submitTasks([new ComputeTask({ function: () => 1, attributes })])
    await session.close()
    const { stdout } = await runHere(place.path, ['export', '--format', 'csv'])
    place.remove()
    const [head = '', row = ''] = stdout.trimEnd().split('\r\n')
    const heads = ['attributes.attributes.uid', 'attributes.uid', 'attributes.name']
    expect(head.split(',').slice(19)).toEqual(heads)
    expect(row).toMatch(/,1,2,3$/)
  })

  it('export: csv quotes white space and full-width signs that may begin a formula', async () => {
    const place = recordFolder()
    const session = new Session([await ConcurrentBackend.create({ workers: 1 })])
    await session.startTelemetry({ checkpointPath: place.path })
    const notes = ['\n=1', '\r=1', '\tx', '\nx', '  =1', '\u3000@x', '＝1', '＋1', '－1', '＠x']
    const tasks = notes.map((note) => new ComputeTask({ function: () => 1, attributes: { note } }))
    await session.submitTasks(tasks)
    await session.close()
    const { stdout } = await runHere(place.path, ['export', '--format', 'csv'])
    place.remove()
    expect(notes.filter((note) => !stdout.includes(`'${note}`))).toEqual([])
  })

  it('export: prometheus has the names and totals of the live endpoint', async () => {
    const { stdout } = await run(record, '--format', 'prometheus')
    expect(stdout).toMatch(/^tasks_completed_total\{session_id="s-9"\} 3$/m)
    expect(stdout).toMatch(/^tasks_failed_total\{session_id="s-9"\} 1$/m)
    const [ours, live] = [metricNames(stdout), metricNames(served)]
    expect([...live].filter((name) => !ours.has(name) && !name.startsWith('node_'))).toEqual([])
  })

  it('export: perfetto has a slice for every attempt, on a track of its worker', async () => {
    const path = join(folder.path, 'p.1.telemetry.jsonl')
    const tasks = [
      { uid: 'a', start: 1, end: 4, worker: 'n1/local/w1' },
      // Both run together on one worker: slices of one track may not overlap.
      { uid: 'b', start: 2, end: 6, worker: 'n1/local/w1' },
      { uid: 'c', start: 5, end: 6, worker: 'n2/local/w1', endType: 'TaskFailed' as const },
    ]
    const usage = { event_time: 3, node_id: 'n1', cpu_percent: 42.5, resource_scope: 'per_node' }
    const events = [
      ...eventsOf({ nodes: [], tasks, end: 9 }),
      viewEvent('ResourceUpdate', null, usage),
    ].toSorted((a, b) => a.event_time - b.event_time)
    writeFileSync(path, linesOf(events))
    const packet = await packetsOf(path)
    const tracks = packet.flatMap(({ trackDescriptor }) => trackDescriptor ?? [])
    const threads = tracks.flatMap(({ thread, uuid }) =>
      thread === undefined ? [] : [[(thread as { threadName: string }).threadName, uuid] as const],
    )
    expect(threads.map(([name]) => name)).toEqual(['n1/local/w1', 'n1/local/w1 (2)', 'n2/local/w1'])
    expect(timesOf(packet)).toEqual([
      ['TYPE_SLICE_BEGIN', 1],
      ['TYPE_SLICE_BEGIN', 2],
      ['TYPE_COUNTER', 3],
      ['TYPE_SLICE_END', 4],
      ['TYPE_SLICE_BEGIN', 5],
      ['TYPE_SLICE_END', 6],
      ['TYPE_SLICE_END', 6],
    ])
  })

  it('export: perfetto ends what was lost with its session, and not what went on', async () => {
    const path = join(folder.path, 'r.1.telemetry.jsonl')
    const told = (type: string, uid: string | null, event_time: number, more: object = {}) =>
      viewEvent(type, uid, { event_time, ...more })
    const on = (worker_id: string, attempt: number) => ({ attributes: { worker_id, attempt } })
    const second = on('n/local/w1', 2).attributes
    const withoutName = { attributes: { ...second, executable: undefined } }
    const events = [
      told('SessionStarted', null, 0),
      told('TaskStarted', 'again', 1, on('n/local/w1', 1)),
      told('TaskStarted', 'adopted', 1, on('n/local/w2', 1)),
      told('TaskCreated', 'other', 3),
      told('SessionStarted', null, 10),
      told('tutti.AttemptStarted', 'again', 11, withoutName),
      told('TaskStarted', 'adopted', 11, on('n/local/w2', 1)),
      told('TaskCompleted', 'adopted', 12, { duration_seconds: 5 }),
      told('TaskCompleted', 'again', 13, { duration_seconds: 2 }),
    ]
    writeFileSync(path, linesOf(events))
    const packet = await packetsOf(path)
    expect(timesOf(packet)).toEqual([
      ['TYPE_SLICE_BEGIN', 1],
      ['TYPE_SLICE_BEGIN', 1],
      ['TYPE_SLICE_END', 3],
      ['TYPE_SLICE_BEGIN', 11],
      ['TYPE_SLICE_END', 6],
      ['TYPE_SLICE_END', 13],
    ])
    const names = packet.flatMap(({ trackEvent }) => trackEvent?.['name'] ?? [])
    expect(names).toEqual(['simulate', 'simulate', 'simulate'])
  })

  it('row 95: an unknown format and a missing one end with 2', async () => {
    const unknown = await run(record, '--format', 'perfeto')
    expect([unknown.code, unknown.stderr]).toEqual([2, expect.stringContaining('"perfetto"')])
    expect((await run(record)).code).toBe(2)
    expect((await run('/nowhere/x.jsonl', '--format', 'csv')).code).toBe(2)
  })

  it('row 96: a closed pipe ends an export quietly', async () => {
    const command = startCommandIn(folder.path, ['export', record, '--format', 'csv'])
    command.child.stdout?.destroy()
    const end = await command.ended
    expect([end.code, end.stderr]).toEqual([0, ''])
  })
})

/** The metrics of a server that has answered one request. */
async function serverMetrics(): Promise<string> {
  const keys = join(folder.path, 'keys')
  writeFileSync(keys, 'ann key-of-ann rpm=5 tpm=900\n')
  const config = { required: { model_name: 'tiny' }, engine: { kind: 'echo' } }
  await using backend = await InferenceBackend.fromConfig(config, { port: 0, apiKeysFile: keys })
  const headers = { 'x-api-key': 'key-of-ann', 'content-type': 'application/json' }
  const body = JSON.stringify({ prompt: 'one two three' })
  await fetch(`${backend.endpoint}/v1/completions`, { method: 'POST', headers, body })
  return await (await fetch(`${backend.endpoint}/metrics`, { headers })).text()
}

it('docs/grafana-dashboard.json: every query names a metric that exists', async () => {
  const file = new URL('../../../docs/grafana-dashboard.json', import.meta.url)
  const text = readFileSync(file, 'utf8')
  const queries = Array.from(text.matchAll(/"expr": "((?:[^"\\]|\\.)*)"/g), ([, one = '']) => one)
  expect(queries.length).toBeGreaterThan(8)
  const all = `${served}${await serverMetrics()}`
  const known = metricNames(all.replaceAll(/^# TYPE (\w+) .*$/gm, '$1 '))
  for (const query of queries) {
    const named = Array.from(
      query.matchAll(/\b(?:tasks?|node|tutti|gen_ai)_[a-z_]+\b(?=[{[ )])/g),
      ([one]) => one,
    )
    const labels = new Set(['node_id', 'task_type', 'gen_ai_request_model'])
    const metrics = named.filter((name) => !labels.has(name))
    expect(metrics.length, query).toBeGreaterThan(0)
    expect(
      metrics.filter((name) => !known.has(name)),
      query,
    ).toEqual([])
  }
})
