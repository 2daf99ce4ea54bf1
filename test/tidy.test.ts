import { fileURLToPath } from 'node:url'
import { describe, expect, it } from 'vitest'
import { baseFieldNames, type EventClass, type EventSchema } from '../src/events/event.ts'
import { makeEvent } from '../src/events/make-event.ts'
import { ResourceUpdate } from '../src/events/resource-update.ts'
import * as libraryEvents from '../src/events/library-events.ts'
import * as vocabulary from '../src/events/vocabulary.ts'
import { version } from '../src/foundation/version.ts'
import { eventOf, hasEnded, taskStates, transitions } from '../src/tasks/lifecycle.ts'
import { inferenceStatus } from '../src/inference/generation/inference-errors.ts'
import {
  differences,
  documented,
  errorClasses,
  errorCodes,
  namespacedEvents,
  warningCodes,
} from './tidy/contract-tables.ts'
import { examplesOfPrivateFiles, layers, importCycles, importsAcrossLayers } from './tidy/layers.ts'
import { bannedGlobals, foreignModules } from './tidy/foreign.ts'
import {
  defaultExports,
  emptyNames,
  longFiles,
  longFunctions,
  longLines,
  missingOpenings,
  straysFromTheMirror,
  testsPutAside,
  unparsable,
} from './tidy/shape.ts'
import { readTree, type SourceFile } from './tidy/source-file.ts'
import { machineTraces } from './tidy/traces.ts'

const files = readTree(fileURLToPath(new URL('..', import.meta.url)))
const textOf = (path: string): string => files.find((file) => file.path === path)?.text ?? ''
const filesOf = (tree: Readonly<Record<string, string>>): SourceFile[] =>
  Object.entries(tree).map(([path, text]) => ({ path, text }))
const lines = (count: number): string => 'x()\n'.repeat(count)

/** A rule, with small trees (path to text) that break it and some that only look so. */
interface Rule {
  readonly judge: (files: readonly SourceFile[]) => string[]
  readonly bad: readonly Readonly<Record<string, string>>[]
  readonly good?: readonly Readonly<Record<string, string>>[]
}

