import { execFileSync } from 'node:child_process'
import { existsSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, it, onTestFinished } from 'vitest'
import { toBatchOptions } from '../../src/hpc/launch/batch-job.ts'
import { LaunchFolder } from '../../src/hpc/launch/launch-folder.ts'
import { quoteForShell } from '../../src/hpc/quote.ts'

it('row 102: names with quotes and substitutions reach a program unchanged', () => {
  const folder = mkdtempSync(join(tmpdir(), 'tutti-quote-'))
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }))
  const canary = join(folder, 'canary')
  const touch = `touch ${canary}`
  const words = [
    '',
    'plain-1.2/x',
    "it's",
    `'; ${touch}; '`,
    `"; ${touch}; "`,
    `$(${touch})`,
    `\`${touch}\``,
    `\${IFS}; ${touch} &`,
    `\\'; ${touch} #`,
    `a\tb * ? ~ ! { } [ ] < > | ( ) é 雪`,
    '--wrap=x',
  ]
  const script = `printf '%s\\n' ${words.map((word) => quoteForShell('word', word)).join(' ')}`
  for (const shell of ['sh', 'bash']) {
    const output = execFileSync(shell, ['-c', script], { encoding: 'utf8', cwd: folder })
    expect(output).toBe(`${words.join('\n')}\n`)
  }
  expect(existsSync(canary)).toBe(false)
})

it('row 102: line ends and NUL bytes are refused with the name of the option', () => {
  for (const text of ['a\nb', 'a\rb', 'a\0b', `x\n#SBATCH --wrap`]) {
    expect(() => quoteForShell('--partition', text)).toThrow(/^--partition: .* contains a/)
  }
})

it('row 102: a folder whose name Slurm would read otherwise is refused', () => {
  const outputIn = (name: string): string | undefined =>
    toBatchOptions({ more: [] }, 'x', new LaunchFolder(join('/data', name))).find((option) =>
      option.startsWith('--output='),
    )
  expect(outputIn('100%')).toMatch(/^--output=\/data\/100%%\//)
  const field = expect.objectContaining({ field: 'folder' }) as Error
  expect(() => outputIn(String.raw`a\b`)).toThrow(field)
})
