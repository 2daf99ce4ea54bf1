import { describe, expect, it } from 'vitest'
import * as libraryEvents from '../../src/events/library-events.ts'
import { compileOutside } from '../compile-outside.ts'

const types = { str: 'string', int: 'number', float: 'number', bool: 'boolean', any: 'unknown' }

/** For each event, code that asks for its type and then uses all its fields with their types. */
const branches = Object.values(libraryEvents).map(({ eventType, schema }) => {
  const fields = Object.entries(schema).map(
    ([name, { type }]) => `const ${name}: ${types[type]} = event.${name}; used.push(${name})`,
  )
  return `if (event.event_type === '${eventType}') { ${fields.join('; ')} }`
})

const program = `
import { defineEvent, type TelemetryManager } from 'tutti'

const LineTimer = defineEvent('myapp.LineTimer', { duration_ms: 'float' })

export function listen(telemetry: TelemetryManager, used: unknown[]): void {
  telemetry.subscribe((event) => {
    ${branches.join('\n')}
    if (event.event_type === 'tutti.WorkerLost') return event.tasks.map((uid) => uid.length)
    if (event.event_type === 'tutti.Batch') return event.error_message?.length
    if (event.event_type === 'tutti.NodeJoined') return event.labels['zone']?.length
    if (event.event_type === 'TaskFailed') return event.error_type
    // @ts-expect-error a name of the library that does not exist
    if (event.event_type === 'tutti.TaskAtempt') return 1
    if (event.event_type === 'tuttifrutti.Mixed') return event.attributes
    if (event instanceof LineTimer) return event.duration_ms
    // @ts-expect-error the fields of an unknown type are unknown
    return event.attempt
  })
}
`

describe("the library's own events", () => {
  it('a subscriber that asks for the type of a tutti.* event has its fields', async () => {
    expect(program).toContain("'tutti.TaskAttempt'")
    await compileOutside(new Map([['program.ts', program]]))
  })
})