const rules: Readonly<Record<string, Rule>> = {
  'every file can be parsed': { judge: unparsable, bad: [{ 'src/a/a.ts': 'const = 1' }] },
  'folders import only what the table of layers allows': {
    judge: importsAcrossLayers,
    bad: [
      { 'src/foundation/ids.ts': `import { a } from '../events/event.ts'` },
      { 'src/checkpoint/writer.ts': `export { a } from '../views/fold.ts'` },
      { 'src/session/session.ts': `import { b } from '../backends/local/concurrent-backend.ts'` },
      { 'src/backends/backend.ts': `import { T } from '../telemetry/manager.ts'` },
      {
        'src/inference/generation/batcher.ts': `const a = await import('../../workflow/graph.ts')`,
      },
      { 'src/events/event.ts': `import { F } from '../testing/manual-clock.ts'` },
      { 'src/telemetry/manager.ts': `import { Session } from '../index.ts'` },
      { 'src/telemetry/manager.ts': `import { main } from '../cli/main.ts'` },
      { 'src/cli/main.ts': `import { Session } from '../session/session.ts'` },
      { 'src/testing/fake-backend.ts': `import { S } from '../session/session.ts'` },
      { 'src/index.ts': `export { a } from './testing/manual-clock.ts'` },
      { 'src/views/fold.ts': `import { a } from '../../test/require.ts'` },
      { 'src/novelty/a.ts': '' },
    ],
    good: [
      { 'src/session/session.ts': `import type { T } from '../telemetry/manager.ts'` },
      { 'src/session/session.ts': `import type { B } from '../backends/backend.ts'` },
      { 'src/cli/main.ts': `import { Session } from '../index.ts'` },
      { 'src/index.ts': `export { a } from './telemetry/manager.ts'` },
      { 'src/testing/index.ts': `export { a } from './manual-clock.ts'` },
      { 'src/hpc/index.ts': `export { a } from './allocation.ts'` },
    ],
  },
  'files import each other in no ring': {
    judge: importCycles,
    bad: [
      {
        'src/view/a.ts': `import type { B } from './b.ts'`,
        'src/view/b.ts': `export * from './c.ts'`,
        'src/view/c.ts': `import './a.ts'`,
      },
    ],
  },
  'examples import what a user can': {
    judge: examplesOfPrivateFiles,
    bad: [{ 'examples/a.ts': `import { a } from '../src/index.ts'` }],
    good: [{ 'examples/a.ts': `import { a } from 'tutti/testing'` }],
  },
  'a foreign library is named in its one file': {
    judge: foreignModules,
    bad: [
      { 'src/telemetry/manager.ts': `import type { Span } from '@opentelemetry/api'` },
      { 'src/foundation/ids.ts': `import { nanoid } from 'nanoid'` },
      { 'src/session/session.ts': `import { spawn } from 'node:child_process'` },
      { 'src/views/fold.ts': `await import('node:timers/promises')` },
    ],
    good: [
      { 'src/telemetry/otel/otel-metrics.ts': `import '@opentelemetry/api'` },
      { 'src/views/fold.ts': `import 'node:fs'` },
    ],
  },
  'time, chance and the console are used in their one file': {
    judge: bannedGlobals,
    bad: [
      { 'src/view/a.ts': 'Date.now()' },
      { 'src/view/a.ts': 'const now = globalThis.performance.now' },
      { 'src/view/a.ts': 'new Date()' },
      { 'src/view/a.ts': 'setTimeout(() => {}, 1)' },
      { 'src/view/a.ts': 'const timers = { later: setImmediate }' },
      { 'src/view/a.ts': 'Math.random()' },
      { 'src/view/a.ts': `console.log('x')` },
      { 'src/view/a.ts': `process.on('exit', () => {})` },
      { 'src/view/a.ts': 'process.exit(1)' },
    ],
    good: [
      { 'src/foundation/clock.ts': 'Date.now()' },
      { 'src/view/a.ts': 'new Date(0); port.setTimeout(1); const a = { console: 1 }; clock.now()' },
      { 'src/cli/main.ts': 'process.exit(1)' },
    ],
  },
  'files are short': {
    judge: longFiles,
    bad: [{ 'src/view/a.ts': lines(401) }, { 'test/view/a.test.ts': lines(401) }],
    good: [{ 'src/view/a.ts': lines(400) }, { 'test/view/a.test.ts': lines(400) }],
  },
  'lines are short': {
    judge: longLines,
    bad: [{ 'src/view/a.ts': `// ${'x'.repeat(98)}\n` }],
    good: [{ 'src/view/a.ts': `// ${'x'.repeat(97)}\n` }],
  },
  'functions are short': {
    judge: longFunctions,
    bad: [
      { 'src/view/a.ts': `function a() {\n${lines(59)}}` },
      { 'src/view/a.ts': `class A { #b() {\n${lines(59)}} }` },
      { 'src/view/a.ts': `const a = () => {\n${lines(59)}}` },
    ],
    good: [{ 'src/view/a.ts': `function a() {\n${lines(58)}}` }],
  },
  'exports are named': {
    judge: defaultExports,
    bad: [
      { 'src/view/a.ts': 'export default 1' },
      { 'src/view/a.ts': 'const a = 1; export { a as default }' },
    ],
  },
  'file names say what is inside': {
    judge: emptyNames,
    bad: [
      { 'src/view/utils.ts': '' },
      { 'test/view/helpers.ts': '' },
      { 'src/view/types.ts': '' },
      { 'src/view/criticalPath.ts': '' },
    ],
  },
  'source files open with a sentence': {
    judge: missingOpenings,
    bad: [
      { 'src/view/a.ts': 'export const a = 1' },
      { 'src/view/a.ts': '/** no full stop */' },
      { 'src/view/a.ts': '// A comment.\n/** A sentence. */' },
    ],
    good: [{ 'src/cli/main.ts': '#!/usr/bin/env node\n/**\n * A sentence.\n */' }],
  },
  'tests lie where their subject does': {
    judge: straysFromTheMirror,
    bad: [{ 'test/veiw/fold.test.ts': '' }],
  },
  'no test is put aside': {
    judge: testsPutAside,
    bad: [
      { 'test/a.test.ts': `it.skip('a', () => {})` },
      { 'test/a.test.ts': `describe.only('a', () => {})` },
      { 'test/a.test.ts': `it.concurrent.todo('a')` },
    ],
  },
  'no text names a machine or a registry': {
    judge: machineTraces,
    bad: [
      { 'docs/a.md': `see ${['', 'work', 'main'].join('/')}/README.md` },
      { 'docs/a.md': `see file://${['', 'home', 'ann'].join('/')}` },
      { '.npmrc': ['registry', 'anything'].join('=') },
      { 'docs/a.md': ['from https://', 'registry', '.example.org/tutti'].join('') },
      { 'package-lock.json': JSON.stringify({ resolved: 'x' }) },
    ],
    good: [{ 'docs/a.md': 'src/home/work.ts, ./work/a, https://example.org/work/a' }],
  },
}

