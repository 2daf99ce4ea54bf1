import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { ConcurrentBackend } from '../../../src/backends/local/concurrent-backend.ts'
import { WorkflowEngine } from '../../../src/workflow/workflow-engine.ts'
import { runHere } from '../run-command.ts'
import { recordFolder } from './record-file.ts'

const folder = recordFolder()
afterAll(() => folder.remove())
const read = (...args: readonly string[]) => runHere(folder.path, args)
const readJson = async (...args: readonly string[]): Promise<Record<string, never>> =>
  JSON.parse((await read(...args, '--json')).stdout) as Record<string, never>

const load = (file: string): string => file
const parse = (text: string): number => {
  if (text === 'bad.pdf') throw new Error('no pages')
  return text.length
}

/** Two documents, one of which fails, and a page in a scope inside that of the first one. */
beforeAll(async () => {
  const backend = await ConcurrentBackend.create({ workers: 1, workDir: folder.path })
  await using flow = await WorkflowEngine.create({ backend, id: 's-scopes' })
  await flow.startTelemetry({ checkpointPath: folder.path })
  const loads = flow.functionTask(load, { uid: (file) => `load-${String(file)}` })
  const parses = flow.functionTask(parse)
  const sums = flow.functionTask((sizes: number[]) => sizes.length)
  const document = (file: string) =>
    flow.scope(`doc ${file}`, () => parses.with({ uid: `parse-${file}` })(loads(file)))
  const good = document('good.pdf')
  await good
  await flow.scope('doc good.pdf', () =>
    flow.scope('page 1', () => parses.with({ uid: 'page-1' })('p')),
  )
  const bad = document('bad.pdf')
  await Promise.allSettled([good, bad, sums.with({ uid: 'sum' })([good, bad])])
})

describe('explain of a task with dependencies', () => {
  it('explain: names the dependencies of a task, also after they have ended', async () => {
    const { stdout } = await read('explain', 'parse-good.pdf')
    expect(stdout).toContain('  depends on load-good.pdf (load, DONE)\n')
    expect(stdout).toContain('  in scope doc good.pdf\n')
    const { stdout: sum } = await read('explain', 'sum')
    expect(sum).toContain(
      '  depends on parse-bad.pdf (parse, FAILED), parse-good.pdf (parse, DONE); ' +
        'parse-bad.pdf ended last\n',
    )
    const { dependencies, waits_for } = await readJson('explain', 'sum')
    expect(dependencies).toEqual([
      { uid: 'parse-bad.pdf', name: 'parse', state: 'FAILED', ended: expect.any(Number) },
      { uid: 'parse-good.pdf', name: 'parse', state: 'DONE', ended: expect.any(Number) },
    ])
    expect(waits_for).toEqual([])
  })
})

describe('scopes of a workflow', () => {
  it('tasks: shows the scope of each task, and with --scope only those inside of it', async () => {
    const { stdout } = await read('tasks')
    expect(stdout).toMatch(/^task +state +name +scope /)
    expect(stdout).toMatch(/\nsum .* - /)
    expect(stdout).toMatch(/\npage-1 .* page 1 /)
    const { tasks, total } = await readJson('tasks', '--scope', 'doc good.pdf')
    expect(total).toBe(3)
    const rows = tasks as unknown as readonly { uid: string; scope: string }[]
    expect(rows.map(({ uid, scope }) => [uid, scope])).toEqual([
      ['load-good.pdf', 'doc good.pdf'],
      ['parse-good.pdf', 'doc good.pdf'],
      ['page-1', 'page 1'],
    ])
  })

  it('failures: names the scope of a failure, and --scope selects', async () => {
    const { stdout } = await read('failures')
    expect(stdout).toContain('parse-bad.pdf in scope doc bad.pdf on ')
    expect((await read('failures', '--scope', 'doc bad.pdf')).stdout).toContain('1 task failed')
    const { stdout: none } = await read('failures', '--scope', 'doc good.pdf')
    expect(none).toContain('no task has failed')
  })

  it('tail: --scope shows the events of a scope and of its tasks', async () => {
    const { stdout } = await read('tail', '--scope', 'doc bad.pdf', '-n', '100', '--json')
    const events = stdout
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as Record<string, string>)
    expect(events[0]?.['event_type']).toBe('tutti.WorkflowStarted')
    expect(events.at(-1)?.['event_type']).toBe('tutti.WorkflowEnded')
    const tasks = new Set(events.map(({ task_id }) => task_id ?? null))
    expect(tasks).toEqual(new Set([null, 'load-bad.pdf', 'parse-bad.pdf']))
  })

  it('report: has the scopes of tasks, and with --scope only the tasks inside of it', async () => {
    const page = join(folder.path, 'r.html')
    await read('report', 'latest', '-o', page)
    const whole = readFileSync(page, 'utf8')
    expect(whole).toContain('"doc good.pdf"]')
    expect(whole).toContain('in scope doc bad.pdf')
    expect(whole).toContain('What bounded this run')
    await read('report', 'latest', '-o', page, '--scope', 'doc good.pdf')
    const one = readFileSync(page, 'utf8')
    expect(one).toContain('Only the tasks of scope doc good.pdf.')
    expect(one).toContain('All 3 tasks succeeded')
    expect(one).not.toContain('parse-bad.pdf')
    expect(one).not.toContain('What bounded this run')
  })

  it.each(['tasks', 'failures', 'tail', 'report'])(
    '%s: a scope that no task has is an error with the nearest one',
    async (command) => {
      const { code, stderr } = await read(command, 'latest', '--scope', 'doc god.pdf')
      expect(code).toBe(2)
      expect(stderr).toContain('--scope: no task of the record has "doc god.pdf"')
      expect(stderr).toContain('doc good.pdf')
    },
  )

  it.each(['tasks', 'failures', 'tail', 'report'])(
    '%s: an empty --scope is refused, and does not mean all tasks',
    async (command) => {
      const { code, stdout, stderr } = await read(command, 'latest', '--scope', '')
      expect([code, stdout]).toEqual([2, ''])
      expect(stderr).toContain('--scope <id>')
      expect(stderr).toContain('expected a value that is not empty')
    },
  )
})
