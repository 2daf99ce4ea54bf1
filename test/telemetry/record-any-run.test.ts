import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { defineEvent } from '../../src/events/define-event.ts'
import type { BaseEvent } from '../../src/events/event.ts'
import { makeEvent } from '../../src/events/make-event.ts'
import type { RowHolder, TaskEventType } from '../../src/events/sink.ts'
import { systemClock } from '../../src/foundation/clock.ts'
import type { JsonValue } from '../../src/foundation/json-value.ts'
import { byRun } from '../long-run.ts'
import { assertProperty } from '../property.ts'
import { eventsIn, spansIn, tempFolder, turn, typesOf } from './open-telemetry.ts'
import { changeOf, openThreaded } from './record-runs.ts'

const Mark = defineEvent('any-run.Mark', { text: 'str', value: 'any' })
const types: readonly TaskEventType[] = [
  'TaskCreated',
  'TaskSubmitted',
  'TaskQueued',
  'TaskStarted',
  'TaskCompleted',
  'TaskFailed',
  'TaskCanceled',
]
const uid = fc.oneof(
  { weight: 6, arbitrary: fc.integer({ min: 0, max: 12 }).map((number) => `task-00000${number}`) },
  { weight: 1, arbitrary: fc.string({ unit: 'binary', minLength: 1, maxLength: 8 }) },
  { weight: 1, arbitrary: fc.constantFrom('x'.repeat(250), 'y'.repeat(199), 'a"b', 'a\\b', 'ü') },
)
/** Times that a template holds, and times that it does not. */
const time = fc.oneof(
  { weight: 5, arbitrary: fc.double({ min: 1e9, max: 2 ** 32, noNaN: true }) },
  { weight: 1, arbitrary: fc.constantFrom(0, 1, 1e9, 2 ** 30, 2 ** 32 - 1e-6, 2 ** 32, 5e12) },
)
const ownValue = fc.oneof(
  fc.jsonValue() as fc.Arbitrary<JsonValue>,
  fc.constantFrom('ü'.repeat(500), 'x'.repeat(4000), 'y'.repeat(5000)),
)
const steps = fc.array(
  fc.oneof(
    {
      weight: 12,
      arbitrary: fc.record({
        kind: fc.constant('task' as const),
        type: fc.constantFrom(...types),
        uid,
        time,
        later: fc.constantFrom(0, 0, 0.001, 3.5),
        seconds: fc.oneof(fc.double({ min: 0, noNaN: true }), fc.constantFrom(0, 0.1, 1e21)),
        node: fc.constantFrom(null, 'n1', 'knoten-ü'),
        isShared: fc.boolean(),
        own: fc.oneof(
          fc.constantFrom(null, {}),
          fc.dictionary(fc.string({ unit: 'binary', maxLength: 9 }), ownValue, { maxKeys: 3 }),
        ),
        error_type: fc.constantFrom('Error', 'TypeError', 'a"ü'),
        isHeld: fc.boolean(),
      }),
    },
    {
      weight: 3,
      arbitrary: fc.record({
        kind: fc.constant('mark' as const),
        text: fc.string({ unit: 'binary', maxLength: 60 }),
        value: fc.jsonValue() as fc.Arbitrary<JsonValue>,
      }),
    },
    { weight: 2, arbitrary: fc.record({ kind: fc.constantFrom('turn', 'flush', 'scope') }) },
  ),
  { maxLength: 120 },
)
type Step = typeof steps extends fc.Arbitrary<(infer One)[]> ? One : never

type Holders = Map<string, RowHolder>

