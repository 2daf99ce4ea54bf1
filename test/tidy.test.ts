import { fileURLToPath } from 'node:url'
import { describe, expect, it } from 'vitest'
import { baseFieldNames, type EventClass, type EventSchema } from '../src/events/event.ts'
import { makeEvent } from '../src/events/make-event.ts'
import { ResourceUpdate } from '../src/events/resource-update.ts'
import * as libraryEvents from '../src/events/library-events.ts'
import * as vocabulary from '../src/events/vocabulary.ts'
import { version } from '../src/foundation/version.ts'
import { stimulusEvents, hasEnded, taskStates, transitions } from '../src/tasks/lifecycle.ts'
import { statusByCode } from '../src/inference/generation/inference-errors.ts'
import {
  differences,
  documented,
  errorClasses,
  errorCodes,
  namespacedEvents,
  warningCodes,
} from './tidy/contract-tables.ts'
import { layers, subLayers } from './tidy/layers.ts'
import { rules } from './tidy/rules.ts'
import { listPaths, readTree, type SourceFile } from './tidy/source-file.ts'
import { unknownKinds } from './tidy/documents.ts'

const root = fileURLToPath(new URL('..', import.meta.url))
const files = readTree(root)
const textOf = (path: string): string => files.find((file) => file.path === path)?.text ?? ''
const filesOf = (tree: Readonly<Record<string, string>>): SourceFile[] =>
  Object.entries(tree).map(([path, text]) => ({ path, text }))

describe.each(Object.entries(rules))('%s', (_, { judge, bad, good = [] }) => {
  it('the rule holds here', () => {
    expect(judge(files)).toEqual([])
  })

  it('the rule reports each bad example once, and no good one', () => {
    for (const tree of bad) expect(judge(filesOf(tree)), JSON.stringify(tree)).toHaveLength(1)
    for (const tree of good) expect(judge(filesOf(tree)), JSON.stringify(tree)).toEqual([])
  })
})

it('the repository holds files of known kinds', () => {
  expect(unknownKinds(listPaths(root))).toEqual([])
  const strange = ['isolate-0x1-2-v8.log', 'src/a/core.dump', 'notes', 'docs/picture.bmp']
  expect(unknownKinds(strange)).toHaveLength(strange.length)
  expect(unknownKinds(['.ci/run', 'test/a/fixtures/a.telemetry.jsonl', 'LICENSE'])).toEqual([])
})

describe('the table of layers', () => {
  it('the table of layers lists every folder below the folders that may import it', () => {
    const folders = Object.keys(layers)
    for (const [folder, allowed] of Object.entries(layers)) {
      if (folder === 'testing') continue
      for (const entry of allowed) {
        const target = entry.split('/')[0] ?? ''
        expect(folders).toContain(target)
        expect(folders.indexOf(target), `${folder} → ${entry}`).toBeLessThan(
          folders.indexOf(folder),
        )
      }
    }
  })

  it.each(Object.entries(subLayers))(
    'the table of layers lists the sub-folders of %s in their order',
    (_, table) => {
      const subFolders = Object.keys(table)
      for (const [subFolder, allowed] of Object.entries(table)) {
        for (const target of allowed.filter((entry) => !entry.endsWith('.ts'))) {
          expect(subFolders).toContain(target)
          expect(subFolders.indexOf(target), `${subFolder} → ${target}`).toBeLessThan(
            subFolders.indexOf(subFolder),
          )
        }
      }
    },
  )

  it('the table of layers names only files that exist', () => {
    const paths = new Set(files.map(({ path }) => path))
    const ofLayers = Object.values(layers).flat()
    const ofSubLayers = Object.entries(subLayers).flatMap(([folder, table]) =>
      Object.values(table).flatMap((row) => row.map((entry) => `${folder}/${entry}`)),
    )
    const named = [...ofLayers, ...ofSubLayers].filter((entry) => entry.endsWith('.ts'))
    expect(named.filter((entry) => !paths.has(`src/${entry}`))).toEqual([])
  })
})