describe.each(Object.entries(rules))('%s', (_, { judge, bad, good = [] }) => {
  it('holds here', () => {
    expect(judge(files)).toEqual([])
  })

  it('is seen when it is broken, and only then', () => {
    for (const tree of bad) expect(judge(filesOf(tree)), JSON.stringify(tree)).toHaveLength(1)
    for (const tree of good) expect(judge(filesOf(tree)), JSON.stringify(tree)).toEqual([])
  })
})

describe('the table of layers', () => {
  it('has every folder below those that may import it', () => {
    const floors = Object.keys(layers)
    for (const [folder, allowed] of Object.entries(layers)) {
      if (folder === 'testing') continue
      for (const entry of allowed) {
        const target = entry.replace(/^type /, '').split('/')[0] ?? ''
        expect(floors.indexOf(target), `${folder} → ${entry}`).toBeLessThan(floors.indexOf(folder))
        expect(floors).toContain(target)
      }
    }
  })
})

describe('docs/events.md', () => {
  const text = textOf('docs/events.md')
  const eventClasses: readonly KnownEvent[] = [
    ...Object.values<unknown>({ ...vocabulary }).filter(isEventClass),
    ResourceUpdate,
  ]

  it('lists the fields of every event in their order', () => {
    const event = makeEvent(vocabulary.TaskCreated, { session_id: 's', backend: '' })
    expect(documented(text, 'Fields of every event', ['field'])).toEqual([...baseFieldNames])
    expect(Object.keys(event).toSorted()).toEqual([...baseFieldNames].toSorted())
  })

  const rowOf = (eventClass: KnownEvent): string => {
    const fields = eventClass === ResourceUpdate ? [] : fieldsOf(eventClass)
    const own = fields.map(({ name, type }) => `${name}: ${type}`).join(', ')
    return `${eventClass.eventType} | ${own}`
  }

  it('lists every type with its fields', () => {
    const inCode = eventClasses.map(rowOf)
    const inDocument = documented(text, 'Types', ['event_type', 'fields of its own'])
    const rows = inDocument.map((row) => row.replace(/see \[ResourceUpdate\].*$/, ''))
    expect(differences('docs/events.md', rows, inCode)).toEqual([])
  })

  it('lists the fields of ResourceUpdate', () => {
    const inCode = fieldsOf(ResourceUpdate).map(({ name, type }) => `${name} | ${type}`)
    expect(documented(text, 'ResourceUpdate', ['field', 'type'])).toEqual(inCode)
  })

  it('lists the events of the library itself', () => {
    const columns = ['event_type', 'fields of its own']
    const inDocument = documented(text, 'Events of the library itself', columns)
    const rows = inDocument.map((row) => row.replaceAll(/ \([^)]*\)/g, ''))
    const own = Object.values<unknown>({ ...libraryEvents }).filter(isEventClass)
    expect(differences('docs/events.md', rows, own.map(rowOf))).toEqual([])
    const names = own.map(({ eventType }) => eventType)
    expect(differences('library-events.ts', names, namespacedEvents(files))).toEqual([])
  })
})

describe('docs/states.md', () => {
  const text = textOf('docs/states.md')

  it('lists the states', () => {
    const inCode = taskStates.map((state) => `${state} | ${hasEnded(state) ? 'yes' : 'no'}`)
    expect(documented(text, 'States', ['state', 'has ended'])).toEqual(inCode)
  })

  it('lists the transitions', () => {
    const events = new Map(Object.entries(eventOf))
    const inCode = Object.entries(transitions).flatMap(([state, moves]) =>
      Object.entries(moves).map(([stimulus, next]) =>
        [state, stimulus, next, events.get(stimulus)].join(' | '),
      ),
    )
    const columns = ['state', 'stimulus', 'next state', 'event']
    expect(documented(text, 'Transitions', columns)).toEqual(inCode)
  })
})