async function play(
  telemetry: ReturnType<typeof openThreaded>,
  step: Step,
  holders: Holders,
): Promise<void> {
  if (step.kind === 'turn') await turn()
  else if (step.kind === 'flush') await telemetry.flush()
  else if (step.kind === 'scope') telemetry.spanScope('part', { n: 1 }, () => {})
  else if ('text' in step) {
    const { text, value } = step
    telemetry.emit(makeEvent(Mark, { session_id: 's1', backend: 'b', text, value }))
  } else if ('type' in step) {
    const change = changeOf(step.type, step.uid)
    const holder = holders.get(step.uid) ?? { telemetryRow: null }
    holders.set(step.uid, holder)
    telemetry.recordTask({
      ...change,
      event_time: step.time,
      emit_time: step.time + step.later,
      node_id: step.node,
      duration_seconds: step.seconds,
      own: step.own,
      error_type: step.error_type,
      holder: step.isHeld ? holder : null,
      attributes: step.isShared ? change.attributes : Object.freeze({ 'a"ü': step.uid }),
    })
  }
}

describe('the record of any run', () => {
  it('record: lines, events of subscribers and OTLP are equal, whoever writes them', async () => {
    const rings = fc.constantFrom(4096, 8192, 65_536)
    await assertProperty(
      fc.asyncProperty(steps, rings, fc.boolean(), async (plan, ringBytes, hasThread) => {
        const folder = tempFolder()
        const options = { sessionId: 's1', checkpointPath: folder, clock: systemClock }
        const linesBeforeThread = hasThread ? 0 : 1e9
        const telemetry = openThreaded(options, { linesBeforeThread, ringBytes })
        const received: BaseEvent[] = []
        telemetry.subscribe((event) => void received.push(event))
        await telemetry.start()
        const holders: Holders = new Map()
        for (const step of plan) await play(telemetry, step, holders)
        await telemetry.stop()
        const lines = eventsIn(folder)
        const ofEvents = lines.map((line) => without(line, idsOfLine))
        expect(ofEvents).toEqual(JSON.parse(JSON.stringify(received)))
        expect(lines.map(({ name }) => name)).toEqual(typesOf(received))
        expect(received.every((event) => Object.isFrozen(event))).toBe(true)
        expect(new Set(lines.map(({ event_id: id }) => id)).size).toBe(lines.length)
        expect(spansIn(folder).map(summaryOf).toSorted()).toEqual(
          otlpSpans(telemetry.exportAsOtlp()).toSorted(),
        )
      }),
      { numRuns: byRun(25, 500), longRuns: byRun(25, 500) },
    )
  })

  it('record: without subscribers, the lines are the same as with one', async () => {
    const texts: string[][] = []
    for (const isWatched of [true, false]) {
      const folder = tempFolder()
      const options = { sessionId: 's1', checkpointPath: folder, clock: systemClock }
      const telemetry = openThreaded(options)
      if (isWatched) telemetry.subscribe(() => {})
      await telemetry.start()
      await turn()
      for (let task = 0; task < 300; task++) {
        for (const type of types.slice(0, 5)) {
          telemetry.recordTask({
            ...changeOf(type, `t${task}`),
            event_time: 1.5e9,
            emit_time: 1.6e9,
          })
        }
      }
      await telemetry.stop()
      const tasks = eventsIn(folder).filter(({ task_id: id }) => id !== null)
      texts.push(tasks.map((line) => JSON.stringify(without(line, [...idsOfLine, 'event_id']))))
    }
    expect(texts[0]).toHaveLength(1500)
    expect(texts[1]).toEqual(texts[0])
  })
})

const idsOfLine = ['section', 'trace_id', 'span_id', 'name']

/** The line without these keys, in the same order. */
const without = (line: object, keys: readonly string[]): object =>
  Object.fromEntries(Object.entries(line).filter(([key]) => !keys.includes(key)))

const summaryOf = (span: {
  span_id: string
  parent_span_id: string | null
  name: string
}): string => `${span.span_id} ${span.parent_span_id ?? ''} ${span.name}`

function otlpSpans(text: string): string[] {
  interface Span {
    spanId: string
    parentSpanId?: string
    name: string
  }
  const { resourceSpans } = JSON.parse(text) as {
    resourceSpans: { scopeSpans: { spans: Span[] }[] }[]
  }
  return resourceSpans
    .flatMap(({ scopeSpans }) => scopeSpans.flatMap(({ spans }) => spans))
    .map(({ spanId, parentSpanId = '', name }) => `${spanId} ${parentSpanId} ${name}`)
}
