import { writeFileSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, describe, expect, it } from 'vitest'
import { acquireLock, lockPathOf } from '../../../src/checkpoint/lock.ts'
import { nodeCommand, PseudoTerminal } from '../../pseudo-terminal.ts'
import { needs, requireCommand } from '../../require.ts'
import { viewEvent } from '../../views/view-event.ts'
import { main, runHere } from '../run-command.ts'
import { linesOf, recordFolder } from './record-file.ts'

const folder = recordFolder()
afterAll(() => folder.remove())

const now = Date.now() / 1000 - 60
const started = (uid: string) =>
  ['TaskCreated', 'TaskSubmitted', 'TaskQueued', 'TaskStarted'].map((type) =>
    viewEvent(type, uid, { event_time: now, attributes: { worker_id: `n1/local/${uid}` } }),
  )
const reported = (uid: string, fraction: number, text: string | null) =>
  viewEvent('tutti.TaskProgress', uid, { event_time: now + 1, fraction, text })

const path = join(folder.path, 's-1.5.telemetry.jsonl')
writeFileSync(
  path,
  linesOf([
    viewEvent('SessionStarted', null, { event_time: now }),
    ...['talks', 'silent', 'retried', 'ended'].flatMap(started),
    reported('talks', 0.7, 'step 6'),
    reported('talks', 0.801, 'step 7\u001B[2J'),
    reported('retried', 0.5, 'half'),
    viewEvent('tutti.TaskAttempt', 'retried', { event_time: now + 2, retry_at: now + 2 }),
    viewEvent('tutti.AttemptStarted', 'retried', { event_time: now + 3, attempt: 2 }),
    reported('ended', 0.9, null),
    viewEvent('TaskCompleted', 'ended', { event_time: now + 3, duration_seconds: 3 }),
  ]),
)

/** As if this process wrote the records of the session. */
function acquired(sessionId: string): Disposable {
  const lock = acquireLock(lockPathOf(folder.path, sessionId))
  return { [Symbol.dispose]: () => lock.release() }
}

const written = (): Disposable => acquired('s-1')

const read = async (...args: readonly string[]): Promise<string> =>
  (await runHere(folder.path, [...args, path])).stdout

describe("a task's own progress", () => {
  it('tail: shows what a task reports about its progress', async () => {
    const lines = (await read('tail', '--type', 'tutti.TaskProgress')).trimEnd().split('\n')
    expect(lines).toEqual([
      expect.stringMatching(/tutti\.TaskProgress {2}talks {2}simulate {2}70 % \(step 6\)$/),
      expect.stringMatching(/ {2}talks {2}simulate {2}80 % \(step 7\\u001b\[2J\)$/),
      expect.stringMatching(/ {2}retried {2}simulate {2}50 % \(half\)$/),
      expect.stringMatching(/ {2}ended {2}simulate {2}90 %$/),
    ])
  })

  it('top: shows the latest progress of each running task', async () => {
    using _ = written()
    const screen = await read('top')
    expect(screen).toMatch(/^running task +progress +for +name +worker$/m)
    expect(screen).toMatch(/^talks +80 % \(step 7\\u001b\[2J\) +\d/m)
    // A new attempt starts from zero.
    expect(screen).toMatch(/^retried +- +\d/m)
    expect(screen).not.toMatch(/^ended /m)
    const { running_tasks: running } = JSON.parse(await read('top', '--json')) as {
      running_tasks: readonly { readonly uid: string }[]
    }
    expect(running.find(({ uid }) => uid === 'talks')).toMatchObject({
      progress: { fraction: 0.801, text: 'step 7\u001B[2J', time: now + 1 },
    })
    expect(running.find(({ uid }) => uid === 'silent')).toMatchObject({ progress: null })
  })

  it('explain: says what a running task has reported, and when', async () => {
    using _ = written()
    expect(await read('explain', 'talks')).toMatch(
      /^ {2}reported at \d\d:\d\d:\d\d\.\d{3}: 80 % \(step 7\\u001b\[2J\)$/m,
    )
    expect(await read('explain', 'silent')).not.toContain('reported')
    expect(JSON.parse(await read('explain', 'talks', '--json'))).toMatchObject({
      task: { uid: 'talks', progress: { fraction: 0.801 } },
    })
  })
})

describe('the keys of top', () => {
  const script = requireCommand('script')
  const size = { columns: 80, rows: 24 }
  /** Then says how it ended, and that the terminal is as before. */
  const start = (record = path): PseudoTerminal => {
    const top = nodeCommand(main, 'top', record)
    const command = `stty -g > before; ${top}; echo "code $?"; stty -g > after`
    return new PseudoTerminal(command, size, folder.path)
  }
  const isRestored = async (): Promise<boolean> => {
    const [before, after] = await Promise.all(
      ['before', 'after'].map((name) => readFile(join(folder.path, name), 'utf8')),
    )
    return before === after && before !== ''
  }

  for (const [key, name, code] of [
    ['q', 'q', 0],
    ['\u0003', 'Ctrl-C', 130],
  ] as const) {
    needs(script)(`top: ${name} ends it and restores the terminal`, async () => {
      using _ = written()
      const terminal = start()
      await terminal.shows(/^running task /m)
      // Other keys do nothing.
      terminal.type('x')
      terminal.type(key)
      expect(await terminal.ended).toBe(0)
      expect(terminal.screen.lines.at(-1)).toBe(`code ${code}`)
      expect(await isRestored()).toBe(true)
    })
  }

  needs(script)('top: of more names than rows, those that run are on the screen', async () => {
    const many = join(folder.path, 's-2.5.telemetry.jsonl')
    const names = Array.from({ length: 45 }, (_, at) => `name-${at}`)
    const running = new Set(['name-43', 'name-44'])
    const events = names.flatMap((name) => [
      ...started(name).map((event) => ({
        ...event,
        attributes: { ...event.attributes, executable: name },
      })),
      ...(running.has(name)
        ? [reported(name, 0.5, `half of ${name}`)]
        : [viewEvent('TaskCompleted', name, { event_time: now + 3, duration_seconds: 3 })]),
    ])
    const begin = viewEvent('SessionStarted', null, { event_time: now })
    writeFileSync(many, linesOf([begin, ...events]).replaceAll('"s-1"', '"s-2"'))
    using _ = acquired('s-2')
    const terminal = start(many)
    await terminal.shows(/half of name-44/)
    const screen = terminal.screen.lines.join('\n')
    expect(screen).toMatch(/^name-44 /m)
    expect(screen).toMatch(/half of name-43/)
    expect(screen).toMatch(/^and \d+ other names$/m)
    terminal.type('q')
    expect(await terminal.ended).toBe(0)
  })
})
