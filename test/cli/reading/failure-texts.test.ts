import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, expect, it } from 'vitest'
import { linesOf, recordFolder } from './record-file.ts'
import { runHere } from '../run-command.ts'
import { viewEvent } from '../../views/view-event.ts'

const folder = recordFolder()
afterAll(() => folder.remove())

const read = async (...args: readonly string[]): Promise<string> =>
  (await runHere(folder.path, args)).stdout

function writeFailures(
  name: string,
  failed: Readonly<Record<string, Readonly<Record<string, unknown>>>>,
): string {
  const path = join(folder.path, `${name}.1.telemetry.jsonl`)
  const events = Object.entries(failed).flatMap(([uid, attributes]) => [
    viewEvent('TaskCreated', uid),
    viewEvent('TaskFailed', uid, { attributes }),
  ])
  const started = viewEvent('SessionStarted', null, { event_time: 1 })
  writeFileSync(path, linesOf([started, ...events, viewEvent('SessionEnded')], name))
  return path
}

it('failures, explain: a message of several lines is shown in full, once', async () => {
  const error_message = 'multi\nline two\n  line three'
  const error_stack = `MyErr: ${error_message}\n    at thrower (file:///x/fns.mjs:8:3)`
  const path = writeFailures('s-lines', {
    a: { error_type: 'MyErr', error_message, error_stack },
  })
  for (const text of [await read('failures', path), await read('explain', 'a', path)]) {
    expect(text).toMatch(/MyErr "multi".*\n/)
    expect(text).toContain('    line two\n')
    expect(text.match(/line three/g)).toHaveLength(1)
    expect(text).toContain('    at thrower (file:///x/fns.mjs:8:3)\n')
  }
})

it('failures: an error of tutti has its code, in the text and as JSON', async () => {
  const path = writeFailures('s-code', {
    a: {
      error_type: 'InferenceError',
      error_message: 'inference-0 was lost',
      'tutti.error_code': 'engine_lost',
    },
    b: { error_type: 'RangeError', error_message: 'bad seed' },
  })
  const text = await read('failures', path)
  expect(text).toContain('InferenceError (engine_lost) "inference-0 was lost"')
  expect(text).toContain('RangeError "bad seed"')
  const { groups } = JSON.parse(await read('failures', path, '--json')) as {
    groups: { error_code: string | null }[]
  }
  expect(new Set(groups.map((one) => one.error_code))).toEqual(new Set(['engine_lost', null]))
})

it('failures, explain: a message beyond the title is shown in full', async () => {
  const error_message = `${'word '.repeat(60)}end`
  const path = writeFailures('s-long', { a: { error_type: 'MyErr', error_message } })
  for (const text of [await read('failures', path), await read('explain', 'a', path)]) {
    expect(text).toContain(`    ${error_message}\n`)
  }
})

it('failures, report: tasks that never ran have no frames, and follow the cause', async () => {
  const error_stack = 'x: y\n    at toDependencyFailure (/app/lib/workflow/index.js:55:10)'
  const never = (uid: string) => ({
    error_type: 'DependencyFailedError',
    error_message: `task ${uid} cannot run: a failed: RangeError: bad seed 3`,
    error_stack,
    'tutti.root_task': 'a',
  })
  const path = writeFailures('s-never', {
    a: { error_type: 'RangeError', error_message: 'bad seed 3' },
    b: never('b'),
    c: never('c'),
  })
  const text = await read('failures', path)
  expect(text).toContain(
    '3 tasks failed, 1 cause; 2 of them never ran, because what they need has failed',
  )
  expect(text).toMatch(/1 x simulate: RangeError[^]*2 x simulate: DependencyFailedError "a failed:/)
  const page = await read('report', path, '-o', '-')
  const section = /<section aria-labelledby="failures".*?<\/section>/s.exec(page)?.[0] ?? ''
  expect(section).toContain('DependencyFailedError')
  for (const shown of [text, await read('explain', 'c', path), section]) {
    expect(shown).not.toContain('toDependencyFailure')
  }
})

it('report: what a program has printed has a heading, and code in a hint is marked', async () => {
  const path = writeFailures('s-page', {
    a: {
      task_type: 'compute',
      error_type: 'ExecutableFailedError',
      error_message: 'sim exited with code 3',
      error_hint: 'Set `delaySeconds` or <b>.',
      stdout_tail: 'out 1',
      stderr_tail: 'err 1',
    },
  })
  const page = await read('report', path, '-o', '-')
  expect(page).toContain('Set <code>delaySeconds</code> or &lt;b&gt;.')
  expect(page).toMatch(/the end of its stderr<\/p><pre[^>]*>err 1</)
  expect(page).toMatch(/the end of its stdout<\/p><pre[^>]*>out 1</)
})
