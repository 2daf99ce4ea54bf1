import { spawn, spawnSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { stripVTControlCharacters } from 'node:util'
import { afterAll, describe, expect, it } from 'vitest'
import { nameColumn, tableLines, wrapLine } from '../../../src/cli/reading/text.ts'
import { displayWidth } from '../../../src/foundation/text/display-width.ts'
import { needs, requireCommand } from '../../require.ts'
import { builtMain, runHere, watch } from '../run-command.ts'
import { recordFolder, writeRecord } from './record-file.ts'

const folder = recordFolder()
afterAll(() => folder.remove())

const longName = `/opt/${'simulation-of-a-protein-'.repeat(8)}end`
const path = writeRecord(folder.path, {
  nodes: [{ nodeId: 'a-node-with-a-long-name.cluster.example.org', cores: 4 }],
  tasks: [
    { uid: 'sim-1', name: longName, start: 1, end: 4, worker: 'n1/local/w1' },
    {
      uid: 'sim-2',
      name: longName,
      start: 1,
      end: 3,
      worker: 'n1/local/w2',
      endType: 'TaskFailed',
    },
    { uid: `uid-${'x'.repeat(150)}`, start: 2, end: 9, worker: 'n1/local/w3' },
  ],
  end: 10,
})

/** The visible text on a terminal with this many columns. */
async function linesHere(columns: number, args: readonly string[]): Promise<string[]> {
  const { stdout, stderr } = await runHere(folder.path, args, { columns })
  expect(stdout).not.toContain('\u001B')
  return (stdout + stderr).trimEnd().split('\n')
}

/** The same on a real terminal, by a process of its own. */
async function linesAt(columns: number, args: readonly string[]): Promise<string[]> {
  const words = [process.execPath, builtMain, ...args].map((word) => `"${word}"`).join(' ')
  const command = `stty cols ${columns}; exec ${words}`
  const child = spawn('script', ['-qec', command, '/dev/null'], {
    stdio: 'pipe',
    cwd: folder.path,
  })
  const { stdout } = await watch(child).ended
  if (args[0] !== 'run') expect(stdout).not.toContain('\u001B')
  return stripVTControlCharacters(stdout).trimEnd().split(/\r?\n/)
}

const script = requireCommand('script')
const commands: readonly (readonly string[])[] = [
  ['status', path],
  ['tasks', path],
  ['failures', path],
  ['explain', 'sim-2', path],
  ['journal', 'verify', path],
  ['doctor'],
  ['--help'],
  ['run', '--help'],
  ['status', 'no-such-session'],
  ['status', '--no-such-option'],
]

describe('a narrow terminal', () => {
  it('tasks: uids that begin alike stay different in 60 columns', async () => {
    const uids = [1, 2, 3].map((one) => `python3-solve-the-equation-of-flow-${one}`)
    const tasks = uids.map((uid) => ({ uid, start: 1, end: 2, worker: 'n1/local/w1' }))
    const nodes = [{ nodeId: 'n1', cores: 4 }]
    const own = writeRecord(folder.path, { nodes, tasks, end: 3 }, { sessionId: 's-uids' })
    for (const columns of [20, 60]) {
      const [, ...rows] = await linesHere(columns, ['tasks', own])
      expect(new Set(rows.map((row) => row.split(' ')[0])).size).toBe(3)
    }
  })

  for (const args of commands) {
    const name = args.filter((word) => word !== path).join(' ')
    it(`row 96: no line of "tutti ${name}" is wider than 20 or 40 columns`, async () => {
      for (const columns of [20, 40]) {
        const lines = await linesHere(columns, args)
        expect(lines.length).toBeGreaterThan(1)
        expect(lines.filter(({ length }) => length > columns)).toEqual([])
      }
    })
  }

  needs(script)('row 96: a process takes the width of its terminal', async () => {
    expect(await linesAt(20, ['status', path])).toEqual(await linesHere(20, ['status', path]))
    const wrong = ['status', '--no-such-option']
    expect(await linesAt(20, wrong)).toEqual(await linesHere(20, wrong))
  })

  it('row 96: narrow lines of "tutti tail" say what happened, not when', async () => {
    const [narrow] = await linesHere(20, ['tail', '-n', '1', path])
    expect(narrow).toMatch(/^SessionEnded {2}/)
    const [wider] = await linesHere(50, ['tail', '-n', '1', path])
    expect(wider).toMatch(/^\d\d:\d\d:\d\d\.\d{3} {2}SessionEnded {2}/)
  })

  needs(script)('row 96: lines of "tutti top" are wrapped, not cut', async () => {
    const lines = await linesAt(40, ['top', path])
    expect(lines.filter(({ length }) => length > 40)).toEqual([])
    expect(lines.join(' ').replaceAll(/\s+/g, ' ')).toContain(
      '3 tasks: 2 done, 1 failed, 0 canceled, 0 running',
    )
  })

  needs(script)('row 96: the summary of "tutti run" is wrapped', async () => {
    const file = join(folder.path, 'tasks.jsonl')
    writeFileSync(file, '{"executable":"/no/such/program-with-a-long-name"}\n')
    const lines = await linesAt(30, ['run', file, '--folder', folder.path])
    // A person copies the path of the record.
    const isWide = (line: string): boolean => line.length > 30 && !line.startsWith('record  ')
    expect(lines.filter(isWide)).toEqual([])
    expect(lines.join('').replaceAll(/\s+/g, '')).toContain('ExecutableNotFoundError')
  })

  it('tasks: a long name is cut before other columns are left out', async () => {
    const [head = '', first = ''] = await linesHere(80, ['tasks', path])
    expect(head.split(/ {2,}/)).toEqual(['task', 'state', 'name', 'waited', 'ran', 'worker'])
    expect(first).toMatch(/^sim-1 .* DONE {4}simula…n-end .*3\.00 s/)
  })
})

describe('a table', () => {
  it('row 96: control characters are measured as they are shown', () => {
    const columns = [
      { head: 'name', cell: ({ name }: { name: string }) => name, minWidth: 8 },
      { head: 'tasks', cell: () => '1', isNumber: true },
    ]
    const rows = [{ name: 'bell\u0007\u0007\nprog' }, { name: 'sleep' }]
    const [head = '', first = '', second = ''] = tableLines(columns, rows)
    expect(first).toBe(String.raw`bell\u0007\u0007\u000aprog      1`)
    expect([head.length, second.length]).toEqual([first.length, first.length])
    expect(tableLines(columns, rows, 18).map(({ length }) => length)).toEqual([18, 18, 18])
  })
})

describe('a wrapped line', () => {
  const record = `telemetry/s-81bd.1790000000.telemetry.jsonl`

  it('wrap: a shell takes a command that was broken at any width', () => {
    for (let width = 12; width < 90; width++) {
      const lines = wrapLine(`resume  npx tutti resume ${record} -- x`, width)
      expect(lines.filter(({ length }) => length > width)).toEqual([])
      const copied = lines.join('\n').slice('resume'.length)
      const shell = `npx() { printf '%s|' "$@"; }\n${copied}`
      const { stdout } = spawnSync('sh', ['-c', shell], { encoding: 'utf8' })
      expect([width, stdout]).toEqual([width, `tutti|resume|${record}|--|x|`])
    }
  })

  it('wrap: a program with its arguments can be pasted at any width', () => {
    for (let width = 4; width < 60; width++) {
      const lines = wrapLine(`  command: printf %s, one two/${'x'.repeat(40)} three`, width)
      if (width >= 8) expect(lines.filter(({ length }) => length > width)).toEqual([])
      const copied = lines.join('\n').replace(/^\s*command:\s*/, '')
      const { stdout } = spawnSync('sh', ['-c', copied], { encoding: 'utf8' })
      expect([width, stdout]).toEqual([width, `one,two/${'x'.repeat(40)},three,`])
    }
    const quoted = "  command: sh -c 'exit 5; echo this is long'"
    expect(wrapLine(quoted, 20)).toEqual([quoted])
  })

  it('wrap: a command that gets what is missing can be pasted', () => {
    const lines = wrapLine('missing  sbatch  needed for x: apt-get install slurm-client', 20)
    expect(lines.slice(-2)).toEqual(['apt-get install \\', 'slurm-client'])
  })

  it('wrap: a command with a quoted word is left to the terminal', () => {
    const line = `resume  npx tutti resume 'my runs/${record}'`
    expect(wrapLine(line, 20)).toEqual([line])
  })

  it('wrap: a command that stands on several lines keeps them', () => {
    for (const line of [
      'try       curl http://vm:8000/v1/models \\',
      '      -d \'{ "a b": 1 }\'',
    ]) {
      expect(wrapLine(line, 20)).toEqual([line])
    }
  })

  it('wrap: a path on a line of its own is left to the terminal, so that it can be copied', () => {
    for (let width = 12; width < 60; width++) {
      expect(wrapLine(`record  ${record}`, width)).toEqual([`record  ${record}`])
    }
  })

  it('wrap: words stay whole where they fit, and nothing is lost where they do not', () => {
    const line = `  the record ${record} has no end`
    for (let width = 1; width < 60; width++) {
      const lines = wrapLine(line, width)
      expect(lines.filter(({ length }) => length > width)).toEqual([])
      expect(lines.join('').replaceAll(' ', '')).toBe(line.replaceAll(' ', ''))
    }
    expect(wrapLine('  a line of words', 12)).toEqual(['  a line of', '   words'])
  })

  it('wrap: lines of wide characters are not wider than the terminal', () => {
    const line = `  ${'漢字 🚀かな '.repeat(4)}${'漢字'.repeat(20)}`
    for (let width = 4; width < 60; width++) {
      const lines = wrapLine(line, width)
      expect(lines.filter((one) => displayWidth(one) > width)).toEqual([])
      expect(lines.join('').replaceAll(' ', '')).toBe(line.replaceAll(' ', ''))
    }
  })

  it('table: wide characters are aligned and cut by their columns', () => {
    const name = nameColumn([{ name: '' }], { minWidth: 6 })
    const columns = [name, { head: 'count', cell: () => '12', isNumber: true }]
    const rows = [{ name: '漢字漢字漢字' }, { name: 'ab🚀' }, { name: 'train/step/seven' }]
    expect(tableLines(columns, rows, 15)).toEqual([
      'name      count',
      '漢字…字      12',
      'ab🚀         12',
      'trai…ven     12',
    ])
    const text = { head: 'text', cell: () => 'step 7 of many', minWidth: 6, isTruncatedAtEnd: true }
    expect(tableLines([text], [0], 8)).toEqual(['text', 'step 7 …'])
  })

  it('table: a column may be cut to its minimum width, and gets the room that is left', () => {
    const columns = [
      { head: 'name', cell: (row: string) => row, minWidth: 6 },
      { head: 'count', cell: () => '12', isNumber: true, dropOrder: 1 },
    ]
    expect(tableLines(columns, ['abcdefghij'], 13)).toEqual(['name    count', 'abc…ij     12'])
    expect(tableLines(columns, ['abcdefghij'], 15)).toEqual(['name      count', 'abcd…hij     12'])
    expect(tableLines(columns, ['abcdefghij'], 10)).toEqual(['name', 'abcdefghij'])
    // Control characters are measured as they are shown.
    const shown = ['name      count', '\\u0007ab     12', 'c            12']
    expect(tableLines(columns, ['\u0007ab', 'c'])).toEqual(shown)
  })
})