describe('docs/ARCHITECTURE.md', () => {
  const columns = ['layer', 'folder', 'may import']
  const table = documented(
    textOf('docs/ARCHITECTURE.md'),
    'Layers: what each folder may import',
    columns,
  )
  const rows = table.map((row) => row.split(' | ').map((cell) => cell.trim()))

  it('docs/ARCHITECTURE.md shows the table of layers', () => {
    const low = ['foundation', 'events', 'tasks', 'checkpoint', 'views', 'runtime']
    const shown = rows.map(([, folder = '', allowed = '']) => {
      const entries = allowed.replace('layers 0 to 2', low.join(', ')).split(', ')
      return [folder, entries.filter((entry) => entry !== '').toSorted()]
    })
    const inCode = Object.entries(layers).map(([folder, allowed]) => [folder, allowed.toSorted()])
    expect(Object.fromEntries(shown)).toEqual(Object.fromEntries(inCode))
    expect(shown).toHaveLength(inCode.length)
  })

  it('docs/ARCHITECTURE.md numbers every layer above those that it may import', () => {
    const numberOf = new Map(rows.map(([layer = '', folder = '']) => [folder, Number(layer)]))
    for (const [folder, allowed] of Object.entries(layers)) {
      if (folder === 'testing') continue
      for (const target of allowed.map((entry) => entry.split('/')[0] ?? '')) {
        expect(numberOf.get(target), `${folder} → ${target}`).toBeLessThan(
          numberOf.get(folder) ?? NaN,
        )
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

  it('docs/events.md lists the fields of every event in their order', () => {
    const event = makeEvent(vocabulary.TaskCreated, { session_id: 's', backend: '' })
    expect(documented(text, 'Fields of every event', ['field'])).toEqual([...baseFieldNames])
    expect(Object.keys(event).toSorted()).toEqual([...baseFieldNames].toSorted())
  })

  const rowOf = (eventClass: KnownEvent): string => {
    const fields = eventClass === ResourceUpdate ? [] : fieldsOf(eventClass)
    const own = fields.map(({ name, type }) => `${name}: ${type}`).join(', ')
    return `${eventClass.eventType} | ${own}`
  }

  it('docs/events.md lists every type with its fields', () => {
    const inCode = eventClasses.map(rowOf)
    const inDocument = documented(text, 'Types', ['event_type', 'fields of its own'])
    const rows = inDocument.map((row) => row.replace(/see \[ResourceUpdate\].*$/, ''))
    expect(differences('docs/events.md', rows, inCode)).toEqual([])
  })

  it('docs/events.md lists the fields of ResourceUpdate', () => {
    const inCode = fieldsOf(ResourceUpdate).map(({ name, type }) => `${name} | ${type}`)
    expect(documented(text, 'ResourceUpdate', ['field', 'type'])).toEqual(inCode)
  })

  it('docs/events.md lists the events of the library itself', () => {
    const columns = ['event_type', 'fields of its own']
    const inDocument = documented(text, 'Events of the library itself', columns)
    const rows = inDocument.map((row) => row.replaceAll(/ \([^)]*\)/g, ''))
    const own = Object.values<unknown>({ ...libraryEvents }).filter(isEventClass)
    expect(differences('docs/events.md', rows, own.map(rowOf))).toEqual([])
    const names = own.map(({ eventType }) => eventType)
    expect(differences('library-events.ts', names, namespacedEvents(files))).toEqual([])
  })

  it('docs/events.md is about events that the entry point exports', () => {
    const exported = new Set(textOf('src/index.ts').match(/\w+/g))
    expect(Object.keys(libraryEvents).filter((name) => !exported.has(name))).toEqual([])
  })
})

describe('docs/states.md', () => {
  const text = textOf('docs/states.md')

  it('docs/states.md lists the states', () => {
    const inCode = taskStates.map((state) => `${state} | ${hasEnded(state) ? 'yes' : 'no'}`)
    expect(documented(text, 'States', ['state', 'has ended'])).toEqual(inCode)
  })

  it('docs/states.md lists the transitions', () => {
    const events = new Map(Object.entries(stimulusEvents))
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

  it('docs/errors.md lists every class', () => {
    expect(compare('Classes', ['class', 'extends'], errorClasses(files))).toEqual([])
  })

  it('docs/errors.md lists every code', () => {
    const thrown = errorCodes(files).filter((row) => !row.endsWith(' | HttpError'))
    expect(compare('Codes', ['code', 'class'], thrown)).toEqual([])
  })

  it('docs/errors.md lists every code that only clients of the server see', () => {
    const seen = errorCodes(files).filter((row) => row.endsWith(' | HttpError'))
    const codes = [...seen.map((row) => row.split(' ')[0] ?? ''), ...numberCodes]
    expect(compare('Codes over HTTP', ['code'], codes)).toEqual([])
  })

  it('docs/errors.md lists every code of inference with its HTTP status', () => {
    const codes = Object.entries(statusByCode).map(([code, status]) => `${code} | ${status}`)
    expect(compare('Codes of inference', ['code', 'status'], codes)).toEqual([])
  })

  it('docs/errors.md has an anchor for every code, and every link to one leads there', () => {
    const anchors = new Set([...text.matchAll(/<a id="(\w+)">/g)].map(([, id]) => id))
    const codes = [...errorClasses(files), ...errorCodes(files), ...warningCodes(files)]
    const linked = files
      .filter(({ path }) => path.endsWith('.md'))
      .flatMap((one) => [...one.text.matchAll(/errors\.md#(\w+)/g)])
    const wanted = [
      ...codes.map((row) => row.split(' ')[0]),
      ...Object.keys(statusByCode),
      ...linked.map(([, id]) => id),
    ]
    expect(wanted.filter((code) => !anchors.has(code))).toEqual([])
  })

  it('docs/errors.md lists every warning', () => {
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

  it('a contract table is read from the code', () => {
    expect(errorClasses([source])).toEqual(['LostError | TuttiError', 'GoneError | LostError'])
    expect(errorCodes([source])).toEqual(['GoneForGood | GoneError'])
    expect(warningCodes([source])).toEqual(['Late', 'Slow'])
    expect(namespacedEvents([source])).toEqual(['tutti.Lost'])
  })

  it('a contract table differs when a row is stale, missing, or the table is not there', () => {
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
  it('the version is the same in the code and in package.json', () => {
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
