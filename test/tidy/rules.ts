/** The rules of the tidy test, each with examples that break it and examples that do not. */

import { hiddenFailures, longProse, missingFiles, missingScripts } from './documents.ts'
import { wrongDependencies } from './documents.ts'
import { bannedGlobals, directReads, foreignModules } from './foreign.ts'
import {
  examplesOfPrivateFiles,
  impureDecisions,
  importCycles,
  importsAcrossLayers,
  tasksAtBackends,
} from './layers.ts'
import {
  defaultExports,
  droppedPromises,
  emptyNames,
  fullFolders,
  longFiles,
  longFunctions,
  longLines,
  missingOpenings,
  ownOnces,
  strayComments,
  straysFromTheMirror,
  unparsable,
} from './shape.ts'
import { rejectedNames } from './naming.ts'
import type { SourceFile } from './source-file.ts'
import {
  bareRowTitles,
  earlyReturns,
  ownChoices,
  testsPutAside,
  titlesWithoutSubject,
  untestedFaults,
} from './tests.ts'
import { machineTraces } from './traces.ts'

/** A vocabulary that rejects one word. */
const rejecting = (reach: string): string =>
  `## Rejected words\n\n| Frobnik | Adapter | ${reach} |\n`
/** The record on dependencies with one package in each of its tables. */
const dependencyRecord = (...packages: string[]): string =>
  ['Dependencies', 'Optional peers', 'Development only']
    .map((heading, at) => `## ${heading}\n\n| package |\n|---|\n| \`${packages[at]}\` |\n`)
    .join('\n')
const manifest = JSON.stringify({
  dependencies: { a: '1.0.0' },
  peerDependencies: { b: '^1.0.0' },
  devDependencies: { b: '1.0.0', c: '1.0.0' },
})
const lines = (count: number): string => 'x()\n'.repeat(count)
const words = (count: number): string => 'x '.repeat(count)

/** A rule, with small trees (path to text) that break it and some that only look so. */
interface Rule {
  readonly judge: (files: readonly SourceFile[]) => string[]
  readonly bad: readonly Readonly<Record<string, string>>[]
  readonly good?: readonly Readonly<Record<string, string>>[]
}