/** Made from their parts, so that no literal of the code shows them. */
const numberCodes = ['integer', 'decimal'].flatMap((kind) =>
  ['above_max', 'below_min'].map((side) => `${kind}_${side}_value`),
)

describe('docs/errors.md', () => {
  const text = textOf('docs/errors.md')
  const compare = (heading: string, columns: string[], inCode: string[]): string[] =>
    differences('docs/errors.md', documented(text, heading, columns), inCode)

  it('lists every class', () => {
    expect(compare('Classes', ['class', 'extends'], errorClasses(files))).toEqual([])
  })

  it('lists every code', () => {
    const thrown = errorCodes(files).filter((row) => !row.endsWith(' | HttpError'))
    expect(compare('Codes', ['code', 'class'], thrown)).toEqual([])
  })

  it('lists every code that only clients of the server see', () => {
    const seen = errorCodes(files).filter((row) => row.endsWith(' | HttpError'))
    const codes = [...seen.map((row) => row.split(' ')[0] ?? ''), ...numberCodes]
    expect(compare('Codes over HTTP', ['code'], codes)).toEqual([])
  })

  it('lists every code of inference with its HTTP status', () => {
    const codes = Object.entries(inferenceStatus).map(([code, status]) => `${code} | ${status}`)
    expect(compare('Codes of inference', ['code', 'status'], codes)).toEqual([])
  })

  it('lists every warning', () => {
    expect(compare('Warnings', ['code'], warningCodes(files))).toEqual([])
  })
})

describe('a contract table', () => {
  const source: SourceFile = {
    path: 'src/view/a.ts',
    text: `export class LostError extends TuttiError {}
      export class GoneError extends LostError {}
      export class Other extends Base {}
      throw new GoneError('x', { code: 'GoneForGood' })
      log.warn('Slow', 'x')
      class A { #warn() { this.#warn('Late', 'x'); this.#warn('a sentence') } }
      defineEvent('tutti.Lost', { count: 'int', name: ['str', ''] })`,
  }

  it('is read from the code', () => {
    expect(errorClasses([source])).toEqual(['LostError | TuttiError', 'GoneError | LostError'])
    expect(errorCodes([source])).toEqual(['GoneForGood | GoneError'])
    expect(warningCodes([source])).toEqual(['Late', 'Slow'])
    expect(namespacedEvents([source])).toEqual(['tutti.Lost'])
  })

  it('differs when a row is stale, missing, or the table is not there', () => {
    const markdown = '# A\n\n| code | when |\n|---|---|\n| `Slow` | x |\n| `Old` | y \\| z |\n'
    const rows = documented(markdown, 'A', ['code'])
    expect(differences('a.md', rows, ['Slow', 'New'])).toEqual([
      'a.md: stale: Old',
      'a.md: lacks: New',
    ])
    expect(documented(markdown, 'A', ['when', 'code'])).toEqual(['x | Slow', 'y | z | Old'])
    expect(differences('a.md', documented(markdown, 'B', ['code']), [])).toHaveLength(1)
    expect(differences('a.md', documented(markdown, 'A', ['colour']), [])).toHaveLength(1)
  })
})

describe('the version', () => {
  it('is the same in the code and in package.json', () => {
    expect(JSON.parse(textOf('package.json'))).toMatchObject({ version })
  })
})

interface KnownEvent {
  readonly eventType: string
  readonly schema: EventSchema
}

function isEventClass(value: unknown): value is EventClass {
  return typeof value === 'function' && 'eventType' in value
}

/** The fields that instances really have beyond the common ones, with their types. */
function fieldsOf(eventClass: KnownEvent): { name: string; type: string }[] {
  if (!isEventClass(eventClass)) return []
  const event = makeEvent(eventClass, { session_id: 's', backend: 'b' })
  const common = new Set<string>(baseFieldNames)
  return Object.keys(event)
    .filter((name) => !common.has(name))
    .map((name) => {
      const spec = eventClass.schema[name] ?? { type: 'str', nullable: false }
      return { name, type: `${spec.type}${spec.nullable ? ' or null' : ''}` }
    })
}