export const rules: Readonly<Record<string, Rule>> = {
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
      { 'src/views/fold.ts': `import { a } from '../require.ts'` },
      { 'src/novelty/a.ts': '' },
      { 'src/inference/guardrails/rules.ts': `import { a } from '../server/server.ts'` },
      { 'src/inference/engines/echo.ts': `import { a } from '../inference-backend.ts'` },
      { 'src/telemetry/novelty/a.ts': `import { a } from '../bus.ts'` },
    ],
    good: [
      { 'src/session/session.ts': `import type { T } from '../telemetry/manager.ts'` },
      { 'src/session/session.ts': `import type { B } from '../backends/backend.ts'` },
      { 'src/cli/main.ts': `import { Session } from '../index.ts'` },
      { 'src/index.ts': `export { a } from './telemetry/manager.ts'` },
      { 'src/testing/index.ts': `export { a } from './manual-clock.ts'` },
      { 'src/hpc/index.ts': `export { a } from './allocation.ts'` },
      { 'src/telemetry/spans/span-registry.ts': `import { a } from '../metrics/task-table.ts'` },
      { 'src/inference/engines/llama/a.ts': `import { a } from '../../generation/batcher.ts'` },
      { 'src/inference/inference-service.ts': `import { a } from './server/server.ts'` },
    ],
  },
  'backends look at specs, not at tasks': {
    judge: tasksAtBackends,
    bad: [
      { 'src/backends/local/a.ts': 'if (task instanceof ComputeTask) run()' },
      { 'src/cluster/a.ts': 'const isDefault = spec.resources === defaultResources' },
    ],
    good: [
      { 'src/core/a.ts': 'if (item instanceof Task) take(item)' },
      { 'src/backends/a.ts': 'if (error instanceof TaskError) isDefaultRequest(spec.resources)' },
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
  'lines and table cells of documents are short': {
    judge: longProse,
    bad: [
      { 'docs/a.md': `${words(1)}${'x'.repeat(199)}\n` },
      { 'docs/a.md': `| a | b |\n|---|---|\n| a | ${words(41)} |\n` },
    ],
    good: [
      { 'docs/a.md': `${'x'.repeat(200)}\n\`\`\`\n${'x'.repeat(201)}\n\`\`\`\n` },
      { 'docs/a.md': `| ${words(40)} | ${words(40)} |\n` },
      { 'docs/reference/a.md': `| ${words(41)} |\n` },
    ],
  },
  'programs that wait for tasks tell which have failed': {
    judge: hiddenFailures,
    bad: [
      { 'examples/a.ts': 'await session.waitTasks(tasks)' },
      { 'docs/a.md': 'text\n```ts\nawait session.waitTasks(tasks)\n```\n' },
    ],
    good: [
      { 'docs/a.md': '```ts\nawait session.waitTasks(tasks)\nprocess.exitCode = 1\n```\n' },
      { 'docs/a.md': '`await session.waitTasks(tasks)` waits.\n```ts\nawait task\n```\n' },
    ],
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
  'files are read by path in one file, which refuses pipes': {
    judge: directReads,
    bad: [
      { 'src/view/a.ts': `import { readFileSync, statSync } from 'node:fs'` },
      { 'src/view/a.ts': `import { open as openFile } from 'node:fs/promises'` },
      { 'src/backends/sampling/cgroup.ts': `import { openSync } from 'node:fs'` },
    ],
    good: [
      { 'src/foundation/regular-file.ts': `import { openSync, readFileSync } from 'node:fs'` },
      { 'src/view/a.ts': `import { open } from '../wire/envelope.ts'` },
      { 'src/view/a.ts': `import { statSync, writeFileSync } from 'node:fs'` },
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
  'decisions of the cluster neither wait nor read a clock': {
    judge: impureDecisions,
    bad: [
      { 'src/cluster/protocol/a.ts': `import { sleep } from '../../foundation/clock.ts'` },
      { 'src/cluster/protocol/a.ts': `import { once } from 'node:events'` },
      { 'src/cluster/protocol/a.ts': `import { a } from '../broker/broker.ts'` },
      { 'src/cluster/protocol/a.ts': 'async function a() {}' },
      { 'src/cluster/protocol/a.ts': 'const a = async () => 1' },
      { 'src/cluster/protocol/a.ts': 'const a = Promise.resolve(1)' },
      { 'src/cluster/protocol/a.ts': 'const a = Date.now()' },
      { 'src/cluster/protocol/a.ts': 'a.sort((b, c) => b.localeCompare(c))' },
    ],
    good: [
      { 'src/cluster/protocol/a.ts': `import type { O } from '../broker/stored-objects.ts'` },
      { 'src/cluster/io/driver/a.ts': 'async function a() {}' },
    ],
  },
  'files are short': {
    judge: longFiles,
    bad: [{ 'src/view/a.ts': lines(501) }, { 'test/view/a.test.ts': lines(501) }],
    good: [{ 'src/view/a.ts': lines(500) }, { 'test/view/a.test.ts': lines(500) }],
  },
  'folders have few files': {
    judge: fullFolders,
    bad: [Object.fromEntries(Array.from({ length: 16 }, (_, at) => [`src/view/a${at}.ts`, '']))],
    good: [Object.fromEntries(Array.from({ length: 15 }, (_, at) => [`src/view/a${at}.ts`, '']))],
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
  'agents and drivers handle every rejection': {
    judge: droppedPromises,
    bad: [
      { 'src/cluster/a.ts': 'void send()' },
      { 'src/cluster/io/agent/a.ts': 'const a = (): void => void send()' },
      { 'src/cluster/bundles/a.ts': 'void send()' },
      { 'src/hpc/agents/a.ts': 'void end()' },
      { 'src/cli/agent.ts': 'void agent.close()' },
    ],
    good: [
      { 'src/cluster/a.ts': 'send().catch(report); const a = (): void => {}' },
      { 'src/core/a.ts': 'void send()' },
    ],
  },
  'what starts or stops once does so by `once`': {
    judge: ownOnces,
    bad: [
      { 'src/core/a.ts': 'this.#closing ??= this.#closeOnce()' },
      { 'src/core/a.ts': 'starting ??= start(options)' },
      { 'src/core/a.ts': 'this.#stopped ??= new Promise((resolve) => stop(resolve))' },
    ],
    good: [{ 'src/core/a.ts': 'this.#closing ??= match.until; const close = once(() => end())' }],
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
  'a comment stands before what it is about': {
    judge: strayComments,
    bad: [{ 'src/view/a.ts': '/** File. */\n\n/** One. */\n/** Other. */\nexport const a = 1' }],
    good: [{ 'src/view/a.ts': '/** File. */\n/** One. */\nexport const a = 1' }],
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
  'no test returns before its assertions': {
    judge: earlyReturns,
    bad: [
      { 'test/a.test.ts': `it('a', () => { if (b === undefined) return\nexpect(b).toBe(1) })` },
      { 'test/a.test.ts': `it.each([1])('a', async () => { if (b) { return } })` },
      { 'test/a.test.ts': `needs(strace)('a', function () { return })` },
      { 'test/a.test.ts': `assertProperty(fc.property(fc.nat(), (n) => { if (n) return }))` },
    ],
    good: [
      { 'test/a.test.ts': `it('a', () => { const b = () => { return }; return expect(b).ok })` },
      { 'test/a.test.ts': `function until() { if (a) return }` },
    ],
  },
  'random cases, large counts and time limits of tests are chosen in one place': {
    judge: ownChoices,
    bad: [
      { 'test/a.test.ts': 'fc.assert(fc.property())' },
      { 'test/a.test.ts': 'const at = Math.random()' },
      { 'test/a.test.ts': 'await vi.waitFor(() => expect(a).toBe(1))' },
      { 'test/a.test.ts': `const isLong = process.env['TUTTI_LONG'] === '1'` },
    ],
    good: [
      { 'test/a.test.ts': 'assertProperty(fc.property())' },
      { 'test/property.ts': 'fc.assert(property)' },
    ],
  },
  'a title with a row number says what happens': {
    judge: bareRowTitles,
    bad: [
      { 'test/a.test.ts': `it('row 7', () => {})` },
      { 'test/a.test.ts': `describe('row 7: signals', () => {})` },
      { 'test/a.test.ts': 'it(`row 7: ${name}`, () => {})' },
    ],
    good: [
      { 'test/a.test.ts': `it('row 7: a missing program fails its task', () => {})` },
      { 'test/a.test.ts': 'it(`rows 7 and 8: ${count} kills lose nothing`, () => {})' },
    ],
  },
  'the title of a test has a subject': {
    judge: titlesWithoutSubject,
    bad: [
      { 'test/a.test.ts': `it('is refused', () => {})` },
      { 'test/a.test.ts': `describe('a queue', () => { it('gives back jobs', () => {}) })` },
      { 'test/a.test.ts': `it.each([1])('row 7: samples every node of %i', () => {})` },
      { 'test/a.test.ts': `needs(strace)('what is left is removed', () => {})` },
      { 'test/a.test.ts': 'it(`of ${count} tasks one fails`, () => {})' },
    ],
    good: [
      { 'test/a.test.ts': `it('a queue gives back jobs', () => {})` },
      { 'test/a.test.ts': `describe('is refused', () => { it('starts that fail are few') })` },
      { 'test/a.test.ts': `it('retries: a task that failed runs again', () => {})` },
    ],
  },
  'every row of docs/faults.md has a test or a reason': {
    judge: untestedFaults,
    bad: [
      { 'docs/faults.md': '| 7 | a | b | c | yes |' },
      { 'docs/faults.md': '| 7 | a | b | c | not tested: |' },
      {
        'docs/faults.md': '| 7 | a | b | c | not tested: later |',
        'test/a.test.ts': `it('row 7: it works', () => {})`,
      },
      { 'docs/faults.md': '', 'test/a.test.ts': `it('row 7: it works', () => {})` },
    ],
    good: [
      {
        'docs/faults.md': '| 7 | a | b | c | yes |\n| 8 | a | b | c | not tested: later |',
        'test/a.test.ts': `it('row 7: it works', () => {})`,
      },
    ],
  },
  'documents name files that exist': {
    judge: missingFiles,
    bad: [
      { 'docs/a.md': 'see `src/novelty/a.ts`' },
      { 'docs/a.md': 'see `novelty/a.ts`' },
      { 'docs/a.md': 'see `novelty.ts`' },
      { 'README.md': 'see [that](docs/novelty.md#part)' },
      { 'README.md': 'the folder `src/novelty/`' },
    ],
    good: [
      {
        'docs/a.md': '`core/a.ts`, `a.ts`, [b](b.md#c), `src/core/`',
        'src/core/a.ts': '',
        'docs/b.md': '',
      },
      { 'docs/a.md': '```ts\nimport { a } from `novelty.ts`\n```\n[a](https://example.org/a.md)' },
    ],
  },
  'documents name scripts that exist': {
    judge: missingScripts,
    bad: [
      { 'package.json': '{}', 'README.md': '`npm run lint`' },
      { 'package.json': '{}', '.ci/run': 'step lint npm run --silent lint' },
      { 'package.json': '{}', 'README.md': '`npm test`' },
    ],
    good: [{ 'package.json': '{"scripts":{"test:long":"a"}}', 'docs/a.md': '`npm run test:long`' }],
  },
  'decision records name the dependencies of package.json': {
    judge: wrongDependencies,
    bad: [
      {
        'package.json': manifest,
        'docs/decisions/0006-dependencies.md': dependencyRecord('a', 'b', 'c`, `d'),
      },
      {
        'package.json': manifest.replace('"c"', '"d":"1.0.0","c"'),
        'docs/decisions/0006-dependencies.md': dependencyRecord('a', 'b', 'c'),
      },
      {
        'package.json': manifest,
        'docs/decisions/0006-dependencies.md': dependencyRecord('a', 'b', 'c'),
        'docs/decisions/0007-other.md': 'It is `c` 1.0.1 that decides.',
      },
    ],
    good: [
      {
        'package.json': manifest,
        'docs/decisions/0006-dependencies.md': dependencyRecord('a', 'b', 'c'),
        'docs/decisions/0007-other.md': 'It is `c` 1.0.0 that decides, not `e` 2.0.0.',
      },
    ],
  },
  'names and texts keep to docs/naming.md': {
    judge: rejectedNames,
    bad: [
      { 'docs/naming.md': rejecting('any text'), 'src/a/a.ts': '// a frobnik is here' },
      { 'docs/naming.md': rejecting('any text'), 'docs/a.md': 'The Frobnik.' },
      { 'docs/naming.md': rejecting('identifier'), 'src/a/a.ts': 'const frobnik = 1' },
      { 'docs/naming.md': rejecting('identifier'), 'src/a/frobnik.ts': '' },
      { 'docs/naming.md': rejecting('type name'), 'bench/a.ts': 'class Frobnik {}' },
      { 'docs/naming.md': rejecting('beginning'), 'src/a/a.ts': 'const frobnikOf = 1' },
    ],
    good: [
      { 'docs/naming.md': rejecting('identifier'), 'src/a/a.ts': '// a frobnik is here' },
      { 'docs/naming.md': rejecting('type name'), 'src/a/a.ts': 'const frobnik = 1' },
      { 'docs/naming.md': rejecting('identifier'), 'src/a/a.ts': 'const frobnikOf = 1' },
      { 'docs/naming.md': rejecting('beginning'), 'src/a/a.ts': 'const frobniked = 1' },
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
